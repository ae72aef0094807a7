"""Fourier transforms against NumPy's, and their gradients against the sums they stand for."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import fft
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

NORMS = ["backward", "ortho", "forward"]
SINGLE = {np.float32: np.complex64, np.float64: np.complex128}


def turned(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def matrix(n, sign=-1):
    """The transform as a matrix."""
    return np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)


# -- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("axis", "n"), [(-1, None), (0, None), (1, 3), (-1, 9), (1, 4), (2, 1)]
)
def test_one_axis(name, norm, axis, n, rng):
    x = rng.normal(size=(3, 6, 5)) if name in ("rfft", "ihfft") else turned(rng, 3, 6, 5)
    found = getattr(fft, name)(x, n=n, axis=axis, norm=norm)
    wanted = getattr(np.fft, name)(x, n=n, axis=axis, norm=norm)
    assert found.dtype == wanted.dtype
    assert_close(found, wanted)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("s", "axes"),
    [
        (None, None),
        (None, (0, 2)),
        (None, (2, 0)),
        ((4, 3), (1, 2)),
        ((4, 3), (-1, 0)),
        ((2, 7, 6), (0, 1, 2)),
        ((-1, 3), (0, 1)),
        (None, (1,)),
    ],
)
def test_several_axes(name, norm, s, axes, rng):
    x = rng.normal(size=(3, 6, 5)) if name == "rfftn" else turned(rng, 3, 6, 5)
    found = getattr(fft, name)(x, s=s, axes=axes, norm=norm)
    assert_close(found, getattr(np.fft, name)(x, s=s, axes=axes, norm=norm))


def test_lengths_without_axes_are_those_of_the_last(rng):
    x = turned(rng, 3, 6, 5)
    assert_close(fft.fftn(x, s=(4, 3)), np.fft.fftn(x, s=(4, 3), axes=(1, 2)))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_two_axes(name, rng):
    x = rng.normal(size=(2, 4, 6)) if name == "rfft2" else turned(rng, 2, 4, 6)
    assert_close(getattr(fft, name)(x), getattr(np.fft, name)(x))


@pytest.mark.parametrize("real", SINGLE)
def test_widths_are_kept(real, rng):
    """float32 in, complex64 out, and back; gradients as their inputs."""
    x = rng.normal(size=(4, 6)).astype(real)
    wide = SINGLE[real]
    for f in (fft.fft, fft.ifft, fft.rfft, fft.fftn, fft.rfftn, fft.ihfft):
        assert f(x).dtype == wide
        assert rg.grad(lambda x, f=f: rg.sum(rg.abs(f(x))))(x).dtype == real
    for f in (fft.irfft, fft.hfft, fft.irfftn):
        assert f(x.astype(wide)).dtype == real
        assert rg.grad(lambda x, f=f: rg.sum(f(x)))(x.astype(wide)).dtype == wide
    assert fft.fft(np.arange(4)).dtype == rg.complex64
    assert fft.rfft(x.astype(np.float16)).dtype == rg.complex64


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_there_and_back(n, rng):
    x, z = rng.normal(size=(2, n)), turned(rng, 2, n)
    for norm in NORMS:
        assert_close(fft.ifft(fft.fft(z, norm=norm), norm=norm), z)
        assert_close(fft.irfft(fft.rfft(x, norm=norm), n=n, norm=norm), x)
        assert_close(fft.hfft(fft.ihfft(x, norm=norm), n=n, norm=norm), x)
        assert_close(fft.irfftn(fft.rfftn(x, norm=norm), s=(2, n), norm=norm), x)


def test_no_rows():
    assert fft.fft(np.zeros((0, 4))).shape == (0, 4)
    assert fft.rfft(np.zeros((0, 4))).shape == (0, 3)
    assert fft.irfft(np.zeros((0, 3), complex)).shape == (0, 4)


# -- derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_the_transpose_of_the_transform_is_the_transform(norm, rng):
    scale = {"backward": 1, "ortho": 5**-0.5, "forward": 1 / 5}[norm]
    g = turned(rng, 5)
    _, pull = rg.vjp(lambda x: fft.fft(x, norm=norm), turned(rng, 5))
    # the faces conjugate: what they give is the adjoint
    assert_close(pull(rg.asarray(g))[0], np.conj(matrix(5)).T @ g * scale)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_real_transforms(n, norm, rng):
    """rfft as a matrix of real and imaginary parts, transposed."""
    scale = {"backward": 1, "ortho": n**-0.5, "forward": 1 / n}[norm]
    rows = matrix(n)[: n // 2 + 1] * scale
    g = turned(rng, n // 2 + 1)
    _, pull = rg.vjp(lambda x: fft.rfft(x, norm=norm), rng.normal(size=n))
    assert_close(pull(rg.asarray(g))[0], rows.real.T @ g.real + rows.imag.T @ g.imag)


@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
@pytest.mark.parametrize("n", [None, 4, 7])
def test_derivatives_of_complex_inputs(name, n, rng):
    def f(re, im):
        out = getattr(fft, name)(rg.make_complex(re, im), n=n, axis=0)
        return rg.real(out), rg.imag(out)

    check_grads(f, rng.normal(size=(5, 2)), rng.normal(size=(5, 2)))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn"])
@pytest.mark.parametrize("s", [None, (3, 6), (5, 2)])
def test_derivatives_of_real_inputs(name, s, rng):
    def f(x):
        out = getattr(fft, name)(x, s=s, axes=(0, 2), norm="ortho")
        return rg.real(out), rg.imag(out)

    check_grads(f, rng.normal(size=(4, 2, 5)))


def test_convolution_by_transforms_has_the_gradients_of_convolution(rng):
    a, b, g = rng.normal(size=6), rng.normal(size=4), rng.normal(size=9)

    def by_transform(a, b):
        return fft.irfft(fft.rfft(a, n=9) * fft.rfft(b, n=9), n=9)

    out, pull = rg.vjp(by_transform, a, b)
    assert_close(out, np.convolve(a, b))
    ga, gb = pull(rg.asarray(g))
    assert_close(ga, np.correlate(g, b, "valid"))
    assert_close(gb, np.correlate(g, a, "valid"))
    check_grads(by_transform, a, b)


def test_transforms_keep_nothing(rng):
    x = rg.tensor(rng.normal(size=(4, 6)), requires_grad=True)
    for out in (fft.fft(x), fft.rfftn(x), fft.irfft(x), fft.hfft(x, n=9), fft.fftshift(x)):
        assert rg.debug.graph(out).nbytes == 0


def test_vmap(rng):
    x = rng.normal(size=(3, 4, 6))
    assert_close(rg.vmap(fft.fft)(x), np.fft.fft(x))
    assert_close(
        rg.vmap(fft.rfftn, in_axes=1)(x), np.fft.rfftn(np.moveaxis(x, 1, 0), axes=(1, 2))
    )
    assert_close(rg.vmap(lambda x: fft.irfft(x, n=5))(x), np.fft.irfft(x, n=5))
    assert_close(rg.vmap(rg.grad(lambda x: rg.sum(fft.irfft(fft.rfft(x)))))(x), np.ones_like(x))


# -- helpers -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("d", [1.0, 0.25])
def test_frequencies(n, d):
    assert_close(fft.fftfreq(n, d=d, dtype=rg.float64), np.fft.fftfreq(n, d))
    assert_close(fft.rfftfreq(n, d=d, dtype=rg.float64), np.fft.rfftfreq(n, d))
    assert fft.fftfreq(n).dtype == fft.rfftfreq(n).dtype == rg.float32


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2)])
def test_shifts(axes, rng):
    x = rng.normal(size=(3, 4, 5))
    assert_close(fft.fftshift(x, axes=axes), np.fft.fftshift(x, axes))
    assert_close(fft.ifftshift(x, axes=axes), np.fft.ifftshift(x, axes))
    assert_close(fft.ifftshift(fft.fftshift(x, axes=axes), axes=axes), x)
    check_grads(lambda x: fft.fftshift(x, axes=axes), x)


# -- refusals ------------------------------------------------------------------------------


def test_refusals():
    x = np.ones((3, 4))
    with pytest.raises(ArgumentError, match="norm must be 'backward', 'ortho' or 'forward'"):
        fft.fft(x, norm="unitary")
    with pytest.raises(ArgumentError, match=r"hfft: norm must be"):
        fft.hfft(x, norm=None)
    with pytest.raises(ArgumentError, match="lengths must be at least 1"):
        fft.fft(x, n=0)
    with pytest.raises(ArgumentError, match="length must be an integer"):
        fft.fft(x, n=2.5)
    with pytest.raises(ArgumentError, match="axes 2 is outside a tensor of 2 axes"):
        fft.fft(x, axis=2)
    with pytest.raises(ArgumentError, match="names an axis twice"):
        fft.fftn(x, axes=(0, -2))
    with pytest.raises(ArgumentError, match="must have equal lengths"):
        fft.fftn(x, s=(2,), axes=(0, 1))
    with pytest.raises(DtypeError, match="rfft: x is complex128; it takes real numbers"):
        fft.rfft(x + 1j)
    with pytest.raises(DtypeError, match="got bool"):
        fft.fft(x > 0)
    with pytest.raises(ArgumentError, match="lengths must be at least 1"):
        fft.fft(np.ones((3, 0)))
    with pytest.raises(ArgumentError, match=r"irfft: axis 1 .* the transform of no numbers"):
        fft.irfft(np.ones((3, 1)))
    with pytest.raises(ArgumentError, match="axes -1 is outside"):
        fft.fft(np.float64(1.0))
    with pytest.raises(ArgumentError, match="n must be at least 1"):
        fft.fftfreq(0)
    with pytest.raises(DtypeError, match="dtype must be floating"):
        fft.rfftfreq(3, dtype=rg.int32)


def test_an_op_on_its_own_refuses_an_empty_axis():
    from retrograd.core.interpret import apply
    from retrograd.ops.fft.transforms import Fourier

    with pytest.raises(ShapeError, match="has no elements to transform"):
        apply(Fourier((0,)), np.zeros((0, 2)))


STANDARD = """fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift
ifftshift"""


def test_the_extension_is_whole():
    assert set(STANDARD.split()) <= set(fft.__all__)
