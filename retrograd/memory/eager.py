"""rg.budget: eager code within some bytes. Values are dropped, and come back when asked for.

The block is a region (core/replay.py): every op leaves what is needed to run it again, so any
value that an op made can go. Before an op runs, room is made for its results and workspace;
what goes first is cheap to bring back, large, and long not used. Where a file is allowed, what
is quicker to read than to make again goes there.
"""

from __future__ import annotations

import time
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from retrograd.core.errors import BudgetError
from retrograd.core.op import FUNCTIONS, Elementwise
from retrograd.core.replay import Cell, Region, Step, accounting, region_now
from retrograd.core.spec import Spec, spec_of
from retrograd.memory.ledger import PROCESS, Ledger, Stats
from retrograd.memory.sizes import bytes_of, room_for_loops, shown
from retrograd.memory.spill import directory_of, shelf, solid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.memory.spill import Filed

__all__ = ["Budgeted", "budget", "ledger_now", "stats", "track"]

ledger_now: ContextVar[Ledger | None] = ContextVar("ledger", default=None)
_THRASH = 100_000  # replays for one value: more, and nothing gets done
_DISK = 1e-9  # seconds that a byte takes to a file or back, on a machine that is nobody's
_CHAIN = 64  # ops that are gone, and are looked at to say what a value costs


class _Link(Cell):
    """A cell as a step that reads it holds it: it does not keep the value."""

    __slots__ = ()


class _Back:
    """In place of an op whose values are in a file: to run it is to read them."""

    draws = grows = False
    bodied, effect = True, ""

    def __init__(self, name: str, filed: Filed, specs: list[Spec], before: Any) -> None:
        self.name, self.filed, self.specs = name, filed, specs
        self.before = before  # a weak reference to what was put there before: read after it

    def shape(self) -> tuple[Spec, ...]:
        """What is in the file."""
        return tuple(self.specs)

    def workspace(self) -> int:
        """Nothing."""
        return 0

    def forward(self) -> tuple[Any, ...]:
        """The values; backward passes ask for the ones put there before next."""
        found = self.filed.get()
        before = self.before and self.before()
        if before is not None:
            before.expect()
        return tuple(found)


