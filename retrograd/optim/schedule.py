"""Learning rates as functions of the number of steps so far, a number or an integer tensor."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, options, select, trigonometric
from retrograd.optim.base import checked

__all__ = ["constant", "cosine", "linear"]

Schedule = Callable[[Any], Tensor]


def constant(peak: float, /, *, warmup: int = 0) -> Schedule:
    """`peak`, after `warmup` steps that climb to it evenly."""
    return _made("constant", peak, None, warmup, lambda done: done * 0 + 1)


def linear(peak: float, steps: int, /, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """`warmup` steps that climb to `peak`, then evenly down: `end` at step number `steps`."""
    share = _share("linear", peak, end)
    return _made("linear", peak, steps, warmup, lambda done: 1 - (1 - share) * done)


def cosine(peak: float, steps: int, /, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """`warmup` steps that climb to `peak`, then half a cosine: `end` at step number `steps`.

    >>> rate = rg.optim.cosine(0.1, 100, warmup=10)
    >>> [round(float(rate(n)), 3) for n in (0, 9, 10, 55, 100, 200)]
    [0.01, 0.1, 0.1, 0.05, 0.0, 0.0]
    """
    share = _share("cosine", peak, end)

    def fall(done: Any) -> Any:
        return share + (1 - share) * 0.5 * (1 + trigonometric.cos(pi * done))

    return _made("cosine", peak, steps, warmup, fall)


def _share(who: str, peak: Any, end: Any) -> float:
    """The end as a share of the peak."""
    checked(who, "end", end)
    return end / peak if peak else 0.0


def _made(who: str, peak: Any, steps: Any, warmup: Any, fall: Any) -> Schedule:
    peak = checked(who, "peak", peak)
    warmup = options.integer(who, "warmup", warmup, least=0)
    rest = None
    if steps is not None:
        rest = options.integer(who, "steps", steps, least=1) - warmup
        if rest < 1:
            raise ArgumentError(
                f"{who}: {steps} steps must be more than the warmup of {warmup}"
            )

    def schedule(count: Any) -> Tensor:
        """The learning rate after so many steps."""
        n = cast.astype(lift(count), dt.float32)
        done = select.clip((n - warmup) / (rest or 1), 0.0, 1.0)
        climb = select.minimum((n + 1) / max(warmup, 1), 1.0)
        return peak * select.where(n < warmup, climb, fall(done))

    return schedule
