"""Linear algebra against torch and jax: values, gradients, second order.

Vectors of eigenvalues and singular values are compared in forms that do not depend on their
phase, which each library chooses for itself.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from peers.against import agree, flat, jax, jnp, lax, torch

import retrograd as rg
from retrograd import linalg


@dataclass(frozen=True)
class Row:
    """What to call, ours and theirs, and arrays to call it on."""

    ours: object
    torch: object
    jax: object
    cases: object
    second: bool = True


# -- arrays --------------------------------------------------------------------------------


def drawn(rng, shape, *, turned=False):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if turned else x


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


BATCHES = [(), (3,), (2, 1, 2), (0,)]


def squares(rng):
    """Far from singular; real and complex, batched, of sizes 1 to 6."""
    for lead in BATCHES:
        for n in (1, 2, 3, 6):
            for turned in (False, True):
                yield (drawn(rng, (*lead, n, n), turned=turned) + 2 * n * np.eye(n),)


def any_squares(rng):
    for lead in BATCHES:
        for n in (1, 2, 3, 5):
            for turned in (False, True):
                yield (drawn(rng, (*lead, n, n), turned=turned),)


def definite(rng):
    for (x,) in any_squares(rng):
        yield (x @ adjoint(x) + np.eye(x.shape[-1]),)


def spread(rng):
    """Hermitian, with eigenvalues apart."""
    for (x,) in any_squares(rng):
        q = np.linalg.qr(x)[0] if x.size else x
        w = np.arange(x.shape[-1]) * 1.5 - 1
        yield ((q * w) @ adjoint(q),)


def systems(rng):
    for a, b in [
        ((), (2,)),
        ((), (2, 3)),
        ((4,), (4, 2, 3)),
        ((4,), (2,)),
        ((2, 1), (3, 2, 1)),
        ((), (5, 2, 2)),
        ((0,), (2, 2)),
    ]:
        for turned in (False, True):
            x = drawn(rng, (*a, 2, 2), turned=turned) + 4 * np.eye(2)
            yield x, drawn(rng, b, turned=turned)


def rectangles(rng):
    for lead in BATCHES:
        for m, n in ((3, 3), (4, 2), (2, 4), (5, 1), (1, 3)):
            for turned in (False, True):
                x = drawn(rng, (*lead, m, n), turned=turned)
                if not x.size:
                    continue
                u, _, vh = np.linalg.svd(x, full_matrices=False)
                yield ((u * (1 + 1.5 * np.arange(min(m, n))[::-1])) @ vh,)


def tall(rng):
    return ((x,) for (x,) in rectangles(rng) if x.shape[-2] >= x.shape[-1])


def vectors(rng):
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((4, 1, 3), (2, 3)), ((0, 3), (3,))):
        for turned in (False, True):
            yield drawn(rng, a, turned=turned), drawn(rng, b, turned=turned)


# -- the peers' words ----------------------------------------------------------------------


def t(name):
    """A function of torch.linalg, looked up when it is called."""

    def call(*xs, **options):
        return getattr(torch.linalg, name)(*xs, **options)

    return call


def j(name):
    """A function of jax.numpy.linalg, looked up when it is called."""

    def call(*xs, **options):
        return getattr(jnp.linalg, name)(*xs, **options)

    return call


def jax_sin(x):
    return jnp.sin(x)


def named(name):
    """A function that all three call by one name."""
    return getattr(linalg, name), t(name), j(name)


def torch_cond(x, p):
    """In the singular values or the inverse; torch's own is not differentiable for some p."""
    if p in (2, -2):
        return torch.linalg.cond(x, p)
    inverse = torch.linalg.inv(x)
    return torch.linalg.matrix_norm(x, p) * torch.linalg.matrix_norm(inverse, p)


def hermitian(x):
    """The Hermitian part, which is what ours takes."""
    return 0.5 * (x + x.mT.conj())


def eigh_forms(decompose, sin, absolute, conj):
    """Eigenvalues, a function of the matrix, and magnitudes of the components."""

    def call(x):
        w, v = decompose(x)
        return w, (v * sin(w)[..., None, :]) @ conj(v).mT, absolute(v)

    return call


def svd_forms(decompose, sin, absolute):
    def call(x):
        u, s, vh = decompose(x)
        return s, (u * sin(s)[..., None, :]) @ vh, absolute(u), absolute(vh)

    return call


def positive(qr, diagonal, sign):
    """q and r with a positive diagonal."""

    def call(x):
        q, r = qr(x)
        turn = sign(diagonal(r))
        return q * turn[..., None, :], r * turn[..., :, None]

    return call


def torch_eig(x):
    w, v = torch.linalg.eig(x)
    order = torch.argsort(w.detach().real + 1e-6 * w.detach().imag, dim=-1)
    w = torch.take_along_dim(w, order, -1)
    return w, torch.take_along_dim(v.abs(), order[..., None, :], -1)


