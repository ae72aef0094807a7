"""The parts of complex numbers.

Transposes are taken under the pairing Re(sum g * t), without conjugation: Re(g * conj(t))
is Re(conj(g) * t), so conj is its own transpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import DtypeError
from retrograd.core.interpret import apply
from retrograd.core.op import FUNCTIONS, Elementwise, Linear, function, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, cast

__all__ = ["angle", "conj", "conjugate", "imag", "make_complex", "real"]


class Part(Elementwise, Linear):
    """Something of a complex number that is linear in it, over the real numbers."""

    takes = "any"

    @classmethod
    def samples(cls, rng):
        yield cls(), arithmetic.turned(rng, 2, 3)
        yield cls(), arithmetic.turned(rng)
        yield cls(), rng.normal(size=(2, 3))
        yield cls(), np.zeros((0, 2), complex)


@op
class Real(Part):
    """The real part; of real numbers, themselves."""

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        return x.real

    def transpose(self, g, x: Spec):
        return cast.astype(g, x.dtype)

    def lower(self, k, x):
        return k.real(x)


@op
class Imag(Part):
    """The imaginary part; of real numbers, zeros."""

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        return x.imag if x.dtype.kind == "c" else np.zeros_like(x)

    def transpose(self, g, x: Spec):
        return make_complex(0.0, -g) if x.dtype.kind == "c" else None

    def lower(self, k, x):
        return k.imag(x)


@op
class Conj(Part):
    """The complex conjugate; of real numbers, themselves."""

    def forward(self, x):
        return np.conjugate(x) if x.dtype.kind == "c" else x

    def transpose(self, g):
        return conj(g)

    def lower(self, k, x):
        return k.conj(x)


REAL, IMAG, CONJ = Real(), Imag(), Conj()


@function
def real(x: Any, /) -> Tensor:
    """The real part, element by element; of real numbers, themselves."""
    return apply(REAL, x)


@function
def imag(x: Any, /) -> Tensor:
    """The imaginary part, element by element; of real numbers, zeros."""
    return apply(IMAG, x)


@function
def conj(x: Any, /) -> Tensor:
    """The complex conjugate, element by element; of real numbers, themselves."""
    return apply(CONJ, x)


@function
def conjugate(x: Any, /) -> Tensor:
    """NumPy's name for `conj`."""
    return conj(x)


@function
def angle(x: Any, /) -> Tensor:
    """The angle from the positive real axis, from -pi to pi; of real numbers, 0 or pi."""
    return FUNCTIONS["atan2"](imag(x), real(x))


@op
class MakeComplex(Elementwise, Linear):
    """re + 1j * im, with each part as it is: infinities and nan stay in theirs."""

    takes = "floating"

    def shape(self, re: Spec, im: Spec) -> Spec:
        if re.dtype not in (dt.float32, dt.float64):
            raise DtypeError(
                f"make_complex: there is no complex dtype of {re.dtype} parts",
                hint="rg.make_complex(re.astype(rg.float32), im.astype(rg.float32))",
            )
        return Elementwise.shape(self, re, im).with_dtype(dt.complex_of(re.dtype))

    def forward(self, re, im):
        dtype = dt.complex_of(np.result_type(re, im))
        to = broadcast_shapes("make_complex", re=np.shape(re), im=np.shape(im))
        out = np.empty(to, dtype)
        out.real, out.imag = re, im
        return out

    def transpose_re(self, g):
        return real(g)

    def transpose_im(self, g):
        return -imag(g)

    def lower(self, k, re, im):
        return k.complex(re, im)

    @staticmethod
    def samples(rng):
        yield MakeComplex(), *arithmetic.pair(rng)
        yield MakeComplex(), np.asarray(1.0), np.asarray(2.0)
        yield MakeComplex(), np.zeros((0, 2)), np.asarray(2.0)


MAKE_COMPLEX = MakeComplex()


@function
def make_complex(re: Any, im: Any, /) -> Tensor:
    """Complex numbers from their real and imaginary parts."""
    return apply(MAKE_COMPLEX, re, im)
