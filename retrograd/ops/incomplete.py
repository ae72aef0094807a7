"""Incomplete gamma and beta functions, beta, zeta: the distribution functions of statistics.

SciPy, an extra, computes the incomplete functions in `forward`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import special as numerics
from retrograd.core.extras import extra
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, op
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, logarithmic, special, special_loops
from retrograd.ops.random_gamma import GAMMA_SLOPE

__all__ = ["beta", "betainc", "betaln", "gammainc", "gammaincc", "zeta"]


def scipy_special(who: str) -> Any:
    """SciPy's special functions."""
    return extra(who, "scipy.special", "scipy")


def _density(a: Any, x: Any) -> Any:
    """x**(a - 1) exp(-x) / gamma(a), the derivative of gammainc in x."""
    return elementary.exp(logarithmic.xlogy(a - 1, x) - x - special.lgamma(a))


@op
class Gammainc(Elementwise):
    """The share of gamma(a) that the integral of t**(a-1) exp(-t) from 0 to x is."""

    takes = "floating"
    host = "SciPy"

    def forward(self, a, x):
        return scipy_special("gammainc").gammainc(a, x).astype(x.dtype, copy=False)

    def slope_a(self, a, x):  # along a contour of the law, log x moves by gamma_slope
        return -(_density(a, x) * x * apply(GAMMA_SLOPE, a, elementary.log(x)))

    def slope_x(self, a, x):
        return _density(a, x)

    @staticmethod
    def samples(rng):
        yield Gammainc(), rng.uniform(0.5, 4, (3, 1)), rng.uniform(0.3, 5, (1, 4))
        yield Gammainc(), np.asarray(2.5), np.asarray(1.5)


def gammainc(a: Any, x: Any, /) -> Tensor:
    """The lower incomplete gamma function over gamma(a): the law of a gamma distribution."""
    return apply(Gammainc(), a, x)


@op
class Gammaincc(Elementwise):
    """1 - gammainc(a, x), right where that is small."""

    takes = "floating"
    host = "SciPy"

    def forward(self, a, x):
        return scipy_special("gammaincc").gammaincc(a, x).astype(x.dtype, copy=False)

    def slope_a(self, a, x):
        return _density(a, x) * x * apply(GAMMA_SLOPE, a, elementary.log(x))

    def slope_x(self, a, x):
        return -_density(a, x)

    @staticmethod
    def samples(rng):
        yield Gammaincc(), rng.uniform(0.5, 4, (3, 1)), rng.uniform(0.3, 5, (1, 4))


def gammaincc(a: Any, x: Any, /) -> Tensor:
    """The upper incomplete gamma function over gamma(a)."""
    return apply(Gammaincc(), a, x)


def betaln(a: Any, b: Any, /) -> Tensor:
    """log |beta(a, b)|."""
    a, b = lift(a), lift(b)
    return special.lgamma(a) + special.lgamma(b) - special.lgamma(a + b)


def beta(a: Any, b: Any, /) -> Tensor:
    """gamma(a) gamma(b) / gamma(a + b), for positive a and b."""
    return elementary.exp(betaln(a, b))


@op
class Betainc(Elementwise):
    """The share of beta(a, b) that the integral of t**(a-1) (1-t)**(b-1) from 0 to x is."""

    refused = dict.fromkeys("ab", "it has no closed form")
    takes = "floating"
    host = "SciPy"

    def forward(self, a, b, x):
        return scipy_special("betainc").betainc(a, b, x).astype(x.dtype, copy=False)

    def slope_x(self, a, b, x):
        power = logarithmic.xlogy(a - 1, x) + logarithmic.xlog1py(b - 1, -x)
        return elementary.exp(power - betaln(a, b))

    @staticmethod
    def samples(rng):
        yield Betainc(), rng.uniform(1, 3, 4), rng.uniform(1, 3, 4), rng.uniform(0.1, 0.9, 4)


def betainc(a: Any, b: Any, x: Any, /) -> Tensor:
    """The law of a beta distribution at x; differentiable in x, not in a and b."""
    return apply(Betainc(), a, b, x)


@op
class Zeta(Elementwise):
    """The sum over k >= 0 of (q + k)**-s, for s > 1 and q > 0. Differentiable in q."""

    refused = dict.fromkeys("s", "it has no closed form")
    takes = "floating"

    def forward(self, s, q):
        dtype, s, q = q.dtype, s.astype(np.float64), q.astype(np.float64)
        return numerics.zeta(s, q).astype(dtype)

    def slope_q(self, s, q):
        return -s * apply(self, s + 1, q)

    def lower(self, k, s, q, out):
        s, q = (k.broadcast(v, out.shape) for v in (s, q))
        for row in k.rows(q, out, axis=()):
            a, b = (k.cast(v[row], dt.float64) for v in (s, q))
            out[row] = k.cast(special_loops.zeta(k, a, b), out.dtype)

    @staticmethod
    def samples(rng):
        yield Zeta(), rng.uniform(1.5, 4, (3, 1)), rng.uniform(0.5, 3, (1, 4))


def zeta(s: Any, q: Any = 1.0, /) -> Tensor:
    """Hurwitz's zeta function, differentiable in q; Riemann's for q = 1."""
    return apply(Zeta(), s, q)