def our_eig(x):
    w, v = linalg.eig(x)
    return w, rg.abs(v)


def apart(rng):
    """General matrices whose eigenvalues have real parts apart."""
    for lead in BATCHES:
        for n in (1, 2, 4):
            for turned in (False, True):
                x = 0.2 * drawn(rng, (*lead, n, n), turned=turned)
                yield (x + np.diag(1.5 * np.arange(n)),)


ROWS = {
    "solve": Row(*named("solve"), systems),
    "inv": Row(*named("inv"), squares),
    "det": Row(*named("det"), any_squares),
    "slogdet": Row(*named("slogdet"), squares),
    "cholesky": Row(
        linalg.cholesky,
        lambda x: torch.linalg.cholesky(hermitian(x)),
        lambda x: jnp.linalg.cholesky(hermitian(x)),
        definite,
    ),
    "cholesky upper": Row(
        lambda x: linalg.cholesky(x, upper=True),
        lambda x: torch.linalg.cholesky(hermitian(x), upper=True),
        lambda x: jnp.linalg.cholesky(hermitian(x), upper=True),
        definite,
    ),
    "qr": Row(
        lambda x: tuple(linalg.qr(x)),
        positive(
            t("qr"),
            lambda r: r.diagonal(dim1=-2, dim2=-1),
            lambda d: d.detach().real.sign().to(d.dtype),
        ),
        positive(
            j("qr"),
            lambda r: jnp.diagonal(r, axis1=-2, axis2=-1),
            lambda d: lax.stop_gradient(jnp.sign(d.real).astype(d.dtype)),
        ),
        tall,
    ),
    "qr wide": Row(
        lambda x: tuple(linalg.qr(x)),
        positive(
            t("qr"),
            lambda r: r.diagonal(dim1=-2, dim2=-1),
            lambda d: d.detach().real.sign().to(d.dtype),
        ),
        None,
        lambda rng: ((x,) for (x,) in rectangles(rng) if x.shape[-2] < x.shape[-1]),
    ),
    "eigh": Row(
        eigh_forms(linalg.eigh, rg.sin, rg.abs, rg.conj),
        eigh_forms(
            lambda x: torch.linalg.eigh(hermitian(x)),
            lambda w: w.sin(),
            abs,
            lambda v: v.conj(),
        ),
        eigh_forms(
            lambda x: jnp.linalg.eigh(hermitian(x)),
            jax_sin,
            abs,
            lambda v: v.conj(),
        ),
        spread,
    ),
    "eigvalsh": Row(
        linalg.eigvalsh,
        lambda x: torch.linalg.eigvalsh(hermitian(x)),
        lambda x: jnp.linalg.eigvalsh(hermitian(x)),
        spread,
    ),
    "eig": Row(our_eig, torch_eig, None, apart),
    "svd": Row(
        svd_forms(lambda x: linalg.svd(x, full_matrices=False), rg.sin, rg.abs),
        svd_forms(lambda x: torch.linalg.svd(x, full_matrices=False), lambda s: s.sin(), abs),
        svd_forms(lambda x: jnp.linalg.svd(x, full_matrices=False), jax_sin, abs),
        rectangles,
    ),
    "svdvals": Row(*named("svdvals"), rectangles),
    "pinv": Row(*named("pinv"), rectangles),
    "lstsq": Row(
        linalg.lstsq,
        lambda a, b: torch.linalg.lstsq(a, b).solution,
        None,
        lambda rng: (
            (x, drawn(rng, (*x.shape[:-1], 2), turned=np.iscomplexobj(x)))
            for (x,) in rectangles(rng)
        ),
    ),
    "matrix_exp": Row(
        linalg.matrix_exp,
        t("matrix_exp"),
        None,
        any_squares,
    ),
    "matrix_power 5": Row(
        lambda x: linalg.matrix_power(x, 5),
        lambda x: torch.linalg.matrix_power(x, 5),
        lambda x: jnp.linalg.matrix_power(x, 5),
        any_squares,
    ),
    "matrix_power -3": Row(
        lambda x: linalg.matrix_power(x, -3),
        lambda x: torch.linalg.matrix_power(x, -3),
        lambda x: jnp.linalg.matrix_power(x, -3),
        squares,
    ),
    "cross": Row(
        linalg.cross,
        lambda a, b: torch.linalg.cross(*torch.broadcast_tensors(a, b)),
        j("cross"),
        vectors,
    ),
    "trace": Row(
        linalg.trace,
        lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1),
        j("trace"),
        rectangles,
    ),
    **{
        f"solve_triangular {lower} {turned} {unit}": Row(
            lambda a, b, o=(lower, turned, unit): linalg.solve_triangular(
                a, b, lower=o[0], transpose=o[1], unit_diagonal=o[2]
            ),
            lambda a, b, o=(lower, turned, unit): torch.linalg.solve_triangular(
                a.mT if o[1] else a, b, upper=o[0] == o[1], unitriangular=o[2]
            ),
            None,
            lambda rng: ((a, b) for a, b in systems(rng) if b.ndim > 1),
        )
        for lower in (False, True)
        for turned in (False, True)
        for unit in (False, True)
    },
    **{
        f"matrix_norm {ord}": Row(
            lambda x, o=ord: linalg.matrix_norm(x, ord=o),
            lambda x, o=ord: torch.linalg.matrix_norm(x, ord=o),
            lambda x, o=ord: jnp.linalg.matrix_norm(x, ord=o),
            rectangles,
            second=ord in ("fro", "nuc", 2, -2),
        )
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
    **{
        f"cond {p}": Row(
            lambda x, p=p: linalg.cond(x, p=p),
            lambda x, p=p: torch_cond(x, p),
            None,
            lambda rng: ((x,) for (x,) in squares(rng) if x.size),
        )
        for p in (2, -2, 1, np.inf, "fro", "nuc")
    },
}


