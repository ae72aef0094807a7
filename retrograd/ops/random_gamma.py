"""Gamma draws and what is made of them: beta, Dirichlet. Differentiable in their parameters.

A gamma draw comes from a sampler that rejects: moved a little, the parameter may change what
is accepted, so that differences of the sampler say nothing. Its derivative is that of the
quantile instead (implicit reparameterisation): the sample moves so that the share of the law
below it stays as it is. That is `RandomGamma.law`, and the tests hold the derivative to it.
"""

from __future__ import annotations

from functools import partial
from math import comb, factorial
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits_of
from retrograd.core import rng_gamma, special
from retrograd.core import rng_tries as tries
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, logsumexp, options, required, select, special_loops
from retrograd.ops import random as laws
from retrograd.ops import random_keys as keys

_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


@op
class GammaSlope(Elementwise):
    """The slope in a of y = log(a gamma draw), differentiated `in_a` and `in_y` times."""

    in_a: int = 0
    in_y: int = 0
    takes = "floating"

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

    def lower(self, k, a, y, out):
        a, y = (k.broadcast(v, out.shape) for v in (a, y))
        for row in k.rows(y, out, axis=()):
            size, draw = (k.cast(v[row], dt.float64) for v in (a, y))
            found = special_loops.gamma_slope(k, size, draw, self.in_a, self.in_y)
            out[row] = k.cast(found, out.dtype)

    def slope_a(self, a, y):
        return apply(GammaSlope(self.in_a + 1, self.in_y), a, y)

    def slope_y(self, a, y):
        return apply(GammaSlope(self.in_a, self.in_y + 1), a, y)

    @staticmethod
    def samples(rng):
        a, y = rng.uniform(0.3, 5, (3, 1)), rng.uniform(-2, 2, (1, 4))
        for in_a, in_y in ((0, 0), (1, 0), (0, 1)):
            yield GammaSlope(in_a, in_y), a, y
        yield GammaSlope(), np.asarray(0.6), np.asarray(-30.0)
        yield GammaSlope(), np.ones((0, 2)), np.ones(2)


GAMMA_SLOPE = GammaSlope()


def _series(a: np.ndarray, y: np.ndarray, i: int, j: int) -> np.ndarray:
    """For y <= 0: the sum of e**(k y) / (a ... (a + k)) * (digamma(a + k + 1) - y)."""
    x, total = np.exp(y), np.zeros_like(y)
    power, scale = np.ones_like(y), np.ones_like(y)
    psi = [special.polygamma(m, a + 1) for m in range(i + 1)]
    sums = [np.zeros_like(y)] * i  # over l <= k, of (a + l)**-1, (a + l)**-2, ...
    for k in range(23):  # 1 / 22! is below the last bit
        at = a + k
        scale = scale / at
        sums = [s + at ** -(m + 1) for m, s in enumerate(sums)]
        heads = [scale]  # the a-derivatives of 1 / (a ... (a + k)), by its logarithm's
        for n in range(i):
            logs = [(-1) ** (m + 1) * factorial(m) * sums[m] for m in range(n + 1)]
            heads.append(sum(comb(n, m) * logs[m] * heads[n - m] for m in range(n + 1)))
        tails = [psi[0] - y, *psi[1:]]
        whole = sum(comb(i, m) * heads[i - m] * tails[m] for m in range(i + 1))
        total = total + power * (k**j * whole)
        if j:
            total = total - power * (j * k ** (j - 1) * heads[i])
        power = power * x
        psi = [p + (-1) ** m * factorial(m) / (at + 1) ** (m + 1) for m, p in enumerate(psi)]
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
        moved = sum(comb(i, m) * psi[m] * v ** (i - m) for m in range(1, i + 1))
        inner = ((gap + v) * v**i - moved) * touchard[j]
        if j:
            inner += j * v**i * touchard[j - 1]
        total += weight * np.exp(a * v + w) * inner
    return side * end * total


