"""Special functions of real numbers: error functions, normal law, gamma family.

The NumPy code is in `core.special`: float64 inside, rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import special
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, options, special_loops
from retrograd.ops import special_kernels as kernels

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "gammaln",
    "lgamma",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "polygamma",
]

MOST_ORDER = 1000  # of polygamma
ROOT_HALF, ROOT_2PI = math.sqrt(0.5), math.sqrt(2 * math.pi)


# -- error functions -------------------------------------------------------------------------


@op
class Erf(Elementwise):
    """The error function."""

    takes = "floating"

    def forward(self, x):
        return special.erf(x)

    def slope(self, x):
        return (2 / math.sqrt(math.pi)) * elementary.exp(-(x * x))

    def lower(self, k, x):
        return k.erf(x)

    @staticmethod
    def samples(rng):
        return ((Erf(), x) for x in elementary.operands(rng, -2, 2, real=True))


ERF = Erf()


@function
def erf(x: Any, /) -> Tensor:
    """The error function, element by element."""
    return apply(ERF, x)


@op
class Erfc(Elementwise):
    """1 - erf(x), exact where it is tiny."""

    takes = "floating"

    def forward(self, x):
        return special.erfc(x)

    def slope(self, x):
        return (-2 / math.sqrt(math.pi)) * elementary.exp(-(x * x))

    def lower(self, k, x):
        return k.erfc(x)

    @staticmethod
    def samples(rng):
        return ((Erfc(), x) for x in elementary.operands(rng, -2, 2, real=True))


ERFC = Erfc()


@function
def erfc(x: Any, /) -> Tensor:
    """1 - erf(x), element by element, exact where it is tiny."""
    return apply(ERFC, x)


@op
class Erfinv(Elementwise):
    """The number whose erf is x."""

    takes = "floating"

    def forward(self, x):
        return special.erfinv(x)

    def slope(self, out):
        return (math.sqrt(math.pi) / 2) * elementary.exp(out * out)

    def lower(self, k, x):
        return kernels.erfinv(k, x)

    @staticmethod
    def samples(rng):
        return ((Erfinv(), x) for x in elementary.operands(rng, -0.8, 0.8, real=True))


ERFINV = Erfinv()


@function
def erfinv(x: Any, /) -> Tensor:
    """The number whose erf is x, element by element; infinite at -1 and 1, nan beyond."""
    return apply(ERFINV, x)


# -- the normal law --------------------------------------------------------------------------


@op
class Ndtr(Elementwise):
    """The distribution function of the standard normal law."""

    takes = "floating"

    def forward(self, x):
        return special.ndtr(x)

    def slope(self, x):
        return (1 / ROOT_2PI) * elementary.exp(-0.5 * (x * x))

    def lower(self, k, x):
        return 0.5 * k.erfc(-ROOT_HALF * x)

    @staticmethod
    def samples(rng):
        return ((Ndtr(), x) for x in elementary.operands(rng, -3, 3, real=True))


NDTR = Ndtr()


@function
def ndtr(x: Any, /) -> Tensor:
    """The distribution function of the standard normal law, element by element."""
    return apply(NDTR, x)


@op
class Ndtri(Elementwise):
    """The quantile function of the standard normal law."""

    takes = "floating"

    def forward(self, p):
        return special.ndtri(p)

    def slope(self, out):
        return ROOT_2PI * elementary.exp(0.5 * (out * out))

    def lower(self, k, p):
        return kernels.ndtri(k, p)

    @staticmethod
    def samples(rng):
        return ((Ndtri(), p) for p in elementary.operands(rng, 0.1, 0.9, real=True))


NDTRI = Ndtri()


@function
def ndtri(p: Any, /) -> Tensor:
    """The number whose ndtr is p, element by element; infinite at 0 and 1, nan beyond."""
    return apply(NDTRI, p)


@op
class LogNdtr(Elementwise):
    """log(ndtr(x)), also where ndtr is 0 or 1 in floating point."""

    takes = "floating"

    def forward(self, x):
        return special.log_ndtr(x)

    def slope(self, x):
        return apply(INVERSE_MILLS, x)

    def lower(self, k, x):
        return kernels.log_ndtr(k, x)

    @staticmethod
    def samples(rng):
        return ((LogNdtr(), x) for x in elementary.operands(rng, -4, 3, real=True))


LOG_NDTR = LogNdtr()


@function
def log_ndtr(x: Any, /) -> Tensor:
    """log(ndtr(x)), element by element, also where ndtr is 0 or 1 in floating point."""
    return apply(LOG_NDTR, x)


@op
class InverseMills(Elementwise):
    """The normal density over the normal distribution function: the slope of log_ndtr."""

    takes = "floating"

    def forward(self, x):
        # Below -1 both vanish together: their quotient is that of the scaled functions.
        wide = np.asarray(x, np.float64)
        tail = math.sqrt(2 / math.pi) / special._scaled_erfc(np.maximum(-ROOT_HALF * wide, 0.5))
        middle = np.exp(-0.5 * (wide * wide)) / (ROOT_2PI * special.ndtr(wide))
        return np.where(wide < -1, tail, middle).astype(x.dtype)

    def slope(self, x, out):
        return -out * (x + out)

    def lower(self, k, x):
        return kernels.inverse_mills(k, x)

    @staticmethod
    def samples(rng):
        return ((InverseMills(), x) for x in elementary.operands(rng, -4, 3, real=True))


INVERSE_MILLS = InverseMills()


# -- the gamma family ------------------------------------------------------------------------


@op
class Lgamma(Elementwise):
    """The logarithm of the absolute value of the gamma function."""

    takes = "floating"

    def forward(self, x):
        return special.gammaln(x)

    def slope(self, x):
        return digamma(x)

    def lower(self, k, x):
        return kernels.lgamma(k, x)

    @staticmethod
    def samples(rng):
        yield Lgamma(), np.array([-2.6, -1.4, -0.3])
        yield from ((Lgamma(), x) for x in elementary.operands(rng, 0.5, 9, real=True))


LGAMMA = Lgamma()


@function
def lgamma(x: Any, /) -> Tensor:
    """log(|gamma(x)|), element by element; infinite at 0 and the negative integers."""
    return apply(LGAMMA, x)


@function
def gammaln(x: Any, /) -> Tensor:
    """The same as `lgamma`, under SciPy's name."""
    return apply(LGAMMA, x)


