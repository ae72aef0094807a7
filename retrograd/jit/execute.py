"""Run a compiled program: arrays in, arrays out, and Python where the program asks for it."""

from __future__ import annotations

import _thread
import ctypes
from functools import lru_cache, partial
from threading import Timer, get_ident, main_thread
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import RetrogradError
from retrograd.core.interpret import compute
from retrograd.core.lines import addresses, maker
from retrograd.core.quiet import loud, quiet
from retrograd.jit.buffers import plain
from retrograd.jit.llvm.arena import Arenas
from retrograd.jit.llvm.faults import NOTHING
from retrograd.jit.llvm.poll import Poll
from retrograd.jit.llvm.ready import FINE, HEAD, Ahead, HostCall
from retrograd.jit.threads import MAX_THREADS, get_threads
from retrograd.memory.spill import SpillFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.ready import Program
    from retrograd.jit.steps import Spill
    from retrograd.memory.spill import SpillFile

__all__ = ["Executable", "deferred"]


def _host(run: Executable, file: SpillFile | None, number: int, bufs: int) -> None:
    """Run a node in Python; what it raises names the user's line."""
    call = run.program.hosts[number]
    if file is not None and not isinstance(call, HostCall):
        _move(file, call, bufs)
        return
    try:
        _run(call, bufs, partial(_ready, threads=run.threads, fast=run.fast))
    except RetrogradError as error:
        raise error.located(call.node.where) from error.__cause__
    except Exception as error:
        error.add_note(f"  at  {call.node.where}")
        raise


def _move(file: SpillFile, call: Spill | Ahead, bufs: int) -> None:
    """A value to the file of the call or back, or a word about what will be read."""
    if isinstance(call, Ahead):
        for s in call.spills:
            file.expect(s.nbytes, s.at)
        return
    address = ctypes.c_int64.from_address(bufs).value
    (file.read if call.back else file.write)(address, call.nbytes, call.at)


def _run(call: HostCall, bufs: int, ready: Callable[[Graph], Any]) -> None:
    slots = (ctypes.c_void_p * (len(call.specs) + len(call.outs))).from_address(bufs)
    given = [_seen(p, s) for p, s in zip(slots, call.specs, strict=False)]
    for a in given:
        a.flags.writeable = False
    outs = [_seen(p, s) for p, s in zip(slots[len(given) :], call.outs, strict=True)]
    token = quiet()
    try:
        stepped = getattr(call.node.op, "stepped", None)
        found = stepped(ready, *given) if stepped else compute(call.node.op, given)
    finally:
        loud(token)
    found = found if isinstance(found, tuple) else (found,)
    for out, x in zip(outs, found, strict=True):
        out[...] = x


@lru_cache(maxsize=256)
def _ready(
    graph: Graph, threads: int | None, *, fast: bool
) -> Callable[[list[Any]], list[np.ndarray]]:
    """The steps of a loop that Python leads, with the options of the program around it."""
    from retrograd.jit.compile import compiled  # noqa: PLC0415  it loads LLVM

    run = Executable(compiled(graph, fast=fast), threads, fast=fast)
    return lambda values: run([np.asarray(v) for v in values])  # a row may be a number


def _seen(pointer: int | None, spec: Any) -> np.ndarray:
    """Memory as an array."""
    if not spec.nbytes or pointer is None:
        return np.empty(spec.shape, spec.dtype)
    held = (ctypes.c_char * spec.nbytes).from_address(pointer)
    return np.frombuffer(held, spec.dtype).reshape(spec.shape)


# -- calls -------------------------------------------------------------------------------------


