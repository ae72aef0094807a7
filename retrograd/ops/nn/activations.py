"""Activations: one slope each. At kinks the slope is the left one, 0 for relu."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import special as numerics
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, op
from retrograd.core.spec import axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, join, logarithmic, magnitude, select
from retrograd.ops.nn.normal_law import lowered, normal_law

__all__ = [
    "celu",
    "elu",
    "geglu",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
    "swiglu",
]

sigmoid = elementary.sigmoid
softplus = elementary.softplus
logsigmoid = logarithmic.log_sigmoid
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def away(rng: Any, *kinks: float) -> np.ndarray:
    """Values on both sides of the kinks, and not near them, for samples."""
    x = rng.normal(size=(3, 5)) * 3
    for k in kinks:
        x = np.where(np.abs(x - k) < 0.05, k + 0.1, x)
    return x


@op
class Relu(Elementwise):
    """max(x, 0). At 0 the slope is 0; NaN stays NaN."""

    takes = "real"

    def forward(self, x):
        return np.maximum(x, 0)

    def jvp(self, dx, out):  # chosen, not multiplied: 0 times an infinity is not 0
        return select.where(out > 0, dx, 0)

    def vjp(self, g, out):
        return select.where(out > 0, g, 0)

    def lower(self, k, x):
        return k.maximum(x, 0)

    @staticmethod
    def samples(rng):
        yield Relu(), away(rng, 0)
        yield Relu(), np.asarray(1.5)
        yield Relu(), np.zeros((0, 2))


def relu(x: Any, /) -> Tensor:
    """max(x, 0), element by element."""
    return apply(Relu(), x)


def relu6(x: Any, /) -> Tensor:
    """x between 0 and 6; the slope passes at both bounds, as `clip` does."""
    return select.clip(x, 0, 6)


def leaky_relu(x: Any, /, *, slope: float = 0.01) -> Tensor:
    """x where it is positive, else slope * x. At 0 the slope is `slope`."""
    x = lift(x)
    return select.where(x > 0, x, x * slope)


def prelu(x: Any, slope: Any, /) -> Tensor:
    """leaky_relu with a learnt slope, one number or one for each channel (the last axis)."""
    x, slope = lift(x), lift(slope)
    if slope.shape not in ((), (1,), x.shape[-1:]):
        raise ShapeError(
            f"prelu: slope {slope.shape} must be one number or one for each of the "
            f"{x.shape[-1] if x.ndim else 0} channels of x {x.shape}"
        )
    return select.where(x > 0, x, x * slope)


@op
class Elu(Elementwise):
    """x where it is positive, else alpha * (exp(x) - 1). At 0 the slope is 1."""

    alpha: float = 1.0
    takes = "floating"

    def forward(self, x):
        return np.where(x > 0, x, np.asarray(self.alpha, x.dtype) * np.expm1(np.minimum(x, 0)))

    def slope(self, x):
        steep = self.alpha * elementary.exp(select.minimum(x, 0.0))
        return select.where(x > 0, x * 0 + 1, steep)

    def lower(self, k, x):
        return k.where(x > 0, x, self.alpha * k.expm1(k.minimum(x, 0)))

    @staticmethod
    def samples(rng):
        yield Elu(), away(rng, 0)
        yield Elu(0.5), away(rng, 0)


def elu(x: Any, /, *, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    return apply(Elu(float(alpha)), x)


def celu(x: Any, /, *, alpha: float = 1.0) -> Tensor:
    """elu that is smooth for every alpha: alpha * elu(x / alpha)."""
    if not alpha:
        raise ArgumentError("celu: alpha must not be 0, x is divided by it")
    x = lift(x)
    return select.where(x > 0, x, alpha * elu(select.minimum(x, 0.0) / alpha))


def selu(x: Any, /) -> Tensor:
    """elu with the scale that keeps mean 0 and variance 1 through layers."""
    return SELU_SCALE * elu(x, alpha=SELU_ALPHA)


@op
class NormalLaw(Elementwise):
    """The normal law to the accuracy of its dtype: what gelu's slope is made of."""

    takes = "floating"

    def forward(self, x):
        return normal_law(x)

    def slope(self, x):
        return elementary.exp(x * x * -0.5) * ROOT_2PI

    def lower(self, k, x):
        return lowered(k, x)

    @staticmethod
    def samples(rng):
        yield NormalLaw(), rng.normal(size=(3, 4)) * 2


ROOT_2PI = float(1 / np.sqrt(2 * np.pi))


