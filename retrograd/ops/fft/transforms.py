"""The ops: transforms over given axes at the lengths they have. They keep nothing.

Under the plain transpose the transform is symmetric, so it is its own derivative and its own
transpose. The transform of real numbers is half of it: the coefficients left out are conjugates
of others. Its transpose is therefore the inverse's, with those that stand for two at half
their weight, and the other way round with twice their weight.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any, Literal

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import DtypeError, ShapeError
from retrograd.core.interpret import apply, constant
from retrograd.core.op import Composite, Linear, op
from retrograd.core.spec import Spec, spec_of
from retrograd.ops import complex as complex_

LIBRARY = "an FFT is a library call"
Norm = Literal["backward", "ortho", "forward"]
SWAPPED: dict[Norm, Norm] = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


MANY = 1 << 14  # elements: fewer are not worth SciPy's longer way


def library(name: str, x: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
    """A transform by SciPy where it is installed, which takes several lines at once; or NumPy.

    Which of them depends on the size alone: bits may differ where SciPy is not installed.
    """
    scipy = _scipy() if x.size >= MANY else None
    if scipy is None:
        return getattr(np.fft, name)(x, *args, **options)
    return getattr(scipy, name)(x, *args, workers=_workers(), **options)


@cache
def _scipy() -> Any:
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None


@cache
def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class Transform(Linear):
    """Fourier transforms over `axes`; `norm` says which direction divides by the length."""

    axes: tuple[int, ...]
    norm: Norm = "backward"
    uniform = True
    takes = "inexact"
    host = LIBRARY
    native = "transform"
    quicker = True

    def batch(self, size, args, mapped):
        return apply(self.replace(axes=tuple(a + 1 for a in self.axes)), *args)


def wide(x: Spec) -> Spec:
    """The spec of the coefficients."""
    return x.with_dtype(dt.complex_of(x.dtype))


def full(who: str, x: Spec, axes: tuple[int, ...]) -> None:
    """Refuse to transform along axes without elements."""
    for a in axes:
        if not x.shape[a]:
            raise ShapeError(f"{who}: axis {a} of x {x.shape} has no elements to transform")


def weighted(x: Any, axis: int, length: int, weight: float) -> Any:
    """Half of the coefficients of real numbers; those that stand for two times `weight`."""
    scale = np.full(length // 2 + 1, weight, dt.real_of(x.dtype))
    scale[0] = 1
    if length % 2 == 0:
        scale[-1] = 1
    return x * constant(scale.reshape(-1, *(1,) * (x.ndim - 1 - axis)))


@op
class Fourier(Transform):
    """sum over j of x[j] * exp(-2j * pi * j * k / n), along each axis; `inverse`: exp(+2j...).

    Of real numbers too. By default the inverse is divided by n.
    """

    axes: tuple[int, ...]
    norm: Norm = "backward"
    inverse: bool = False

    def shape(self, x: Spec) -> Spec:
        full("fft", x, self.axes)
        return wide(x)

    def forward(self, x):
        self.shape(spec_of(x))
        if not self.axes:
            return x.astype(dt.complex_of(x.dtype), copy=False)
        return library("ifftn" if self.inverse else "fftn", x, axes=self.axes, norm=self.norm)

    def transpose(self, g, x: Spec):
        return self._of(self, g, x)

    def adjoint(self, g, x):
        """The transpose between conjugates: the transform the other way, as large."""
        return self._of(Fourier(self.axes, SWAPPED[self.norm], not self.inverse), g, x)

    @staticmethod
    def _of(op: Fourier, g: Any, x: Any) -> Any:
        found = apply(op, g)
        return found if x.dtype.kind == "c" else complex_.real(found)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4))
        for norm in SWAPPED:
            yield Fourier((2,), norm), x
            yield Fourier((0, 1), norm, inverse=True), x[0] + 1j * x[1]
        yield Fourier((2, 0), inverse=True), x
        yield Fourier((1, 2)), x + 1j
        yield Fourier((1,)), np.zeros((0, 3))
        yield Fourier(()), rng.normal(size=())

    @staticmethod
    def refuses(rng):
        yield Fourier((0,)), np.zeros((0, 3)), "axis 0 of x (0, 3) has no elements to transform"


@op
class RealFourier(Transform):
    """The transform of real numbers: along the last of `axes`, its first n // 2 + 1 places."""

    axes: tuple[int, ...]
    norm: Norm = "backward"

    def shape(self, x: Spec) -> Spec:
        if x.dtype.kind == "c":
            raise DtypeError(
                f"rfft: x is {x.dtype}; it takes real numbers", hint="rg.fft.fft(x)"
            )
        full("rfft", x, self.axes)
        lengths = list(x.shape)
        lengths[self.axes[-1]] = lengths[self.axes[-1]] // 2 + 1
        return wide(x).with_shape(lengths)

    def forward(self, x):
        self.shape(spec_of(x))
        return library("rfftn", x, axes=self.axes, norm=self.norm)

    def transpose(self, g, x: Spec):
        return self.adjoint(complex_.conj(g), x)

    def adjoint(self, g, x):
        """The transpose of conjugates; what it makes is real."""
        axis = self.axes[-1]
        length = x.shape[axis]
        back = InverseRealFourier(self.axes, SWAPPED[self.norm], length)
        return apply(back, weighted(g, axis, length, 0.5))

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 5, 4))
        for norm in SWAPPED:
            yield RealFourier((2,), norm), x
            yield RealFourier((0, 1), norm), x
        yield RealFourier((2, 1, 0)), x
        yield RealFourier((0,)), rng.normal(size=1)
        yield RealFourier((1,)), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield RealFourier((0,)), np.ones(3) * 1j, "it takes real numbers"
        yield RealFourier((0,)), np.zeros(0), "has no elements"