class Executable:
    """A program with the memory for its calls."""

    def __init__(
        self,
        program: Program,
        threads: int | None = None,
        most: int = MAX_THREADS,
        spill: str | None = None,
        *,
        fast: bool = False,
    ) -> None:
        self.program, self.threads, self.most, self.fast = program, threads, most, fast
        file = program.course.file if program.course else 0
        self.files = SpillFiles(spill, file) if file and spill else None
        self.given, self.outputs = program.given, program.outputs
        made = list(dict.fromkeys(v for v in self.outputs if v >= self.given))
        self.where = {v: k for k, v in enumerate(made)}
        # the donated argument in whose memory it may be, or -1; what makes it else; of what
        found = [(program.reuse.get(v, -1), program.specs[v]) for v in made]
        self.made = [(i, maker(s.shape, s.dtype), s.shape, s.dtype) for i, s in found]
        self.asks = bool(program.polls or program.hosts)  # for something from Python
        # an output that was met before is a copy: its owner may give its memory away
        self.again = [k for k, v in enumerate(self.outputs) if v in self.outputs[:k]]
        self.simple = made == list(self.outputs)
        self.fixed = [np.ascontiguousarray(c) for c in program.constants]
        self.constants = addresses(self.fixed)
        self.status = HEAD + self.given + len(made) + len(self.fixed)
        self.unhurt = (FINE, *[NOTHING] * len(program.faults.rows))
        self.block = ctypes.c_int64 * (self.status + len(self.unhurt))
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(program.address)
        self.arenas: dict[int, Arenas] = {}

    def __call__(
        self, arrays: Sequence[np.ndarray], mine: Collection[int] = ()
    ) -> list[np.ndarray]:
        """The outputs, in new memory or that of arguments that are `mine` to write in.

        Arguments that pass through are themselves.
        """
        arrays = [plain(a) for a in arrays]
        return self.run(arrays, addresses(arrays), mine)

    def run(
        self, arrays: Sequence[np.ndarray], pointers: list[int], mine: Collection[int] = ()
    ) -> list[np.ndarray]:
        """As the call, for arrays that are plain and whose addresses are known."""
        made, places = self._outputs(arrays, pointers, mine)
        threads = min(self.threads or get_threads(), self.most)
        arenas = self.arenas[threads] if threads in self.arenas else self._arenas(threads)
        file = self.files.take() if self.files else None
        arena = arenas.take()
        block = self.block()
        at = ctypes.addressof(block)
        poll = Poll(partial(_host, self, file)) if self.asks else None
        ask = poll.address if poll else 0
        main = ask if poll and get_ident() == main_thread().ident else 0
        base = arena.base
        head = (base, base + self.program.arena, threads, at + 8 * self.status, ask, main)
        block[:] = [*head, *pointers, *places, *self.constants, *self.unhurt]
        try:
            self.function(at)
        except BaseException as error:  # from a signal's handler, and the program has ended
            if not mine or self._failed(poll, block):
                raise
            defer(error)
        finally:
            arenas.give(arena)
            if self.files and file:
                self.files.give(file)
        if self._failed(poll, block) if poll else block[self.status] != FINE:
            self._raise(poll, block)
        if self.simple:
            return made
        found = [arrays[v] if v < self.given else made[self.where[v]] for v in self.outputs]
        for k in self.again:
            found[k] = found[k].copy()
        return found

    def _failed(self, poll: Poll | None, block: Any) -> bool:
        return block[self.status] != FINE or (poll is not None and poll.caught)

    def _outputs(
        self, arrays: Sequence[np.ndarray], pointers: list[int], mine: Collection[int]
    ) -> tuple[list[np.ndarray], list[int]]:
        """Memory for the outputs: that of arguments that may be written, else new."""
        if not mine:
            made = [make(shape, dtype) for _, make, shape, dtype in self.made]
            return made, addresses(made)
        made, places = [], []
        for i, make, shape, dtype in self.made:
            if i in mine:
                made.append(arrays[i])
                places.append(pointers[i])
            else:
                a = make(shape, dtype)
                made.append(a)
                places += addresses((a,))
        return made, places

    def _arenas(self, threads: int) -> Arenas:
        size = self.program.arena + threads * self.program.scratch + 64
        return self.arenas.setdefault(threads, Arenas(size))

    def _raise(self, poll: Poll | None, block: Any) -> None:
        if poll:
            poll.raise_caught()
        node, *words = block[self.status :]
        raise self.program.faults.error(node, words, self.program.wheres)


# -- interrupts after donated memory was written -----------------------------------------------

_later: list[BaseException] = []
_PATIENCE = 0.1  # seconds


def defer(error: BaseException) -> None:
    """Raise when the next program begins, or soon: now, the results would be lost.

    Python delivers a Ctrl-C that came while a program ran right after it: before the caller
    could put its results in the place of what it donated.
    """
    _later.append(error)
    timer = Timer(_PATIENCE, _remind)
    timer.daemon = True
    timer.start()


def _remind() -> None:
    if _later and isinstance(_later[0], KeyboardInterrupt):
        _later.clear()
        _thread.interrupt_main()


def deferred() -> None:
    """Raise what was put off, if anything was."""
    if _later and get_ident() == main_thread().ident:
        raise _later.pop()
