"""Logarithms of probabilities: x log(y) that is 0 at x = 0, entropy, logit, log_sigmoid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, select

__all__ = ["entr", "expit", "log_sigmoid", "logit", "logsigmoid", "xlog1py", "xlogy"]


@op
class Xlogy(Elementwise):
    """x log(y), and 0 where x is 0: there the slope of y is 0, that of x is 0 if y <= 0."""

    takes = "floating"

    def forward(self, x, y):
        return np.where((x == 0) & (y == y), 0, x * np.log(y))

    def slope_x(self, x, y):
        return elementary.log(select.where((x == 0) & (y <= 0), 1.0, y))

    def slope_y(self, x, y):
        # At x = 0 and y > 0 the quotient is 0 by itself, and its own slopes are right.
        return x / select.where((x == 0) & (y == 0), 1.0, y)

    def lower(self, k, x, y):
        return k.where((x == 0) & (y == y), 0, x * k.log(y))

    @staticmethod
    def samples(rng):
        x, y = rng.normal(size=(2, 3)), rng.uniform(0.5, 2, 3)
        yield Xlogy(), x, y
        yield Xlogy(), np.zeros(3), y
        yield Xlogy(), np.asarray(0.5), y
        yield Xlogy(), np.zeros((0, 3)), y


XLOGY = Xlogy()


@function
def xlogy(x: Any, y: Any, /) -> Tensor:
    """x log(y), element by element, and 0 where x is 0, whatever y (but nan)."""
    return apply(XLOGY, x, y)


@op
class Xlog1py(Elementwise):
    """x log(1 + y), and 0 where x is 0: the slopes there as those of xlogy."""

    takes = "floating"

    def forward(self, x, y):
        return np.where((x == 0) & (y == y), 0, x * np.log1p(y))

    def slope_x(self, x, y):
        return elementary.log1p(select.where((x == 0) & (y <= -1), 0.0, y))

    def slope_y(self, x, y):
        return x / (1 + select.where((x == 0) & (y == -1), 0.0, y))

    def lower(self, k, x, y):
        return k.where((x == 0) & (y == y), 0, x * k.log1p(y))

    @staticmethod
    def samples(rng):
        x, y = rng.normal(size=(2, 3)), rng.uniform(-0.5, 2, 3)
        yield Xlog1py(), x, y
        yield Xlog1py(), np.zeros(3), y
        yield Xlog1py(), np.asarray(0.5), y
        yield Xlog1py(), np.zeros((0, 3)), y


XLOG1PY = Xlog1py()


@function
def xlog1py(x: Any, y: Any, /) -> Tensor:
    """x log(1 + y), element by element, and 0 where x is 0, whatever y (but nan)."""
    return apply(XLOG1PY, x, y)


@function
def entr(x: Any, /) -> Tensor:
    """The entropy -x log(x), element by element: 0 at 0, and -inf below."""
    x = lift(x)
    return select.where(x < 0, -math.inf, 0.0 - xlogy(x, x))  # 0 - 0 is 0, and -(0) is -0


@op
class LogSigmoid(Elementwise):
    """log(sigmoid(x)), without overflow: x itself far below zero."""

    takes = "floating"

    def forward(self, x):
        return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))

    def slope(self, x):
        return elementary.sigmoid(-x)

    def lower(self, k, x):
        return k.minimum(x, 0) - k.log1p(k.exp(-k.abs(x)))

    @staticmethod
    def samples(rng):
        return ((LogSigmoid(), x) for x in elementary.operands(rng, -3, 3, real=True))


LOG_SIGMOID = LogSigmoid()


@function
def log_sigmoid(x: Any, /) -> Tensor:
    """log(sigmoid(x)), element by element, without overflow."""
    return apply(LOG_SIGMOID, x)


@function
def logsigmoid(x: Any, /) -> Tensor:
    """The same as `log_sigmoid`, under PyTorch's name."""
    return apply(LOG_SIGMOID, x)


@op
class Logit(Elementwise):
    """log(p / (1 - p)), the inverse of sigmoid; exact near 1/2."""

    takes = "floating"

    def forward(self, p):
        return _logit(np, p)

    def slope(self, p):
        return 1 / (p * (1 - p))

    def lower(self, k, p):
        return _logit(k, p)

    @staticmethod
    def samples(rng):
        return ((Logit(), p) for p in elementary.operands(rng, 0.1, 0.9, real=True))


LOGIT = Logit()


def _logit(k: Any, p: Any) -> Any:
    # Near 1/2 the two logarithms would cancel; 2p - 1 is exact there.
    return k.where(k.abs(p - 0.5) < 0.25, 2 * k.atanh(2 * p - 1), k.log(p) - k.log1p(-p))


@function
def logit(p: Any, /) -> Tensor:
    """log(p / (1 - p)), element by element: the inverse of sigmoid."""
    return apply(LOGIT, p)


@function
def expit(x: Any, /) -> Tensor:
    """The same as `sigmoid`, under SciPy's name."""
    return elementary.sigmoid(x)
