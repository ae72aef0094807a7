"""Fourier transforms against torch and jax: values, gradients, second order."""

import numpy as np
import pytest
from peers.against import agree, jax, jnp, torch

import retrograd as rg
from retrograd import fft

NORMS = ("backward", "ortho", "forward")
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
REAL = ("rfft", "rfftn", "ihfft")  # those that take real numbers only
HALF = ("irfft", "irfftn", "hfft")  # those that take half of a transform


def drawn(rng, shape, *, turned):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if turned else x


def one(name):
    """Lengths cut and filled up, odd and even, along each axis, in each norm.

    Neither peer transforms zero rows, so there are none here.
    """
    rng = np.random.default_rng(0)
    kinds = (False,) if name in REAL else (True,) if name in HALF else (False, True)
    for shape, axis in (((5,), 0), ((4, 6), 0), ((2, 3, 5), -2), ((3, 2), -1)):
        for n in (None, 2, 3, 8):
            for norm in NORMS:
                for turned in kinds:
                    yield drawn(rng, shape, turned=turned), {"n": n, "axis": axis, "norm": norm}


def many(name):
    rng = np.random.default_rng(1)
    kinds = (False,) if name in REAL else (True,) if name in HALF else (False, True)
    for s, axes in (
        (None, None),
        (None, (0, 2)),
        (None, (1,)),
        ((3, 6), (1, 2)),
        ((5, 2), (0, 1)),
        ((4, 5, 3), (0, 1, 2)),
    ):
        for norm in NORMS:
            for turned in kinds:
                yield drawn(rng, (4, 3, 5), turned=turned), {"s": s, "axes": axes, "norm": norm}


def for_torch(options):
    words = {"axis": "dim", "axes": "dim"}
    return {words.get(k, k): v for k, v in options.items()}


def theirs(name, peer, options):
    if peer == "torch":
        return lambda x: getattr(torch.fft, name)(x, **for_torch(options))
    return lambda x: getattr(jnp.fft, name)(x, **options)


def pairs():
    for name in (*ONE, *MANY):
        for peer in ("torch", "jax"):
            yield pytest.param(name, peer, marks=pytest.mark.peers(peer), id=f"{name}-{peer}")


def cases(name, peer):
    """All with torch; with jax, which compiles each, every seventh."""
    found = list((one if name in ONE else many)(name))
    return found if peer == "torch" else found[::7]


@pytest.mark.parametrize(("name", "peer"), list(pairs()))
def test_values_and_gradients(name, peer):
    for i, (x, options) in enumerate(cases(name, peer)):
        agree(
            lambda x, o=options: getattr(fft, name)(x, **o),
            theirs(name, peer, options),
            [x],
            [0],
            peer=peer,
            seed=i,
            what=f"{name} {options} of {x.shape} {x.dtype}",
        )


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", [*ONE, *MANY])
def test_single_precision(name):
    for i, (x, options) in enumerate(cases(name, "torch")[::5]):
        x = x.astype(np.complex64 if np.iscomplexobj(x) else np.float32)
        agree(
            lambda x, o=options: getattr(fft, name)(x, **o),
            theirs(name, "torch", options),
            [x],
            [0],
            peer="torch",
            seed=i,
            what=f"{name} {options} of {x.shape} {x.dtype}",
        )


def power(transform, real, total):
    """What is not linear: the gradient depends on x."""

    def call(x):
        out = transform(x)
        size = real(out * out.conj()) if hasattr(out, "conj") else real(out * rg.conj(out))
        return total(size * size)

    return call


@pytest.mark.parametrize(("name", "peer"), list(pairs()))
def test_second_order(name, peer):
    """The gradient of a power spectrum, as a function with a gradient; of real and complex."""
    for i, (x, options) in enumerate(cases(name, peer)[::3]):
        ours = rg.grad(power(lambda x, o=options: getattr(fft, name)(x, **o), rg.real, rg.sum))
        f = theirs(name, peer, options)
        if peer == "torch":
            whole = power(f, lambda x: x.real, lambda x: x.sum())

            def gradient(x, whole=whole):
                with torch.enable_grad():
                    return torch.autograd.grad(whole(x), x, create_graph=True)[0]
        else:
            slope = jax.grad(power(f, jnp.real, jnp.sum))
            gradient = lambda x, slope=slope: jnp.conj(slope(x))
        what = f"{name} {options} twice"
        agree(ours, gradient, [x], [0], peer=peer, seed=i, what=what)


@pytest.mark.peers("torch")
def test_helpers():
    for n in (1, 4, 7):
        for d in (1.0, 0.3):
            for name in ("fftfreq", "rfftfreq"):
                mine = getattr(fft, name)(n, d=d, dtype=rg.float64).array
                wanted = getattr(torch.fft, name)(n, d=d, dtype=torch.float64)
                assert np.allclose(mine, wanted.numpy(), rtol=1e-14)
        x = np.random.default_rng(n).normal(size=(n, 3))
        for name in ("fftshift", "ifftshift"):
            wanted = getattr(torch.fft, name)(torch.tensor(x)).numpy()
            assert np.array_equal(getattr(fft, name)(x).array, wanted)