class Budgeted(Region):
    """A region that keeps what fits."""

    __slots__ = ("__weakref__", "clock", "last", "ledger", "locked", "now", "steps")
    counts: ClassVar[bool] = True

    def __init__(self, ledger: Ledger, outer: Region | None = None) -> None:
        super().__init__(outer)
        self.ledger = ledger
        self.steps: dict[Step, int] = {}  # that hold values now: bytes of each
        self.locked: dict[Step, int] = {}
        self.clock = 0  # nanoseconds, when the op that runs began
        self.now = 0  # counts the values that came
        self.last: Any = None  # a weak reference to what went to the file last

    # -- what core asks of a region -----------------------------------------------------------

    def reserve(self, op: Any, arrays: Sequence[Any]) -> None:
        """Make room for an op's results and workspace."""
        specs = [spec_of(a) for a in arrays]
        if hasattr(type(op), "shape"):
            outs = op.shape(*specs)
        else:  # a composition, that runs as one
            outs = FUNCTIONS["result_specs"](op, tuple(specs))
        made = [outs] if isinstance(outs, Spec) else outs
        need = sum(s.nbytes for s in made) + op.workspace(*specs)
        self.before(need, op.name)
        self.clock = time.perf_counter_ns()

    def entered(self, step: Step, cells: list[Cell], values: list[Any]) -> None:
        """An op ran: its values stay while there is room and somebody may ask for them."""
        step.cost = (time.perf_counter_ns() - self.clock) * 1e-9
        for cell, value in zip(cells, values, strict=True):
            cell.spec = spec_of(value)
            weakref.finalize(cell, _forget, weakref.ref(self), step, cell.index)
        self._keep(step, values)

    def passed(self, step: Step, values: list[Any]) -> None:
        """A checkpoint inside made values, and keeps them as it sees fit."""
        before = self.ledger.current
        self.ledger.count_all(values, [i for i in step.inputs if not isinstance(i, Cell)])
        self.ledger.note(step.op.name, before)

    def made(self, array: Any) -> None:
        """A new array that no op made: it stays as long as somebody holds it."""
        before = self.ledger.current
        self.before(array.nbytes, "create")
        self.ledger.count(array)
        self.ledger.note("create", before)

    def ran(self, step: Step) -> None:
        """An op was replayed, or its values were read."""
        self.ledger.replayed += not isinstance(step.op, _Back)
        assert step.values is not None
        self._keep(step, step.values)

    def shell(self, tensor: Any) -> Any:
        """A result without its bytes: it asks for them when it needs them."""
        if tensor._cell is not None and tensor._cell.spec is not None:
            tensor._data = None
        else:
            self.ledger.count(tensor._data)
        return tensor

    def adopt(self, tensor: Any) -> Any:
        """A result of a region inside this one: kept while there is room."""
        step = tensor._cell.step
        step.region = self
        values = [
            r() if step.values is None else step.values[k] for k, r in enumerate(step.weak)
        ]
        if all(v is not None for v in values):
            tensor._cell.spec = tensor.spec
            weakref.finalize(tensor._cell, _forget, weakref.ref(self), step, 0)
            self._keep(step, values)
        return self.shell(tensor)

    def link(self, cell: Cell) -> Cell:
        """A step's own way to its input."""
        return _Link(cell.step, cell.index, cell.spec)

    def clear(self) -> None:
        """Nothing: what was replayed stays while there is room."""

    def bring(self, cell: Cell) -> Any:
        """A value that was dropped, and what it needs: one step at a time, each within room.

        What a step on the way reads is locked until that step has run.
        """
        stack, waiting = [cell.step], {cell.step}
        self._lock(cell.step, 1)
        try:
            for _ in range(_THRASH):
                step = stack[-1]
                cells = [i for i in step.inputs if isinstance(i, Cell)]
                missing = {i.step for i in cells if i.step.alive(i.index) is None}
                if missing and step.values is None:
                    stack += sorted(missing - waiting, key=lambda s: -s.serial)
                    for s in missing - waiting:
                        self._lock(s, 1)
                    waiting |= missing
                    continue
                if step.values is None:
                    step.run()
                stack.pop()
                waiting.remove(step)
                self._lock(step, -1)
                if not stack:
                    assert step.values is not None
                    return step.values[cell.index]
        finally:
            for step in waiting:
                self._lock(step, -1)
        raise self._full(0, "replay")

    # -- backward passes on arrays ----------------------------------------------------------

    def before_pull(self, node: Any) -> None:
        """Before a rule runs: room for the cotangents it makes."""
        made = [p.spec.nbytes for p in node.parents if p is not None and p.shape is not None]
        # of an elementwise op they are as large as its result, before they are summed
        least = node.spec.nbytes if isinstance(node.op, Elementwise) else 0
        self.before(sum(max(n, least) for n in made), f"the gradient of {node.op.name}")

    def after_pull(self, found: Sequence[Any]) -> None:
        """The cotangents are there."""
        for c in found:
            if isinstance(c, np.ndarray):
                self.ledger.count(c)
            elif isinstance(c, tuple):
                self.ledger.count_all(x for x in c if isinstance(x, np.ndarray))

    def count(self, array: Any) -> Any:
        """Count an array, and give it back; a number of NumPy's becomes one."""
        if isinstance(array, np.generic):
            array = np.asarray(array)
        self.ledger.count(array)
        return array

    # -- room ------------------------------------------------------------------------------

    def before(self, need: int, who: str = "backward") -> None:
        """Let go of values until so many bytes are free; refuse if that cannot be."""
        ledger = self.ledger
        if ledger.budget is not None:
            while ledger.current + need > ledger.budget:
                if not self._drop():
                    raise self._full(need, who)
        ledger.peak = max(ledger.peak, ledger.current + need)
        outer = accounting(self.outer)
        if outer is not None:
            outer.before(need, who)

    def _drop(self) -> bool:
        """Let go of the value that costs least for its bytes and its age."""
        best, least = None, 0.0
        for step, nbytes in self.steps.items():
            if step in self.locked or not nbytes:
                continue
            age = self.now - step.used + 1
            score = self._price(step) / (nbytes * age)
            if best is None or score < least:
                best, least = step, score
        if best is None:
            return False
        before = self.ledger.current
        self._spill(best)
        best.values = None
        del self.steps[best]
        self.ledger.dropped += 1
        self.ledger.note(f"drop {best.op.name}", before)
        return self.ledger.current < before or self._drop()

    def _price(self, step: Step) -> float:
        """Seconds to bring a step's values back, with inputs that are gone too."""
        if isinstance(step.op, _Back):
            return self.steps.get(step, 0) * _DISK
        gone = [i.step for i in step.inputs if isinstance(i, Cell) and i.step.values is None]
        price = step.cost + sum(s.cost for s in gone) + 1e-7
        return min(price, self._moved(step)) if self._files(step) else price

    def _moved(self, step: Step) -> float:
        """Seconds to the file and back."""
        return 2 * self.steps[step] * _DISK

    def _files(self, step: Step) -> bool:
        """Whether a step's values may go to a file."""
        whole = self.ledger.shelf is not None and step.values is not None
        return whole and all(solid(v) for v in step.values or ())

    def _spill(self, step: Step) -> None:
        """Put values that are about to be dropped into the file, if that is cheaper."""
        if isinstance(step.op, _Back) or not self._files(step):
            return
        if self._chain(step) <= self._moved(step):
            return
        assert self.ledger.shelf is not None
        assert step.values is not None
        filed = self.ledger.shelf.put(step.values)
        specs = [spec_of(v) for v in step.values]
        step.op = _Back(step.op.name, filed, specs, self.last)
        step.inputs = []
        self.last = weakref.ref(filed)
        self.ledger.spilled += 1

    def _chain(self, step: Step) -> float:
        """Seconds to make a step's values again, with all that is gone and needed for them."""
        todo, total = [step], 0.0
        seen = {step}
        while todo and len(seen) < _CHAIN:
            step = todo.pop()
            total += step.cost
            cells = [i for i in step.inputs if isinstance(i, Cell)]
            gone = {i.step for i in cells if i.step.alive(i.index) is None} - seen
            todo += gone
            seen |= gone
        return total

    def _keep(self, step: Step, values: list[Any]) -> None:
        step.values = list(values)
        before = self.ledger.current
        self.ledger.count_all(values, [i for i in step.inputs if not isinstance(i, Cell)])
        self.steps[step] = self.ledger.current - before
        self.ledger.note(step.op.name, before)
        self.now += 1
        step.used = self.now

    def _lock(self, step: Step, by: int) -> None:
        for i in step.inputs:
            if isinstance(i, Cell):
                left = self.locked.get(i.step, 0) + by
                self.locked[i.step] = left
                if left <= 0:
                    del self.locked[i.step]

    def _full(self, need: int, who: str) -> BudgetError:
        ledger = self.ledger
        assert ledger.budget is not None
        return BudgetError(
            f"{who}: it needs {shown(need)} ({need:,} bytes), and {ledger.current:,} of the "
            f"{ledger.budget:,} bytes of the budget are held by what cannot be dropped: "
            f"results that no op can bring back, gradients, and the operands themselves",
            hint=f"rg.budget({ledger.current + need})",
        )


