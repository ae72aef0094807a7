"""What products call for while they compute: what the product after them reads.

Where a program's arrays are more than the near caches hold, each product would wait for its
weights, or for what the forward pass kept for it. The one before it has time to call for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.steps import Product

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["called_for"]

FAR = 4 << 20  # bytes of a program's arrays that near caches do not hold
MUCH = 512 << 10  # bytes that would push out of them what is being worked with


def called_for(routine: Any, runs: Sequence[int]) -> dict[int, int]:
    """For runs of steps that are products: the value that the next of them has from afar."""
    specs, given = routine.graph.specs, range(len(routine.graph.inputs))
    if routine.size + sum(specs[v].nbytes for v in given) < FAR:
        return {}
    steps = [routine.steps[n] for n in runs]
    found: dict[int, int] = {}
    at = [t for t, s in enumerate(steps) if isinstance(s, Product)]
    for t, then in zip(at, [*at[1:], *at[:1]], strict=True):
        # after the last one a program is likely called again
        between = steps[t:then] if t < then else steps[t:] + steps[:then]
        near = {v for s in between for values in routine.traffic(s) for v in values}
        for v in (steps[then].b.value, steps[then].a.value):
            if v not in near and specs[v].nbytes <= MUCH:
                found.setdefault(t, v)
    return found
