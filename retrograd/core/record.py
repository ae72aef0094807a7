"""Recording an op on a tape: parents, what is kept, and what stands in for a missing rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.core.errors import DerivativeError, OpError
from retrograd.core.spec import spec_of
from retrograd.core.tape import Joint, Node, Pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from retrograd.core.op import Op

_F32, _F64 = dt.float32, dt.float64


def record(
    op: Op, args: Sequence[Any], values: Any, out: Any, region: Any = None
) -> Node | None:
    """The tape node of an op that just ran on tracked tensors; None if nothing can flow."""
    dtype = out.dtype
    if dtype is not _F32 and dtype is not _F64 and not dt.is_inexact(dtype):
        return None
    parents: Any
    if len(args) == 2 and not op.fixed:  # the hot path: two operands are spelled out
        a, b = parents = args[0]._node, args[1]._node
        mask = 2 if a is None else 1 if b is None else 3
    else:
        parents, mask = track(op, args)
        if not mask:
            return None
    recipe = op._pulls.get(mask) or op.reverse(mask) or no_recipe(op, mask)
    return Node(op, parents, recipe, recipe.keep(values), out.shape, dtype, region)


def track(op: Op, args: Sequence[Any]) -> tuple[list[Node | None], int]:
    """The parents' nodes, None where an input is fixed, and the mask of those that are not."""
    parents: list[Node | None] = [a._node for a in args]
    if op.fixed:
        for i, name in enumerate(op.inputs):
            if name in op.fixed:
                parents[i] = None
    mask = 0
    for i, p in enumerate(parents):
        if p is not None:
            mask |= 1 << i
    return parents, mask


def several(
    op: Op, parents: Any, recipe: Any, kept: Any, results: Sequence[Any], region: Any
) -> None:
    """Give each result of an op with several outputs its place on the tape."""
    if not results:
        return  # an op that only acts: nothing can flow back
    joint = Joint(op, parents, recipe, kept, [r.spec for r in results], region)
    for i, r in enumerate(results):
        if dt.is_inexact(joint.specs[i].dtype):
            r._node = Pick(joint, i)


def packed(
    op: Op, args: Any, arrays: Any, outs: Any, results: Any, region: Any
) -> tuple[Any, ...]:
    """Inputs and outputs as recipes index them; in a region, as cells where there are any."""
    given, made = tuple(arrays), tuple(outs)
    if region is not None:
        given, made = tuple(map(_cell, args, arrays)), tuple(map(_cell, results, outs))
    return (given, *made) if op.variadic else (*given, *made)


def _cell(t: Any, value: Any) -> Any:
    return value if t._cell is None else Deferred(t._cell, value)


class Deferred:
    """A kept value given as a cell; its spec is known without replaying."""

    __slots__ = ("cell", "spec")

    def __init__(self, cell: Any, value: Any) -> None:
        self.cell = cell
        self.spec = spec_of(value)

    @property
    def array(self) -> np.ndarray:
        """The value, replayed if it was dropped."""
        return self.cell.array


def no_recipe(op: Op, mask: int) -> Any:
    """What stands in for a vjp: derived from the jvp, or an error when it is asked for."""
    if op.no_derivative or op.ahead(mask) is None:
        expands = hasattr(op, "expand") and not op.no_derivative
        count = 1 if op.variadic else len(op.inputs)
        return DERIVED["expand"](mask, count) if expands else NoDerivative()
    return DERIVED["vjp"](mask)


DERIVED: dict[
    str, Any
] = {}  # autodiff/derived.py: a vjp from a jvp or an expansion, a jvp from a vjp


class NoDerivative:
    """Keeps nothing, and says why there is no derivative if one is asked for."""

    keeps = ()

    def keep(self, values: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def pull(self, op: Op, g: Any, kept: Any, count: int) -> Any:
        """Refuse."""
        raise no_derivative(op)

    push = pull


def no_derivative(op: Op) -> Exception:
    """The error for an op that has no derivative."""
    if op.no_derivative:
        return DerivativeError(
            f"{op.name} has no derivative: {op.no_derivative}",
            hint=f"rg.stop_gradient({op.name}(...)) to say it is meant as a constant",
        )
    return OpError(f"{type(op).__name__} has neither vjp nor jvp; write one, or no_derivative")
