"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, ClassVar

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.optim.base import Optimizer, Rate, absent, beside, bound, checked, rate

__all__ = ["SGD"]


class SGD(Optimizer):
    """p - lr * v, where v = momentum * v + g + weight_decay * p, as in PyTorch.

    Without momentum v is the gradient and nothing is kept. With `nesterov` the step is along
    g + momentum * v.

    >>> optimizer = rg.optim.SGD(0.1, momentum=0.9)
    >>> params = {"w": rg.asarray([1.0, 2.0])}
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.step(params, {"w": rg.asarray([1.0, 1.0])}, state)
    >>> params["w"]
    tensor([0.9, 1.9])
    """

    takes_complex: ClassVar[bool] = True
    momentum: float | Tensor
    nesterov: bool

    def __init__(
        self,
        lr: Rate,
        *,
        momentum: Any = 0.0,
        nesterov: bool = False,
        weight_decay: Any = 0.0,
        clip: Any = None,
    ) -> None:
        self.lr = rate("SGD", lr)
        self.momentum = checked("SGD", "momentum", momentum)
        self.nesterov = bool(nesterov)
        self.weight_decay = checked("SGD", "weight_decay", weight_decay)
        self.clip = bound("SGD", clip)
        if self.nesterov and absent(self.momentum):
            raise ArgumentError("SGD: nesterov looks ahead along the momentum, which is 0")

    def kept(self) -> tuple[str, ...]:
        """The momentum's direction, if there is momentum."""
        return () if absent(self.momentum) else ("velocity",)

    def scales(self, lr: Any, count: Any, dtype: Any) -> tuple[Any, ...]:
        """The rate, the decay and the momentum."""
        return lr, beside(self.weight_decay, dtype), beside(self.momentum, dtype)

    def update(self, p: Any, g: Any, kept: dict[str, Any], scales: tuple[Any, ...]) -> Any:
        """One parameter."""
        lr, decay, momentum = scales
        if not absent(decay):
            g = g + decay * p
        if kept:
            kept = {"velocity": momentum * kept["velocity"] + g}
            g = g + momentum * kept["velocity"] if self.nesterov else kept["velocity"]
        return p - lr * g, kept
