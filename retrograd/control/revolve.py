"""Scans whose backward pass keeps few carries: steps run again, as few as there can be.

On arrays, carries may also go to a file, where segments of the loop start (memory/revolve.py).
As values of a program, and in a block with a budget, they are all in memory: the block may put
them into its own file.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.control.scan import Backward, Scan, pulled
from retrograd.control.scan_steps import Steps, lean
from retrograd.core.interpret import PURE, RAW, apply, current, using
from retrograd.core.op import FUNCTIONS, Composite, function, op
from retrograd.core.replay import region_now
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import silent
from retrograd.ir.trace import trace
from retrograd.memory.revolve import cut, first_stores, segmented, segments
from retrograd.memory.spill import Filed, SpillFile, solid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.spec import Spec
    from retrograd.ir.graph import Graph

    Ready = Callable[[Graph], Callable[[list[Any]], list[Any]]]

__all__: list[str] = []

_OBJECTS = 128  # one byte in so many of the room is not for arrays
_WHY = "keeps few carries, and runs its body again where one is missing"


def carry_bytes(scan: Scan) -> int:
    """Bytes of one carry."""
    first = scan.consts
    return sum(s.nbytes for s in scan.body.inputs[first : first + scan.carry])


def slots(scan: Scan) -> int:
    """How many carries fit in a scan's room, besides what a step needs.

    That are the first carry, the one at hand, and what comes and goes while a step runs. A
    small part is left to the objects that hold arrays, so that the process stays within too.
    """
    assert scan.room is not None
    room = scan.room - working(_bare(scan)) - scan.room // _OBJECTS
    return max(0, min(scan.length, room // max(carry_bytes(scan), 1) - 2))


def _bare(scan: Scan) -> Scan:
    """A step of a scan, of which there is one for all lengths and rooms."""
    return scan.replace(length=1, room=None, spill=None)


@lru_cache(maxsize=256)
def working(scan: Scan) -> int:
    """Bytes of a step besides carries: cotangents and sums, and what is alive on the way."""
    back = Backward(scan, -1)  # with respect to everything
    inputs, outs = scan.body.inputs, scan.body.output_specs
    flows = [inputs[i] for i in back.consts]
    flows += 2 * [outs[i] for i in back.carry]  # those that were given stay with who gave them
    token = region_now.set(None)
    try:
        with using(PURE):
            step = lean(trace(back.step, back.specs)[0])
    finally:
        region_now.reset(token)
    return sum(s.nbytes for s in flows) + max(_alive(scan.body), _alive(step))


def _alive(graph: Graph) -> int:
    """Bytes of values that are alive at most while a graph is evaluated, its inputs apart."""
    specs, first = graph.specs, len(graph.inputs)
    now = most = 0
    for at, node in enumerate(graph.nodes):
        now += sum(s.nbytes for s in node.specs)
        most = max(most, now + node.op.workspace(*(specs[i] for i in node.inputs)))
        now -= sum(specs[i].nbytes for i in graph.last_uses.get(at, ()) if i >= first)
    return most


def starts(scan: Scan) -> list[int]:
    """The steps at which segments start: one, unless there is a file."""
    free = slots(scan)
    count = 1 if scan.spill is None else segments(scan.length, free)
    return cut(scan.length, free, count)


def stores(scan: Scan) -> list[int]:
    """The steps whose carry the first run stores; last, the one at hand at the end."""
    if not scan.length:
        return []
    last = starts(scan)[-1]
    found = first_stores(scan.length - last, slots(scan))
    return [*(last + m for m in found), scan.length - 1]


class Carries:
    """What a first run leaves: carries in memory, and at the starts of segments in a file."""

    def __init__(self, scan: Scan) -> None:
        self.memory: list[list[Any]] = []
        self.files: list[Filed] = []
        self.stores, self.starts = stores(scan), starts(scan)[1:-1]
        self._bytes = carry_bytes(scan)
        if self.starts:
            assert scan.spill is not None
            self._file = SpillFile(scan.spill, len(self.starts) * self._bytes)

    def pass_by(self, position: int, carry: list[Any]) -> None:
        """The carry before a step."""
        while len(self.memory) < len(self.stores) and self.stores[len(self.memory)] == position:
            self.memory.append(carry)
        k = len(self.files)
        if k < len(self.starts) and self.starts[k] == position:
            whole = [c if solid(c) else np.array(c, order="K") for c in carry]
            self.files.append(Filed(self._file, whole, k * self._bytes))

    def fetch(self, k: int) -> list[Any]:
        """The carry at the start of a segment after the first; the one before comes next."""
        if k > 1:
            self.files[k - 2].expect()
        return self.files.pop().get()


def first_run(
    scan: Scan, args: Sequence[Any], ready: Ready = Steps
) -> tuple[list[Any], Carries]:
    """The results on arrays, and the carries that are stored on the way."""
    kept = Carries(scan)
    n, carry = scan.consts, list(args[scan.consts : scan.consts + scan.carry])
    ys = [np.empty(s.shape, s.dtype) for s in scan.shape()[scan.carry :]]
    consts, rows, step = args[:n], args[n + scan.carry :], ready(scan.body)
    with using(RAW):
        for position, t in enumerate(scan._order()):
            kept.pass_by(position, carry)
            outs = step([*consts, *carry, *[x[t] for x in rows]])
            carry = [np.asarray(c) for c in outs[: scan.carry]]
            for row, y in zip(ys, outs[scan.carry :], strict=True):
                row[t] = y
    return [*carry, *ys], kept


@op
class ScanFew(Composite):
    """A scan that also gives the carries that its reversal starts from.

    The results, then of each leaf of the carry those that are stored.
    """

    scan: Scan
    variadic = True
    outputs = ("*results",)
    host = _WHY
    bodied = True

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        kept, carry = len(stores(self.scan)), self.scan.body.output_specs[: self.scan.carry]
        return (*self.scan.shape(), *(s.with_shape((kept, *s.shape)) for s in carry))

    def workspace(self, *args: Spec) -> int:
        return (slots(self.scan) + 2) * carry_bytes(self.scan) + _alive(self.scan.body)

    def expand(self, *args: Any) -> tuple[Any, ...]:
        outs, carries = self.scan.replace(room=None)._stacked(args)
        times = [self.scan._order()[k] for k in stores(self.scan)]
        at = FUNCTIONS["asarray"](np.asarray(times, np.int64))
        return (*outs, *(FUNCTIONS["take"](c, at, axis=0) for c in carries))

    def forward(self, *args: Any) -> tuple[Any, ...]:
        return self.stepped(Steps, *args)

    def stepped(self, ready: Ready, *args: Any) -> tuple[Any, ...]:
        """The results, by steps that somebody makes ready to run."""
        outs, kept = first_run(self.scan, args, ready)
        stacked = [np.stack(row) for row in zip(*kept.memory, strict=True)]
        if not kept.memory:
            stacked = [np.empty(s.shape, s.dtype) for s in self.shape()[len(outs) :]]
        return (*outs, *stacked)

    @staticmethod
    def samples(rng):
        for scan, *arrays in Scan.samples(rng):
            for room in (0, 3 * 24, 1000):
                yield (ScanFew(scan.replace(room=room)), *arrays)


@op
class ScanRevolve(Composite):
    """The cotangents of a scan's inputs, from few of its carries."""

    scan: Scan
    mask: int
    variadic = True
    outputs = ("*cotangents",)
    host = _WHY
    bodied = True

    def shape(self, *xs: Spec) -> tuple[Spec, ...]:
        return tuple(xs[i] for i in Backward(self.scan, self.mask).targets)

    def workspace(self, *xs: Spec) -> int:
        return (slots(self.scan) + 2) * carry_bytes(self.scan) + working(_bare(self.scan))

    def expand(self, *xs: Any) -> tuple[Any, ...]:
        scan = self.scan.replace(room=None)
        count = len(scan.body.inputs)
        args, kept, g = xs[:count], xs[count : count + scan.carry], xs[count + scan.carry :]
        carries = _all_carries(self.scan, args, kept)
        found = pulled(scan, self.mask, args, carries, g)
        return tuple(c for c in found if c is not None)

    def forward(self, *xs: Any) -> tuple[Any, ...]:
        return self.stepped(Steps, *xs)

    def stepped(self, ready: Ready, *xs: Any) -> tuple[Any, ...]:
        """The cotangents, by steps that somebody makes ready to run."""
        scan, count = self.scan, len(self.scan.body.inputs)
        rows, g = xs[count : count + scan.carry], xs[count + scan.carry :]
        kept = Carries(scan)
        kept.memory = [list(states) for states in zip(*rows, strict=True)]
        with using(RAW):
            return tuple(Reversal(scan, self.mask, xs[:count], kept, g, ready).run())

    @staticmethod
    def samples(rng):
        for scan, *arrays in Scan.samples(rng):
            for room in (0, 3 * 24, 1000):
                outs = ScanFew(scan.replace(room=room)).forward(*arrays)
                g = [rng.normal(size=np.shape(o)) for o in outs[:2]]
                yield (ScanRevolve(scan.replace(room=room), 0b111), *arrays, outs[2], *g)