def pairs():
    for name, row in ROWS.items():
        for peer in ("torch", "jax"):
            if getattr(row, peer) is not None:
                yield pytest.param(
                    name, peer, marks=pytest.mark.peers(peer), id=f"{name}-{peer}"
                )


def chosen(row, peer, name):
    """All cases with torch; with jax, which compiles each shape, every fifth."""
    cases = list(row.cases(np.random.default_rng(len(name))))
    return cases if peer == "torch" else cases[::5]


@pytest.mark.parametrize(("name", "peer"), list(pairs()))
def test_values_and_gradients(name, peer):
    row = ROWS[name]
    for i, arrays in enumerate(chosen(row, peer, name)):
        agree(
            row.ours,
            getattr(row, peer),
            arrays,
            range(len(arrays)),
            peer=peer,
            seed=i,
            what=f"{name} on {[a.shape for a in arrays]} {arrays[0].dtype}",
        )


# -- second order --------------------------------------------------------------------------


def loss(f, weights, total, real):
    """A number that depends on all results, not linearly."""

    def call(*xs):
        outs = [real(o) for o in flat(f(*xs))]
        return sum(total(w * (o + o * o)) for o, w in zip(outs, weights, strict=True))

    return call


def torch_gradient(f):
    def call(*xs):
        with torch.enable_grad():
            return torch.autograd.grad(f(*xs), xs, create_graph=True)

    return call


@pytest.mark.parametrize(
    ("name", "peer"),
    [p for p in pairs() if ROWS[p.values[0]].second],
)
def test_second_order(name, peer):
    """The gradient as a function, with its own values and gradients; on real matrices."""
    row = ROWS[name]
    cases = [c for c in chosen(row, peer, name) if c[0].size and not np.iscomplexobj(c[0])]
    assert cases
    for i, arrays in enumerate(cases[:: 2 if peer == "torch" else 4]):
        rng = np.random.default_rng(i)
        out = flat(row.ours(*map(rg.asarray, arrays)))
        weights = [rng.normal(size=o.shape) for o in out]
        places = tuple(range(len(arrays)))
        ours = rg.grad(loss(row.ours, weights, rg.sum, rg.real), places)
        if peer == "torch":
            scales = [torch.tensor(w) for w in weights]
            theirs = torch_gradient(
                loss(row.torch, scales, lambda x: x.sum(), lambda x: x.real)
            )
        else:
            theirs = jax.grad(loss(row.jax, weights, jnp.sum, jnp.real), places)
        what = f"{name} twice on {[a.shape for a in arrays]}"
        agree(ours, theirs, arrays, range(len(arrays)), peer=peer, seed=i, what=what)


# -- where they differ ---------------------------------------------------------------------


@pytest.mark.peers("torch")
def test_det_of_singular_matrices():
    rng = np.random.default_rng(0)
    for rank in (0, 1, 2, 3):
        x = rng.normal(size=(4, rank)) @ rng.normal(size=(rank, 4))
        t = torch.tensor(x, requires_grad=True)
        torch.linalg.det(t).backward()
        assert np.allclose(rg.grad(linalg.det)(x).array, t.grad.numpy(), atol=1e-10)


@pytest.mark.peers("torch")
def test_equal_eigenvalues_are_finite_here_and_not_there():
    x = np.eye(3)
    t = torch.tensor(x, requires_grad=True)
    torch.linalg.eigh(t)[1].abs().sum().backward()
    assert not torch.isfinite(t.grad).all()
    slope = rg.grad(lambda x: rg.sum(rg.abs(linalg.eigh(x).eigenvectors)))(x)
    assert np.isfinite(slope.array).all()
