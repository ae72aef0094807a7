"""A vjp from a jvp, and a jvp from a vjp: both by transposing a linear map with a tape.

The jvp is linear in the tangents, so its transpose is the vjp of it at any point, zero for
one. The vjp is linear in the cotangents, and the transpose of the transpose is the jvp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.autodiff.forward import fill
from retrograd.autodiff.reverse import flat_vjp
from retrograd.core import dtype as dt
from retrograd.core.interpret import DERIVED, PURE, RAW, current, using
from retrograd.core.op import FUNCTIONS
from retrograd.core.rules import Keep, Recipe, Rule
from retrograd.core.tensor import Tensor

if TYPE_CHECKING:
    from retrograd.core.op import Op


class PullFromPush:
    """The reverse recipe of an op that has only a jvp: keeps inputs and outputs."""

    def __init__(self, mask: int) -> None:
        self.mask = mask

    keeps = ()

    def keep(self, values: Any) -> tuple[Any, ...]:
        """Everything: the jvp's own keeps are looked up when it runs."""
        return tuple(values)

    def pull(self, op: Op, g: Any, kept: Any, count: int) -> list[Any]:
        """Transpose the jvp."""
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            values = [FUNCTIONS["lift"](v) for v in kept]
            chosen = [i for i in range(count) if self.mask >> i & 1]

            def push(*ts: Any) -> list[Any]:
                tangents: list[Any] = [None] * count
                for i, t in zip(chosen, ts, strict=True):
                    tangents[i] = t
                recipe = op.ahead(self.mask)
                filled = fill(op, tangents, [v.spec for v in values[:count]])
                out = recipe.push(op, filled, recipe.keep(values))
                return list(out) if isinstance(out, (tuple, list)) else [out]

            _, transpose = flat_vjp(push, [FUNCTIONS["zeros_like"](values[i]) for i in chosen])
            gs = g if isinstance(g, (list, tuple)) else [g]
            found = transpose([None if c is None else FUNCTIONS["lift"](c) for c in gs])
        out: list[Any] = [None] * count
        for i, c in zip(chosen, found, strict=True):
            out[i] = c.array if raw and isinstance(c, Tensor) else c
        return out


class PushFromPull:
    """The forward recipe of an op that has only a vjp."""

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def keep(self, values: Any) -> tuple[Any, ...]:
        """Everything: the vjp's own keeps are looked up when it runs."""
        return tuple(values)

    def push(self, op: Op, tangents: Any, kept: Any) -> Any:
        """Transpose the vjp."""
        count = len(tangents)
        chosen = [i for i in range(count) if self.mask >> i & 1 and tangents[i] is not None]
        outs = kept[count:]
        smooth = [o for o in outs if dt.is_inexact(o.dtype)]

        def pull(*gs: Any) -> list[Any]:
            given = iter(gs)
            full = [next(given) if dt.is_inexact(o.dtype) else None for o in outs]
            recipe = op.reverse(self.mask)
            g = full if len(outs) > 1 else full[0]
            found = recipe.pull(op, g, recipe.keep(kept), count)
            return [found[i] for i in chosen]

        _, transpose = flat_vjp(pull, [FUNCTIONS["zeros_like"](o) for o in smooth])
        found = iter(transpose([tangents[i] for i in chosen]))
        pushed = [next(found) if dt.is_inexact(o.dtype) else None for o in outs]
        return pushed if len(outs) > 1 else pushed[0]


DERIVED["vjp"] = PullFromPush
DERIVED["jvp"] = PushFromPull
__all__ = ["Keep", "PullFromPush", "PushFromPull", "Recipe", "Rule"]
