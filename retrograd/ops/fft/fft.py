"""The array API's fft extension: transforms with lengths, axes and norms, and helpers."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.interpret import apply, lift
from retrograd.core.spec import axes_tuple, axis_index, check_device
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, create, options, pad, turn
from retrograd.ops import complex as complex_
from retrograd.ops.fft.transforms import (
    SWAPPED,
    Fourier,
    InverseRealFourier,
    Norm,
    RealFourier,
)

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Axes = tuple[int, ...]


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The Fourier transform along `axis`, with x cut to length n, or filled up with zeros."""
    return _complex("fft", x, _one(n), (axis,), norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`."""
    return _complex("ifft", x, _one(n), (axis,), norm, inverse=True)


def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The Fourier transform over several axes (all by default), at lengths `s`.

    Complex; real numbers of float32 give complex64. `norm` is "backward" (the inverse is
    divided by the number of elements), "forward" (the transform is) or "ortho" (both, by its
    root).
    """
    return _complex("fftn", x, s, axes, norm)


def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`."""
    return _complex("ifftn", x, s, axes, norm, inverse=True)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The Fourier transform of real numbers: the first n // 2 + 1 places of it."""
    return _half("rfft", x, _one(n), (axis,), norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: n real numbers, an even number of them unless n says otherwise."""
    return _whole("irfft", x, _one(n), (axis,), norm)


def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The Fourier transform of real numbers over several axes, of the last of them one half."""
    return _half("rfftn", x, s, axes, norm)


def irfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`: real numbers, along the last axis as many as `s` says.

    Without `s` it is the even number of them, twice what x has there less 2.
    """
    return _whole("irfftn", x, s, axes, norm)


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform, which is real, of what has half of its numbers given: as irfft's input."""
    way = SWAPPED[_norm("hfft", norm)]
    return _whole("hfft", complex_.conj(x), _one(n), (axis,), way)


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`: half of it, of real numbers."""
    way = SWAPPED[_norm("ihfft", norm)]
    return complex_.conj(_half("ihfft", x, _one(n), (axis,), way))


def fft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`fftn` over two axes, the last ones by default."""
    return fftn(x, s=s, axes=axes, norm=norm)


def ifft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`ifftn` over two axes, the last ones by default."""
    return ifftn(x, s=s, axes=axes, norm=norm)


def rfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`rfftn` over two axes, the last ones by default."""
    return rfftn(x, s=s, axes=axes, norm=norm)


def irfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`irfftn` over two axes, the last ones by default."""
    return irfftn(x, s=s, axes=axes, norm=norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequency of each place of `fft`, for samples that are `d` apart."""
    n = options.integer("fftfreq", "n", n, least=1)
    places = np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    return _frequencies("fftfreq", places, n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequency of each place of `rfft`, for n samples that are `d` apart."""
    n = options.integer("rfftfreq", "n", n, least=1)
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, dtype, device)


def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """x with its zero frequency in the middle of each axis, or of those given."""
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, -1)


# -- transforms at given lengths -------------------------------------------------------------


def _complex(who: str, x: Any, s: Any, axes: Any, norm: Any, *, inverse: bool = False) -> Any:
    x, way = _operand(who, x), _norm(who, norm)
    over, lengths = _over(who, x.shape, s, axes)
    return apply(Fourier(over, way, inverse), _resized(x, over, lengths))


def _half(who: str, x: Any, s: Any, axes: Any, norm: Any) -> Any:
    x, way = _operand(who, x), _norm(who, norm)
    if x.dtype.kind == "c":
        raise DtypeError(f"{who}: x is {x.dtype}; it takes real numbers", hint="rg.fft.fftn(x)")
    over, lengths = _over(who, x.shape, s, axes)
    x = _resized(x, over, lengths)
    return apply(RealFourier(over, way), x) if over else _wide(x)


def _whole(who: str, x: Any, s: Any, axes: Any, norm: Any) -> Any:
    x, way = _operand(who, x), _norm(who, norm)
    over, lengths = _over(who, x.shape, s, axes)
    if not over:
        return complex_.real(x)
    given = None if s is None else tuple(s)[-1]
    whole = 2 * (x.shape[over[-1]] - 1) if given in (None, -1) else lengths[-1]
    if whole < 1:
        raise ArgumentError(
            f"{who}: axis {over[-1]} of x {x.shape} is the transform of no numbers; n or s "
            f"must say how many there are"
        )
    x = _resized(x, over, (*lengths[:-1], whole // 2 + 1))
    return apply(InverseRealFourier(over, way, whole), _wide(x))


# -- options ---------------------------------------------------------------------------------


def _one(n: int | None) -> tuple[int] | None:
    return None if n is None else (n,)


def _operand(who: str, x: Any) -> Any:
    x = lift(x)
    return x if dt.is_inexact(x.dtype) and x.dtype not in dt.HALF else _single(who, x)


def _single(who: str, x: Any) -> Any:
    """What has no complex dtype of its own, as float32."""
    if x.dtype.kind == "b":
        raise DtypeError(f"{who}: got bool; it takes numbers")
    return cast.astype(x, dt.float32)


def _wide(x: Any) -> Any:
    return cast.astype(x, dt.complex_of(x.dtype))


def _norm(who: str, norm: Any) -> Norm:
    if norm not in SWAPPED:
        raise ArgumentError(
            f"{who}: norm must be 'backward', 'ortho' or 'forward'; got {norm!r}"
        )
    return norm


def _over(who: str, of: Axes, s: Any, axes: Any) -> tuple[Axes, Axes]:
    """The axes in the order given, counted from the front, and the lengths along them."""
    if axes is None:
        axes = range(len(of)) if s is None else range(len(of) - len(tuple(s)), len(of))
    over = tuple(axis_index(who, a, len(of), name="axes") for a in axes)
    if len(set(over)) != len(over):
        raise ArgumentError(f"{who}: axes {tuple(axes)} names an axis twice")
    sizes = [-1] * len(over) if s is None else list(s)
    if len(sizes) != len(over):
        raise ArgumentError(f"{who}: s {tuple(sizes)} and axes {over} must have equal lengths")
    lengths = [
        of[a] if n == -1 else options.integer(who, "length", n)
        for a, n in zip(over, sizes, strict=True)
    ]
    if min(lengths, default=1) < 1:
        raise ArgumentError(f"{who}: lengths must be at least 1; got {tuple(lengths)}")
    return over, tuple(lengths)


def _resized(x: Any, over: Axes, lengths: Axes) -> Any:
    """x cut, or filled up with zeros at the end, to given lengths."""
    widths = [(0, 0)] * x.ndim
    for axis, n in zip(over, lengths, strict=True):
        x = pad.piece(x, axis, 0, min(n, x.shape[axis]))
        widths[axis] = (0, n - x.shape[axis])
    return pad.pad(x, tuple(widths)) if any(b for _, b in widths) else x


def _frequencies(who: str, places: Any, n: int, d: Any, dtype: Any, device: Any) -> Tensor:
    check_device(who, device)
    wanted = dt.float32 if dtype is None else dt.as_dtype(who, dtype)
    if wanted not in dt.FLOATS:
        raise DtypeError(f"{who}: dtype must be floating; got {wanted}")
    return create.made((places / (n * options.number(who, "d", d))).astype(wanted))


def _shifted(who: str, x: Any, axes: Any, way: int) -> Tensor:
    x = lift(x)
    over = axes_tuple(who, axes, x.ndim)
    shift = tuple(x.shape[a] // 2 * way for a in over)
    return turn.roll(x, shift, axis=over)