@op
class RandomGamma(keys.Keyed):
    """Gamma draws of shape parameter a and scale 1, or their logarithms."""

    log_space: bool = False
    uniform = True
    takes = "floating"

    def shape(self, key: Spec, a: Spec) -> Spec:
        return keys.beside("random.gamma", key, a)

    def forward(self, key, a):
        def draw(key, a):
            return bits_of.gamma(key, a, a.shape, a.dtype, log_space=self.log_space)

        return keys.each(self, draw, key, a)

    def lower(self, k, key, a, out):
        drawn = keys.Tries(k, key, a, a.dtype)
        for row in k.rows(a, out, axis=()):
            good = (a[row] > 0) & (a[row] < np.inf)
            size = k.required(a[row], good, "random.gamma: a must be finite and > 0")
            centre = tries.gamma_centre(k, size)
            x = drawn.first(row, centre, partial(_gamma_try, k, centre))
            out[row] = tries.gamma_scaled(
                k, size, x, drawn.words(row), log_space=self.log_space
            )

    def jvp(self, da, a, out):
        return da * self.path(a, out)

    def vjp(self, g, a, out):
        return g * self.path(a, out)

    def path(self, a, out):
        """How the sample moves with a: where it is too small for a float, not at all."""
        if self.log_space:
            return apply(GAMMA_SLOPE, a, out)
        least = float(dt.finfo(out.dtype).tiny)
        logs = elementary.log(select.where(out > least, out, least))
        return out * apply(GAMMA_SLOPE, a, logs)

    def law(self, key, a, out):
        y = out if self.log_space else np.log(out)
        term = np.exp(a * y - np.exp(y) - special.gammaln(a + 1))
        total = term
        for k in range(1, 120):  # enough for the samples below
            term = term * np.exp(y) / (a + k)
            total = total + term
        return total

    @staticmethod
    def samples(rng):
        for log_space in (False, True):
            yield RandomGamma(log_space), keys.some(rng), rng.uniform(0.4, 6, (3, 2))
            yield RandomGamma(log_space), keys.some(rng), np.asarray(1.5)
            yield RandomGamma(log_space), keys.some(rng), np.ones((0, 2))
        yield RandomGamma(), keys.some(rng, 2), rng.uniform(0.4, 6, (2, 3))

    @staticmethod
    def refuses(rng):
        yield RandomGamma(), keys.some(rng), np.array([1.0, 0.0]), "a must be finite and > 0"
        yield RandomGamma(), keys.some(rng, 2), np.ones(3), "key (2, 2) and a (3,)"
        yield RandomGamma(), np.zeros(2), np.ones(3), "a key is uint32 of shape (2,)"


def _gamma_try(k: Any, centre: Any, one: Any, other: Any) -> Any:
    return tries.gamma_try(k, one, other, centre)


DRAW, LOG_DRAW = RandomGamma(), RandomGamma(log_space=True)


def gamma(
    key: Any, a: Any, shape: Any = None, *, scale: Any = 1.0, dtype: Any = None
) -> Tensor:
    """Numbers of the gamma distribution of shape parameter a > 0, differentiable in it.

    The derivative is implicit: each number moves with `a` so that the share of the law below
    it stays. Where a small `a` makes numbers too small for a float they are 0, and so is it.
    """
    who = "random.gamma"
    to, dtype = laws.plan(who, shape, dtype, a=a, scale=scale)
    scale = required.within(who, "scale", scale)
    draw = apply(DRAW, keys.key_of(who, key), laws.repeat(a, to, dtype))
    return laws.placed(draw, 0, scale)


def beta(key: Any, a: Any, b: Any, shape: Any = None, *, dtype: Any = None) -> Tensor:
    """Numbers of the beta distribution, a > 0 and b > 0, differentiable in both."""
    who = "random.beta"
    to, dtype = laws.plan(who, shape, dtype, a=a, b=b)
    a, b = (required.within(who, n, v, above=True) for n, v in (("a", a), ("b", b)))
    key = keys.key_of(who, key)
    one, other = (
        apply(LOG_DRAW, keys.fold_in(key, i), laws.repeat(v, to, dtype))
        for i, v in enumerate((a, b))
    )
    return elementary.sigmoid(one - other)  # in logarithms, where no draw is too small


def dirichlet(key: Any, alpha: Any, shape: Any = None, *, dtype: Any = None) -> Tensor:
    """Shares along a last axis that sum to 1, of the Dirichlet distribution.

    `alpha` has a parameter > 0 for each share along its last axis, and is differentiated;
    `shape` is that of the result without the last axis, by default as alpha has it.
    """
    who = "random.dirichlet"
    alpha = lift(alpha)
    if not alpha.ndim:
        raise ShapeError(f"{who}: alpha needs a last axis, one parameter for each share")
    if shape is not None:
        shape = (*options.sizes(who, shape), alpha.shape[-1])
    to, dtype = laws.plan(who, shape, dtype, alpha=alpha)
    alpha = required.within(who, "alpha", alpha, above=True)
    logs = apply(LOG_DRAW, keys.key_of(who, key), laws.repeat(alpha, to, dtype))
    return elementary.exp(logs - logsumexp.logsumexp(logs, axis=-1, keepdims=True))