@op
class Gelu(Elementwise):
    """x * Phi(x), with Phi the normal law; or its tanh approximation."""

    approximate: bool = False
    takes = "floating"

    def forward(self, x):
        if self.approximate:
            return x * numerics.expit(_twice_inner(x))
        return x * normal_law(x)

    def slope(self, x):
        if not self.approximate:
            return apply(NormalLaw(), x) + x * elementary.exp(x * x * -0.5) * ROOT_2PI
        s = sigmoid(_twice_inner(x))
        return s + x * s * (1 - s) * (_ROOT * (2 + 6 * 0.044715 * (x * x)))

    def lower(self, k, x):
        if self.approximate:
            return x / (1 + k.exp(-_twice_inner(x)))
        return x * lowered(k, x)

    @staticmethod
    def samples(rng):
        for approximate in (False, True):
            yield Gelu(approximate), rng.normal(size=(3, 4)) * 2


_ROOT = float(np.sqrt(2 / np.pi))


def _twice_inner(x):
    return (2 * _ROOT) * (x + 0.044715 * (x * x * x))


def gelu(x: Any, /, *, approximate: bool = False) -> Tensor:
    """x times the normal distribution function of x; `approximate` is the tanh form."""
    return apply(Gelu(bool(approximate)), x)


@op
class Silu(Elementwise):
    """x * sigmoid(x)."""

    takes = "floating"

    def forward(self, x):
        return x * numerics.expit(x)

    def slope(self, x):
        s = sigmoid(x)
        return s + x * (s * (1 - s))

    def lower(self, k, x):
        return k.silu(x)

    @staticmethod
    def samples(rng):
        yield Silu(), rng.normal(size=(3, 4)) * 3


def silu(x: Any, /) -> Tensor:
    """x * sigmoid(x), also called swish."""
    return apply(Silu(), x)


@op
class Mish(Elementwise):
    """x * tanh(softplus(x))."""

    takes = "floating"

    def forward(self, x):
        return x * np.tanh(np.logaddexp(x, 0).astype(x.dtype, copy=False))

    def slope(self, x):
        t = elementary.tanh(softplus(x))
        return t + x * (1 - t * t) * sigmoid(x)

    def lower(self, k, x):
        return x * k.tanh(k.maximum(x, 0) + k.log1p(k.exp(-k.abs(x))))

    @staticmethod
    def samples(rng):
        yield Mish(), rng.normal(size=(3, 4)) * 3


def mish(x: Any, /) -> Tensor:
    """x * tanh(softplus(x))."""
    return apply(Mish(), x)


def hardsigmoid(x: Any, /) -> Tensor:
    """sigmoid in three straight pieces: (x + 3) / 6 between 0 and 1."""
    return select.clip(lift(x) / 6 + 0.5, 0, 1)


def hardswish(x: Any, /) -> Tensor:
    """x * hardsigmoid(x)."""
    x = lift(x)
    return x * hardsigmoid(x)


@op
class Softsign(Elementwise):
    """x / (1 + |x|)."""

    takes = "floating"

    def forward(self, x):
        return x / (1 + np.abs(x))

    def slope(self, x):
        d = 1 + magnitude.abs(x)
        return 1 / (d * d)

    def lower(self, k, x):
        return x / (1 + k.abs(x))

    @staticmethod
    def samples(rng):
        yield Softsign(), away(rng, 0)


def softsign(x: Any, /) -> Tensor:
    """x / (1 + |x|)."""
    return apply(Softsign(), x)


def _halves(who: str, x: Any, axis: int) -> tuple[Tensor, Tensor]:
    x = lift(x)
    axis = axis_index(who, axis, x.ndim)
    if x.shape[axis] % 2:
        raise ShapeError(f"{who}: axis {axis} of x {x.shape} must have an even length")
    first, second = join.split(x, 2, axis=axis)
    return first, second


def glu(x: Any, /, *, axis: int = -1) -> Tensor:
    """The first half of x along `axis`, gated by the sigmoid of the second."""
    value, gate = _halves("glu", x, axis)
    return value * sigmoid(gate)


def swiglu(gate: Any, value: Any = None, /, *, axis: int = -1) -> Tensor:
    """silu(gate) * value; of one tensor, its first half along `axis` is the gate."""
    if value is None:
        gate, value = _halves("swiglu", gate, axis)
    return silu(gate) * value


def geglu(
    gate: Any, value: Any = None, /, *, axis: int = -1, approximate: bool = False
) -> Tensor:
    """gelu(gate) * value; of one tensor, its first half along `axis` is the gate."""
    if value is None:
        gate, value = _halves("geglu", gate, axis)
    return gelu(gate, approximate=approximate) * value
