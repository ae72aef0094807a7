"""checkpoint(f): keep the inputs of f, compute the rest again when a derivative needs it."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from retrograd.core import tree
from retrograd.core.op import function
from retrograd.core.replay import Region, region_now
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["checkpoint"]


@function
def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, keeping none of its intermediate values for the backward pass, only its inputs.

    They are computed again when they are needed, by the same ops on the same arrays, so
    gradients are the same to the bit. f may take and return trees, be nested, capture
    tensors, draw keyed random numbers and have hooks inside; nothing but arithmetic runs
    twice.
    """

    @wraps(f)
    def checkpointed(*args: Any, **options: Any) -> Any:
        outer = region_now.get()
        region = Region(outer)
        token = region_now.set(region)
        try:
            out = f(*args, **options)
        finally:
            region_now.reset(token)
        return tree.map(lambda x: _leave(x, region), out)

    return checkpointed


def _leave(x: Any, region: Region) -> Any:
    """A result of the region: held, or a value of the region around this one."""
    if isinstance(x, Box):
        return x.remake(lambda t: _leave(t, region))
    if not isinstance(x, Tensor):
        return x
    x = x.handle()
    if x._cell is not None and x._cell.step.region is region:
        if region.outer is None:
            x._cell = None
        else:
            x._cell.step.region = region.outer
    return x
