"""prompt: products that let go of more than they make come before what makes more.

The gradient by weights is the last to read a layer's input; the gradient by that input is as
large. In this order the second can lie where the input was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.steps import Call, Product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.steps import Step

__all__ = ["prompt"]

WORTH = 1 << 16  # bytes of the peak of two steps: less is not worth another order
NEAR = 8  # steps that a product may pass


def prompt(graph: Graph, steps: Sequence[Step]) -> list[Step]:
    """The steps in an order that holds less; what they compute does not change."""
    return _Order(graph, steps).run()


class _Order:
    """One run."""

    def __init__(self, graph: Graph, steps: Sequence[Step]) -> None:
        self.graph, self.steps = graph, steps
        self.kept = {*graph.outputs, *range(len(graph.inputs))}
        self.reads = {id(s): _reads(s) for s in steps}
        self.readers: dict[int, list[int]] = {}
        for s, values in self.reads.items():
            for v in values:
                self.readers.setdefault(v, []).append(s)
        self.places: dict[int, int] = {}  # of the steps that are in order

    def run(self) -> list[Step]:
        """Step after step, each as early as it is good."""
        done: list[Step] = []
        for step in self.steps:
            at = len(done)
            while at > max(0, len(done) - NEAR) and self._better(done[at - 1], step, at - 1):
                at -= 1
            done.insert(at, step)
            self.places.update((id(done[i]), i) for i in range(at, len(done)))
        return done

    def _better(self, before: Step, step: Step, at: int) -> bool:
        """Whether a product had better come before the step at a place.

        Where a product writes over a donated input, all that reads it must stay before.
        """
        if not isinstance(step, Product) or step.apart or isinstance(before, Call):
            return False
        if isinstance(before, Product) and before.apart:
            return False
        if self.reads[id(step)] & set(before.writes):
            return False
        return self._peak(step, before, at) + WORTH <= self._peak(before, step, at)

    def _peak(self, first: Any, second: Any, at: int) -> int:
        """Bytes at most that two steps from a place on add to what is there before them."""
        made = self._bytes(first.writes)
        gone = [v for v in self.reads[id(first)] - self.kept if self._last(v, first, at)]
        return max(made, made - self._bytes(gone) + self._bytes(second.writes))

    def _last(self, value: int, step: Any, at: int) -> bool:
        """Whether nothing but a step reads a value from a place on."""
        return all(r == id(step) or self.places.get(r, at) < at for r in self.readers[value])

    def _bytes(self, values: Any) -> int:
        return sum(self.graph.specs[v].nbytes for v in values)


def _reads(step: Any) -> set[int]:
    return set(step.inputs) if isinstance(step, Call) else set(step.reads)