@op
class DoubledRealFourier(Composite):
    """Conjugates of the transform of real numbers, twice those that stand for two."""

    axes: tuple[int, ...]
    norm: Norm = "backward"
    uniform = True
    takes = "inexact"
    native = "transform"

    def shape(self, x: Spec) -> Spec:
        return RealFourier(self.axes, self.norm).shape(x)

    def expand(self, x):
        found = complex_.conj(apply(RealFourier(self.axes, self.norm), x))
        return weighted(found, self.axes[-1], x.shape[self.axes[-1]], 2.0)

    def batch(self, size, args, mapped):
        return apply(self.replace(axes=tuple(a + 1 for a in self.axes)), *args)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 5, 4))
        yield DoubledRealFourier((2,)), x
        yield DoubledRealFourier((0, 1), "ortho"), x
        yield DoubledRealFourier((2,), "forward"), rng.normal(size=(1, 2, 512))
        yield DoubledRealFourier((0,)), rng.normal(size=1)
        yield DoubledRealFourier((1,)), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield DoubledRealFourier((0,)), np.ones(3) * 1j, "it takes real numbers"


@op
class InverseRealFourier(Transform):
    """Real numbers of length `length` along the last of `axes`, from half of their transform.

    The imaginary parts that those of real numbers do not have are not read.
    """

    axes: tuple[int, ...]
    norm: Norm = "backward"
    length: int = 1

    def shape(self, x: Spec) -> Spec:
        half = self.length // 2 + 1
        if self.length < 1 or x.shape[self.axes[-1]] != half:
            raise ShapeError(
                f"irfft: {self.length} real numbers have {half} coefficients; axis "
                f"{self.axes[-1]} of x {x.shape} has {x.shape[self.axes[-1]]}"
            )
        full("irfft", x, self.axes)
        lengths = list(x.shape)
        lengths[self.axes[-1]] = self.length
        return x.with_dtype(dt.real_of(x.dtype)).with_shape(lengths)

    def forward(self, x):
        lengths = self.shape(spec_of(x)).shape
        s = tuple(lengths[a] for a in self.axes)
        return library("irfftn", x, s, axes=self.axes, norm=self.norm)

    def transpose(self, g, x: Spec):
        found = apply(DoubledRealFourier(self.axes, SWAPPED[self.norm]), g)
        return found if x.dtype.kind == "c" else complex_.real(found)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4)) + 1j * rng.normal(size=(2, 3, 4))
        for norm in SWAPPED:
            yield InverseRealFourier((2,), norm, 6), x
            yield InverseRealFourier((0, 1), norm, 5), x
        yield InverseRealFourier((2, 1, 0), length=3), x
        yield InverseRealFourier((0,), length=1), x[0, 0, :1]
        yield InverseRealFourier((1,), length=2), np.zeros((0, 2), complex)
        yield InverseRealFourier((2,), length=7), x.real

    @staticmethod
    def refuses(rng):
        yield InverseRealFourier((0,), length=4), np.ones(4) * 1j, "4 real numbers have 3"
