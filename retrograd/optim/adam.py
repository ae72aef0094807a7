"""Adam and AdamW: steps of about lr, whatever the size of the gradients."""

from __future__ import annotations

from math import inf, log
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, elementary, power
from retrograd.optim.base import Optimizer, Rate, absent, beside, bound, checked, rate

__all__ = ["Adam", "AdamW"]


def _betas(who: str, betas: Any) -> tuple[Any, Any]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ArgumentError(f"{who}: betas are a pair, of mean and square; got {betas!r}")
    first, second = (checked(who, "betas", b, below=1.0) for b in betas)
    return first, second


def _gathered(beta: Any, count: Any, dtype: Any) -> Any:
    """1 - beta ** count, the weight of all gradients so far: right also where it is small."""
    number = not isinstance(beta, Tensor)
    slope = (log(beta) if beta else -inf) if number else elementary.log(beta)
    return -elementary.expm1(cast.astype(count, dtype) * slope)


def _scales(rule: Any, lr: Any, count: Any, dtype: Any) -> tuple[Any, ...]:
    """The betas, the rate over the mean's weight, eps; both times the root of the square's.

    rate * mean / (sqrt(square) / root + eps), with one division for each number.
    """
    b1, b2 = (beside(b, dtype) for b in rule.betas)
    root = power.sqrt(_gathered(b2, count, dtype))
    return b1, b2, lr / _gathered(b1, count, dtype) * root, beside(rule.eps, dtype) * root


def _moved(p: Any, g: Any, kept: dict[str, Any], scales: tuple[Any, ...]) -> Any:
    """p less the rate times the mean gradient over the root of the mean square."""
    b1, b2, rate_, eps = scales
    mean = b1 * kept["mean"] + (1 - b1) * g
    square = b2 * kept["square"] + (1 - b2) * (g * g)
    return p - rate_ * (mean / (power.sqrt(square) + eps)), {"mean": mean, "square": square}


class Adam(Optimizer):
    """p - lr * mean / (sqrt(square) + eps), both corrected for their start at 0, as in PyTorch.

    mean and square are running means, by `betas`, of g and its square; weight_decay * p is
    added to g first.
    """

    betas: tuple[Any, Any]
    eps: float | Tensor

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: Any = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        clip: Any = None,
    ) -> None:
        self.lr, self.betas = rate("Adam", lr), _betas("Adam", betas)
        self.eps = checked("Adam", "eps", eps)
        self.weight_decay = checked("Adam", "weight_decay", weight_decay)
        self.clip = bound("Adam", clip)

    def kept(self) -> tuple[str, ...]:
        """Running means of the gradient and of its square."""
        return ("mean", "square")

    def scales(self, lr: Any, count: Any, dtype: Any) -> tuple[Any, ...]:
        """The decay, and what the moments need."""
        return beside(self.weight_decay, dtype), *_scales(self, lr, count, dtype)

    def update(self, p: Any, g: Any, kept: dict[str, Any], scales: tuple[Any, ...]) -> Any:
        """One parameter."""
        decay, *rest = scales
        return _moved(p, g if absent(decay) else g + decay * p, kept, tuple(rest))


class AdamW(Optimizer):
    """Adam whose weight decay stands apart: p * (1 - lr * weight_decay), then Adam's step.

    >>> optimizer = rg.optim.AdamW(1e-3, clip=1.0)
    >>> optimizer
    AdamW(lr=0.001, weight_decay=0.01, clip=1.0, betas=(0.9, 0.999), eps=1e-08)
    """

    betas: tuple[Any, Any]
    eps: float | Tensor

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: Any = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.01,
        clip: Any = None,
    ) -> None:
        self.lr, self.betas = rate("AdamW", lr), _betas("AdamW", betas)
        self.eps = checked("AdamW", "eps", eps)
        self.weight_decay = checked("AdamW", "weight_decay", weight_decay)
        self.clip = bound("AdamW", clip)

    def kept(self) -> tuple[str, ...]:
        """Running means of the gradient and of its square."""
        return ("mean", "square")

    def scales(self, lr: Any, count: Any, dtype: Any) -> tuple[Any, ...]:
        """What is left of a parameter, and what the moments need."""
        decay = beside(self.weight_decay, dtype)
        left = None if absent(decay) else 1 - lr * decay
        return left, *_scales(self, lr, count, dtype)

    def update(self, p: Any, g: Any, kept: dict[str, Any], scales: tuple[Any, ...]) -> Any:
        """One parameter."""
        left, *rest = scales
        return _moved(p if left is None else p * left, g, kept, tuple(rest))
