"""A vjp from a jvp, and a jvp from a vjp: both by transposing a linear map with a tape.

The jvp is linear in the tangents, so its transpose is the vjp of it at any point, zero for
one. The vjp is linear in the cotangents, and the transpose of the transpose is the jvp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.autodiff.forward import fill
from retrograd.autodiff.reverse import flat_vjp
from retrograd.core import dtype as dt
from retrograd.core.interpret import PURE, RAW, current, lift, using
from retrograd.core.op import FUNCTIONS
from retrograd.core.record import DERIVED
from retrograd.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op


def flat(op: Op, values: Any) -> list[Any]:
    """Inputs and outputs in one list, whether the op is variadic or not."""
    return [*values[0], *values[1:]] if op.variadic else list(values)


def nested(op: Op, values: Sequence[Any], count: int) -> tuple[Any, ...]:
    """The reverse of flat."""
    if op.variadic:
        return (tuple(values[:count]), *values[count:])
    return tuple(values)


class PullFromPush:
    """The reverse recipe of an op that has only a jvp: keeps inputs and outputs."""

    keeps = None  # everything: the jvp's own keeps are looked up when it runs

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def keep(self, values: Any) -> tuple[Any, ...]:
        """All values."""
        return tuple(values)

    def pull(self, op: Op, g: Any, kept: Any, count: int) -> list[Any]:
        """Transpose the jvp."""
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            values = [lift(v) for v in flat(op, kept)]
            found = self._transposed(op, g, values, count)
        return [c.array if raw and isinstance(c, Tensor) else c for c in found]

    def _transposed(self, op: Op, g: Any, values: list[Any], count: int) -> list[Any]:
        chosen = [i for i in range(count) if self.mask >> i & 1]
        hot = [i for i, o in enumerate(values[count:]) if dt.is_inexact(o.dtype)]

        def push(*ts: Any) -> list[Any]:
            tangents: list[Any] = [None] * count
            for i, t in zip(chosen, ts, strict=True):
                tangents[i] = t
            recipe = op.ahead(self.mask)
            filled = fill(op, tangents, [v.spec for v in values[:count]])
            out = recipe.push(op, filled, recipe.keep(nested(op, values, count)))
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            zeros = FUNCTIONS["zeros_like"]
            return [zeros(values[count + i]) if outs[i] is None else outs[i] for i in hot]

        zeros = [FUNCTIONS["zeros_like"](values[i]) for i in chosen]
        _, transpose = flat_vjp(push, zeros, current.get())
        gs = g if isinstance(g, (list, tuple)) else [g]
        found = transpose([None if gs[i] is None else lift(gs[i]) for i in hot])
        out: list[Any] = [None] * count
        for i, c in zip(chosen, found, strict=True):
            out[i] = c
        return out


class PullFromExpand:
    """The reverse recipe of a composition that ran as one op: keeps its inputs."""

    keeps = None

    def __init__(self, mask: int, count: int) -> None:
        self.mask, self.count = mask, count

    def keep(self, values: Any) -> tuple[Any, ...]:
        """The inputs: what rules of its ops keep is computed again."""
        return values[: self.count]

    def pull(self, op: Any, g: Any, kept: Any, count: int) -> list[Any]:
        """Differentiate the composition, at its inputs."""
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            values = [lift(v) for v in flat(op, kept)[:count]]
            chosen = [i for i in range(count) if self.mask >> i & 1]

            # where this pass is itself recorded, the inputs are; so the map is taken at zero
            moved = any(v.requires_grad for v in values)

            def composed(*ts: Any) -> list[Any]:
                given = list(values)
                for i, t in zip(chosen, ts, strict=True):
                    given[i] = given[i] + t if moved else t
                found = op.expand(*given)
                return list(found) if isinstance(found, tuple) else [found]

            at = [FUNCTIONS["zeros_like"](values[i]) if moved else values[i] for i in chosen]
            _, transpose = flat_vjp(composed, at, current.get())
            gs = g if isinstance(g, (list, tuple)) else [g]
            found = transpose([None if c is None else lift(c) for c in gs])
        out: list[Any] = [None] * count
        for i, c in zip(chosen, found, strict=True):
            out[i] = c.array if raw and isinstance(c, Tensor) else c
        return out


class PushFromPull:
    """The forward recipe of an op that has only a vjp."""

    keeps = None

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def keep(self, values: Any) -> tuple[Any, ...]:
        """All values."""
        return tuple(values)

    def push(self, op: Op, tangents: Any, kept: Any) -> Any:
        """Transpose the vjp."""
        count = len(tangents)
        values = flat(op, kept)
        outs = values[count:]
        chosen = [i for i in range(count) if self.mask >> i & 1 and tangents[i] is not None]
        hot = [o for o in outs if dt.is_inexact(o.dtype)]
        recipe: Any = op.reverse(self.mask)
        saved = op.save(*values[:count])[1] if op.saves else recipe.keep(kept)  # type: ignore[attr-defined]

        def pull(*gs: Any) -> list[Any]:
            given = iter(gs)
            full = [next(given) if dt.is_inexact(o.dtype) else None for o in outs]
            several = len(outs) > 1 or op.saves
            found = recipe.pull(op, full if several else full[0], saved, count)
            zeros = FUNCTIONS["zeros_like"]
            return [zeros(values[i]) if found[i] is None else found[i] for i in chosen]

        zeros = [FUNCTIONS["zeros_like"](o) for o in hot]
        _, transpose = flat_vjp(pull, zeros, current.get())
        found = iter(transpose([tangents[i] for i in chosen]))
        pushed = [next(found) if dt.is_inexact(o.dtype) else None for o in outs]
        return pushed if len(outs) > 1 or op.saves else pushed[0]


DERIVED["vjp"] = PullFromPush
DERIVED["expand"] = PullFromExpand
DERIVED["jvp"] = PushFromPull