def _all_carries(scan: Scan, args: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    """The carry before every step, from those that are stored: stretch by stretch."""
    first, *ends = stores(scan)
    n, total = scan.consts, scan.length
    parts: list[Any] = []
    for k, (start, end) in enumerate(pairwise([first, *ends])):
        if start < end:
            low, high = (total - end, total - start) if scan.reverse_time else (start, end)
            rows = [x[low:high] for x in args[n + scan.carry :]]
            piece = scan.replace(length=end - start, room=None)
            parts.append(piece._stacked([*args[:n], *(c[k] for c in kept), *rows])[1])
    parts.append([c[len(ends) :] for c in kept])
    ordered = parts[::-1] if scan.reverse_time else parts
    return [FUNCTIONS["concat"](list(row), axis=0) for row in zip(*ordered, strict=True)]


class Reversal:
    """A scan backwards on arrays, from the carries that were stored."""

    def __init__(
        self,
        scan: Scan,
        mask: int,
        args: Sequence[Any],
        kept: Carries,
        g: Sequence[Any],
        ready: Ready = Steps,
    ) -> None:
        self.scan, self.back = scan, Backward(scan, mask)
        n, inputs = scan.consts, scan.body.inputs
        self.consts, self.rows = args[:n], args[n + scan.carry :]
        self.g_ys = [g[i] for i in self.back.ys]
        self.gs = [g[i] for i in self.back.carry]
        self.sums = [np.zeros(inputs[i].shape, inputs[i].dtype) for i in self.back.consts]
        self.gx = [
            np.empty((scan.length, *inputs[i].shape), inputs[i].dtype) for i in self.back.xs
        ]
        self.times = scan._order()
        self.kept, self.first = kept, args[n : n + scan.carry]
        self.state = kept.memory.pop() if kept.memory else []
        self.slots = dict(enumerate(kept.memory))
        kept.memory.clear()  # they are ours now: a slot that is used again frees what it held
        self.body = ready(silent(scan.body))
        step, captured = trace(self.back.step, self.back.specs)
        self.step = ready(lean(step))
        self.hidden = [t.array for t in captured]

    def run(self) -> list[Any]:
        """All actions of the schedule, of which there are some for each step."""
        scan, held, advance, pull = self.scan, self.slots, self.advance, self.pull
        plan = segmented(scan.length, slots(scan), starts(scan)) if scan.length else ()
        for what, a, b in plan:
            if what == "load":
                self.state = held[a]
            elif what == "back":
                pull(a)
            elif what == "advance":
                advance(a, b)
            elif what == "store":
                held[a] = self.state
            else:
                held.clear()  # of the segment after it, which is done
                self.state = self.kept.fetch(a) if a else list(self.first)
        return [*self.sums, *self.gs, *self.gx]

    def advance(self, start: int, end: int) -> None:
        """Steps forwards."""
        consts, rows, carry = self.consts, self.rows, self.scan.carry
        for t in self.times[start:end]:
            outs = self.body([*consts, *self.state, *[x[t] for x in rows]])
            self.state = [np.asarray(c) for c in outs[:carry]]

    def pull(self, position: int) -> None:
        """A step backwards."""
        t = self.times[position]
        given = [*self.consts, *self.sums, *self.gs, *self.state]
        given += [x[t] for x in self.rows] + [g[t] for g in self.g_ys] + self.hidden
        found = self.step(given)
        a, b = len(self.sums), len(self.sums) + len(self.gs)
        self.sums, self.gs = found[:a], found[a:b]
        for row, c in zip(self.gx, found[b:], strict=True):
            row[t] = c


class Held:
    """Carries that a tape keeps until a backward pass takes them, and uses their memory."""

    def __init__(self, kept: Carries) -> None:
        self.kept: Carries | None = kept

    def take(self, scan: Scan, args: Sequence[Any]) -> Carries:
        """They; a second backward pass runs the scan again for them."""
        kept, self.kept = self.kept, None
        return first_run(scan, args)[1] if kept is None else kept


@function
def scan_few(scan: Scan, args: Sequence[Any]) -> tuple[list[Any], Any]:
    """The results of a scan, and what its backward pass keeps."""
    if current.get() is PURE and region_now.get() is None:
        found, kept = first_run(scan, [a.array for a in args])
        return [Tensor(o) for o in found], (list(args), Held(kept))
    outs = apply(ScanFew(_halved(scan)), *args)  # as values, which can be replayed
    cut = len(outs) - scan.carry
    return list(outs[:cut]), (list(args), list(outs[cut:]))


@function
def scan_revolve(scan: Scan, mask: int, g: Sequence[Any], kept: Any) -> list[Any]:
    """The cotangents of a scan's inputs."""
    args, carries = kept
    full = [scan.zeros(s) if c is None else c for c, s in zip(g, scan.shape(), strict=True)]
    if isinstance(carries, Held):
        arrays = [a.array for a in args]
        with using(RAW):
            states = carries.take(scan, arrays)
            cotangents = [c.array for c in full]
            found = Reversal(scan, mask, arrays, states, cotangents).run()
        return Backward(scan, mask).placed([Tensor(c) for c in found])
    op = ScanRevolve(_halved(scan), mask)
    return Backward(scan, mask).placed(apply(op, *args, *carries, *full))


def _halved(scan: Scan) -> Scan:
    """The scan with room for half the carries: the reversal has its slots beside the values."""
    assert scan.room is not None
    need = working(_bare(scan))
    return scan.replace(room=(scan.room + min(need, scan.room)) // 2, spill=None)
