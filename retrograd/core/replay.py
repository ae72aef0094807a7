"""Values that can be dropped and computed again: what checkpoint is made of.

While a Region is open, every op that really computes leaves a Cell: the op, its input
cells, and the index of the output. A tape that keeps a value made inside the region keeps
the cell, not the bytes. When the value is asked for again, the missing ancestors are
replayed in program order: the same ops on the same arrays, so the same bits. Values that
come from outside the region are held as arrays: they are the inputs that a checkpoint keeps.

Nodes of the tape are untouched by any of this, and so is the order in which gradients are
summed. Ops with an ordered effect leave no cell: their results are held, never replayed.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from retrograd.core.quiet import loud, quiet

if TYPE_CHECKING:
    from collections.abc import Callable

region_now: ContextVar[Region | None] = ContextVar("region", default=None)
_serial = count().__next__  # one step, so that threads cannot disturb each other's order


class Region:
    """A stretch of the program whose values are not kept. Regions nest.

    A region with a budget (memory/eager.py) keeps what fits, and is told before anything is
    computed.
    """

    __slots__ = ("loaded", "outer")
    counts: ClassVar[bool] = False  # whether it has a budget

    def __init__(self, outer: Region | None) -> None:
        self.outer = outer
        self.loaded: list[Step] = []

    def encloses(self, other: Region | None) -> bool:
        """Whether `other` is this region or inside it."""
        while other is not None:
            if other is self:
                return True
            other = other.outer
        return False

    def reserve(self, op: Any, arrays: Any) -> None:
        """Before an op runs on arrays: make room for what it will need."""
        if self.outer is not None:
            self.outer.reserve(op, arrays)

    def entered(self, step: Step, cells: list[Cell], values: list[Any]) -> None:
        """After an op ran here for the first time."""
        self.passed(step, values)

    def passed(self, step: Step, values: list[Any]) -> None:
        """Values were made in this region, or in one inside it."""
        if self.outer is not None:
            self.outer.passed(step, values)

    def shell(self, tensor: Any) -> Any:
        """A result of an op that ran here, as the program gets it."""
        return tensor

    def adopt(self, tensor: Any) -> Any:
        """A result of a region inside this one, which is a value of this one from now on."""
        tensor._cell.step.region = self
        return tensor

    def link(self, cell: Cell) -> Cell:
        """A cell as the steps that read it hold it."""
        return cell

    def bring(self, cell: Cell) -> Any:
        """A value that was dropped, replayed with all that it needs."""
        return _replayed(cell)

    def made(self, array: Any) -> None:
        """A new array that no op made."""
        if self.outer is not None:
            self.outer.made(array)

    def ran(self, step: Step) -> None:
        """After an op was replayed here."""
        self.loaded.append(step)
        assert step.values is not None
        self.passed(step, step.values)

    def clear(self) -> None:
        """Drop what was replayed."""
        for step in self.loaded:
            step.values = None
        self.loaded.clear()


def accounting(region: Region | None) -> Any:
    """The region with a budget that a region is, or is in."""
    while region is not None and not region.counts:
        region = region.outer
    return region


def move(old: Region | None, new: Region | None) -> Region | None:
    """Go from one region to another: what was replayed for those that are left is dropped."""
    while old is not None and not old.encloses(new):
        old.clear()
        old = old.outer
    return new


class Step:
    """One op inside a region, with what is needed to run it again."""

    __slots__ = ("cost", "inputs", "op", "region", "serial", "used", "values", "weak")
    compute: ClassVar[Callable[..., Any]]  # run an op on arrays; interpret.py puts it here

    def __init__(self, op: Any, inputs: list[Any], region: Region, values: list[Any]) -> None:
        self.serial = _serial()
        self.op = op
        self.inputs = inputs  # Cells, or arrays from outside the region
        self.region = region
        self.values: list[Any] | None = None
        self.weak = [weakref.ref(v) for v in values]  # free while somebody else holds them
        self.cost = 0.0  # seconds, where a budget wants to know
        self.used = 0  # when it was last asked for

    def alive(self, index: int) -> Any:
        """The value if it still exists somewhere, else None."""
        return self.values[index] if self.values is not None else self.weak[index]()

    def run(self) -> None:
        """Compute the values again; the inputs are there."""
        arrays = [i.array if isinstance(i, Cell) else i for i in self.inputs]
        self.region.reserve(self.op, arrays)
        token = quiet()
        try:
            out = Step.compute(self.op, arrays)
        finally:
            loud(token)
        self.values = [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]
        self.weak = [weakref.ref(v) for v in self.values]
        self.region.ran(self)


class Cell:
    """A value made inside a region: one output of a step."""

    __slots__ = ("__weakref__", "index", "spec", "step")

    def __init__(self, step: Step, index: int, spec: Any = None) -> None:
        self.step = step
        self.index = index
        self.spec = spec  # where it is asked for while the bytes may be gone

    @property
    def array(self) -> np.ndarray:
        """The value, replayed if it was dropped."""
        found = self.step.alive(self.index)
        return self.step.region.bring(self) if found is None else found


def _replayed(wanted: Cell) -> Any:
    todo, seen = [wanted.step], {wanted.step}
    for step in todo:  # grows while it is walked: missing ancestors, without recursion
        for cell in step.inputs:
            new = isinstance(cell, Cell) and cell.step not in seen
            if new and cell.step.alive(cell.index) is None:
                seen.add(cell.step)
                todo.append(cell.step)
    todo.sort(key=lambda s: s.serial)
    for step in todo:
        step.run()
    assert wanted.step.values is not None
    value = wanted.step.values[wanted.index]
    for step in todo:  # a nested region's values are not kept on the way to ours
        if not step.region.encloses(wanted.step.region):
            step.values = None
    return value


def enter(op: Any, inputs: list[Any], values: list[Any], region: Region) -> list[Cell]:
    """Cells for the outputs of an op that just ran on `inputs` (tensors) in `region`."""
    held = [_hold(t, region) for t in inputs]
    step = Step(op, held, region, values)
    cells = [Cell(step, i) for i in range(len(values))]
    region.entered(step, cells, values)
    return cells


def _hold(tensor: Any, region: Region) -> Any:
    cell = tensor._cell
    if cell is not None and cell.step.region.encloses(region):
        return cell.step.region.link(cell)
    return tensor._data if tensor._data is not None else cell.array