@op
class Digamma(Elementwise):
    """The slope of lgamma."""

    takes = "floating"

    def forward(self, x):
        return special.digamma(x)

    def slope(self, x):
        return polygamma(1, x)

    def lower(self, k, x):
        return kernels.digamma(k, x)

    @staticmethod
    def samples(rng):
        yield Digamma(), np.array([-2.6, -1.4, -0.3])
        yield from ((Digamma(), x) for x in elementary.operands(rng, 0.5, 9, real=True))


DIGAMMA = Digamma()


@function
def digamma(x: Any, /) -> Tensor:
    """The slope of lgamma, element by element; nan at 0 and the negative integers."""
    return apply(DIGAMMA, x)


@op
class Polygamma(Elementwise):
    """The n-th derivative of digamma, n being 1 or more."""

    n: int

    takes = "floating"

    def forward(self, x):
        return special.polygamma(self.n, x)

    def slope(self, x):
        return apply(Polygamma(self.n + 1), x)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=()):
            found = special_loops.polygamma(k, self.n, k.cast(x[row], dt.float64))
            out[row] = k.cast(found, out.dtype)

    @staticmethod
    def samples(rng):
        for n in (1, 2):
            yield from ((Polygamma(n), x) for x in elementary.operands(rng, 0.8, 9, real=True))
            yield Polygamma(n), np.array([-2.6, -1.4])


@function
def polygamma(n: int, x: Any, /) -> Tensor:
    """The n-th derivative of digamma at x, element by element; n is a Python integer."""
    order = options.integer("polygamma", "n", n)
    if order < 0:
        raise ArgumentError(f"polygamma: n must be 0 or more; got {order}")
    if order > MOST_ORDER:
        raise ArgumentError(f"polygamma: n must be at most {MOST_ORDER}; got {order}")
    return apply(Polygamma(order) if order else DIGAMMA, x)
