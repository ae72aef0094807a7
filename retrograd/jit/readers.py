"""How many steps read each value, while steps are finished one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Readers"]


class Readers:
    """What each step reads, counted by value."""

    def __init__(
        self, steps: Sequence[Any], reads: Callable[[Any], set[int]], outputs: Iterable[int]
    ) -> None:
        self.steps, self.reads, self.outputs = steps, reads, frozenset(outputs)
        self.found = [reads(s) for s in steps]
        self.count = Counter(v for some in self.found for v in some)

    def again(self, at: int) -> None:
        """A step was built anew."""
        self.count.subtract(self.found[at])
        self.found[at] = self.reads(self.steps[at])
        self.count.update(self.found[at])

    def outside(self, at: int, values: Iterable[int]) -> set[int]:
        """Those values of a step that another one reads, or that are outputs."""
        own = self.found[at]
        return {v for v in values if v in self.outputs or self.count[v] > (v in own)}
