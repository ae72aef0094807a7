"""The functions of rg.special that SciPy computes agree with JAX, values and gradients."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("jax")
RNG = np.random.default_rng(3)
A, B = RNG.uniform(0.6, 4, 6), RNG.uniform(0.6, 4, 6)
X, U = RNG.uniform(0.3, 5, 6), RNG.uniform(0.1, 0.9, 6)
ROWS = {
    "gammainc": [A, X],
    "gammaincc": [A, X],
    "betaln": [A, B],
    "beta": [A, B],
    "i0": [X],
    "i0e": [X],
    "i1": [X],
    "i1e": [X],
}
ELSEWHERE = ("betainc", "zeta", "j0", "j1")  # below


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name):
    import jax
    import jax.scipy.special as theirs

    ours, arrays = getattr(rg.special, name), ROWS[name]
    out, pull = rg.vjp(ours, *arrays)
    wanted, pull_wanted = jax.vjp(getattr(theirs, name), *arrays)
    assert_close(out, np.asarray(wanted), what=name)
    g = RNG.normal(size=out.shape)
    # jax's own incomplete gamma is good to about 1e-8 in its first argument
    tolerance = 1e-6 if name.startswith("gammainc") else None
    for a, b in zip(pull(g), pull_wanted(g), strict=True):
        assert_close(a, np.asarray(b), tolerance=tolerance, what=f"{name} gradient")


def test_betainc_and_zeta_in_their_last_argument():
    import jax
    import jax.scipy.special as theirs

    for name, first in (("betainc", [A, B]), ("zeta", [A + 1])):
        last = U if name == "betainc" else X
        ours = rg.vmap(rg.grad(getattr(rg.special, name), argnums=len(first)))(*first, last)
        wanted = jax.vmap(jax.grad(getattr(theirs, name), argnums=len(first)))(*first, last)
        assert_close(ours, np.asarray(wanted), tolerance=1e-9, what=name)
        with pytest.raises(rg.DerivativeError, match="no closed form"):
            rg.vjp(getattr(rg.special, name), *first, last)[1](np.ones(6))


def test_bessel_functions_of_the_first_kind_in_torch():
    torch = pytest.importorskip("torch")
    for ours, theirs in ((rg.special.j0, "bessel_j0"), (rg.special.j1, "bessel_j1")):
        x = np.concatenate([X, -X])
        found = getattr(torch.special, theirs)(torch.from_numpy(x)).numpy()
        assert_close(ours(x), found, tolerance=1e-8)  # PyTorch's j1 is good to 1e-9
