"""Who runs heavy eager ops: NumPy, or kernels of a room above that registers itself here.

The choice depends on the op and on its operands' shapes, dtypes and strides alone, never on
what ran before: the same call gives the same bits each time, and so does a replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.spec import Spec, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.op import Op

__all__ = ["LIGHT", "HeavyRecipe", "Slot", "heavy", "slot", "taken"]

LIGHT = 1 << 14  # elements: where no operand has as many, the call costs more than it saves


def _nothing(*_given: Any) -> None:
    """What NumPy shall run."""


class Slot:
    """`forward` and `pull` of the executor in place; each returns None for what it leaves."""

    __slots__ = ("forward", "pull")

    def __init__(self) -> None:
        self.forward: Callable[[Op, Sequence[Any]], Any] = _nothing
        self.pull: Callable[..., Any] = _nothing


slot = Slot()


def heavy(op: Op, arrays: Sequence[Any]) -> bool:
    """Whether an op on such operands is large enough for kernels to be asked."""
    for a in arrays:  # half the time of any(), on the way of every op
        if a.size >= LIGHT:
            return True
    return op.grows and _grown(op, arrays)


def _grown(op: Op, arrays: Sequence[Any]) -> bool:
    """Whether a result is large: of an op that says that it may be."""
    found = op.shape(*map(spec_of, arrays))
    return any(s.size >= LIGHT for s in ((found,) if isinstance(found, Spec) else found))


def taken(op: Op, arrays: Sequence[Any], region: Any) -> Any:
    """What kernels make of a heavy op, after room was made for it; None where they do not."""
    if not heavy(op, arrays):
        return None
    if region is not None:
        region.reserve(op, arrays)
    return slot.forward(op, arrays)


class HeavyRecipe:
    """A recipe of an op that was heavy: its rules run as kernels where a pass is on arrays."""

    __slots__ = ("keep", "keeps", "parts", "recipe", "targets")
    raw: Any = None  # says whether the pass is on arrays; interpret.py puts it here

    def __init__(self, recipe: Any, parents: Sequence[Any]) -> None:
        self.recipe = recipe
        self.keep, self.keeps = recipe.keep, recipe.keeps
        self.parts = getattr(recipe, "parts", ())
        self.targets = tuple([None if p is None else (p.shape, p.dtype) for p in parents])

    def pull(self, op: Op, g: Any, kept: Any, count: int) -> Any:
        """The cotangents of the inputs, None where not asked for."""
        if HeavyRecipe.raw():
            found = slot.pull(self.recipe, op, g, kept, self.targets)
            if found is not None:
                return found
        return self.recipe.pull(op, g, kept, count)