def _forget(region: Any, step: Step, index: int) -> None:
    """The last who could ask for a value is gone."""
    del index
    home = region()
    if home is not None and step in home.steps:
        step.values = None
        del home.steps[step]


@contextmanager
def budget(nbytes: int | str, *, spill: Any = False) -> Iterator[Ledger]:
    """Eager code within so many bytes: an int, or text such as "256 MiB".

    Everything that ops make in the block counts: results, gradients, what tapes keep, and the
    workspace that ops declare; what was there before does not. Values that ops made are
    dropped and come back, with the same bits. What cannot fit raises `BudgetError` at that op,
    and all tensors are still valid. With `spill`, True or a directory, values that take long
    to make again go to a file. The block's value tells bytes and counts: `.current`, `.peak`,
    `.dropped`, `.replayed`, and `.spilled` values of `.filed` bytes.
    """
    limit, place = bytes_of("budget", nbytes), directory_of("budget", spill)
    with _counting(Ledger(limit, shelf=shelf(place)), limit // 2) as ledger:
        yield ledger


@contextmanager
def track() -> Iterator[Ledger]:
    """Count what ops make in the block, without a limit: `.events` is a timeline.

    Each event tells the op, the user's line, bytes after it, and the change.
    """
    with _counting(Ledger(tracks=True), room_for_loops.get()) as ledger:
        yield ledger


def stats() -> Stats:
    """Bytes of the innermost block of `rg.budget` or `track`; outside, of compiled programs."""
    return (ledger_now.get() or PROCESS).stats()


@contextmanager
def _counting(ledger: Ledger, loops: int | None) -> Iterator[Ledger]:
    region = Budgeted(ledger, region_now.get())
    tokens: list[tuple[ContextVar[Any], Any]] = [
        (region_now, region_now.set(region)),
        (ledger_now, ledger_now.set(ledger)),
        (room_for_loops, room_for_loops.set(loops)),
    ]
    try:
        yield ledger
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)
