"""Gamma draws and what is made of them: beta, Dirichlet. Differentiable in their parameters.

A gamma draw comes from a sampler that rejects: moved a little, the parameter may change what
is accepted, so that differences of the sampler say nothing. Its derivative is that of the
quantile instead (implicit reparameterisation): the sample moves so that the share of the law
below it stays as it is. That is `RandomGamma.law`, and the tests hold the derivative to it.
"""

from __future__ import annotations

from math import comb, factorial
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits
from retrograd.core import rng_gamma, special
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, logsumexp, select, shape
from retrograd.ops import random as keyed

_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


@op
class GammaSlope(Elementwise):
    """The slope in a of y = log(a gamma draw), differentiated `in_a` and `in_y` times."""

    in_a: int = 0
    in_y: int = 0
    takes = "floating"
    host = "its quadrature is NumPy code, in float64"

    def forward(self, a, y):
        dtype = y.dtype
        a, y = np.broadcast_arrays(a, y)
        flat_a, flat_y = (v.reshape(-1).astype(np.float64) for v in (a, y))
        out = np.empty(flat_y.size)
        for first in range(0, out.size, _CHUNK):
            part = np.arange(first, min(first + _CHUNK, out.size))
            small = flat_y[part] <= 0
            for chosen, method in ((part[small], _series), (part[~small], _integral)):
                if chosen.size:
                    out[chosen] = method(flat_a[chosen], flat_y[chosen], self.in_a, self.in_y)
        return out.reshape(y.shape).astype(dtype)

    def slope_a(self, a, y):
        return apply(GammaSlope(self.in_a + 1, self.in_y), a, y)

    def slope_y(self, a, y):
        return apply(GammaSlope(self.in_a, self.in_y + 1), a, y)

    @staticmethod
    def samples(rng):
        a, y = rng.uniform(0.3, 5, (3, 1)), rng.uniform(-2, 2, (1, 4))
        for in_a, in_y in ((0, 0), (1, 0), (0, 1)):
            yield GammaSlope(in_a, in_y), a, y
        yield GammaSlope(), np.asarray(0.01), np.asarray(-90.0)
        yield GammaSlope(), np.ones((0, 2)), np.ones(2)


GAMMA_SLOPE = GammaSlope()


def _series(a: np.ndarray, y: np.ndarray, i: int, j: int) -> np.ndarray:
    """For y <= 0: the sum of e**(k y) / (a ... (a + k)) * (digamma(a + k + 1) - y)."""
    x, power, total = np.exp(y), 1.0, 0.0
    sums = [0.0] * i  # over l <= k, of (a + l)**-m: the logarithm's derivatives, but for a factor
    psi = [special.polygamma(m, a) for m in range(i + 1)]
    heads = [1.0]  # the a-derivatives of 1 / (a ... (a + k))
    scale = 1.0
    for k in range(23):  # 1 / 22! is below the last bit
        at = a + k
        scale = scale / at
        sums = [s + at ** -(m + 1) for m, s in enumerate(sums)]
        psi = [p + (-1) ** m * factorial(m) / at ** (m + 1) for m, p in enumerate(psi)]
        heads = [scale]
        for n in range(i):
            bell = ((-1) ** (m + 1) * factorial(m) * sums[m] for m in range(n + 1))
            heads.append(sum(comb(n, m) * b * heads[n - m] for m, b in enumerate(bell)))
        tails = [psi[0] - y, *psi[1:]]
        whole = sum(comb(i, m) * heads[i - m] * tails[m] for m in range(i + 1))
        lost = j * k ** (j - 1) * heads[i] if j else 0.0
        total = total + power * (k**j * whole - lost)
        power = power * x
    return total


def _integral(a: np.ndarray, y: np.ndarray, i: int, j: int) -> np.ndarray:
    """For y > 0: the integral of (log t - digamma(a)) over a tail of the density."""
    # With t = e**(y + v), the density at t relative to that at e**y is e**(a v + w) / t, where
    # w = -e**y (e**v - 1). The tail is that on which log t - digamma(a) keeps its sign. Its
    # y-derivatives are Touchard's polynomials of w: w is its own derivative.
    x, psi = np.exp(y), [special.polygamma(m, a) for m in range(i + 1)]
    gap = y - psi[0]
    side = np.where(gap < 0, -1.0, 1.0)
    end = np.sqrt(80 / x)
    for _ in range(6):  # Newton for exponent = -40; convex, so never short of the root
        grown = np.expm1(side * end)
        end = end - (x * grown - side * a * end - 40) / (side * (x * grown + x - a))
    total = np.zeros_like(x)
    for at, weight in rng_gamma._nodes():
        v = side * end * at
        w = -x * np.expm1(v)
        touchard = [np.ones_like(w)]
        for n in range(j):
            touchard.append(w * sum(comb(n, m) * t for m, t in enumerate(touchard)))
        head = (gap + v) * v**i - sum(
            comb(i, m) * psi[m] * v ** (i - m) for m in range(1, i + 1)
        )
        lost = j * v**i * touchard[j - 1] if j else 0.0
        total += weight * np.exp(a * v + w) * (head * touchard[j] + lost)
    return side * end * total
