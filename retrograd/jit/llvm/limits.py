"""What this machine can do at most: arithmetic and bandwidth, measured once in a process."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrograd.core.lines import filled, maker
from retrograd.jit.llvm import pool
from retrograd.jit.llvm.ahead import INTO_SECOND
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.native import compiled
from retrograd.jit.llvm.text import F32, I8, I64, PTR, Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.native import Library

__all__ = ["Limits", "Probe", "arithmetic", "bandwidth", "measured"]

KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]
CHUNKS = 16
TURNS = 20_000  # of the loop of multiply-adds
LARGE, SMALL = 8 << 20, 1 << 16  # floats in an array: beyond a core's caches, inside of one
STRIPE = CHUNKS * 64  # floats: all chunks are whole turns of the loop
AGAIN = 64  # passes over the small arrays
_SECOND = os.path.join(
    os.sep, "sys", "devices", "system", "cpu", "cpu0", "cache", "index2", "size"
)
PATIENCE, FEWEST = 0.1, 8  # seconds and runs: a machine is seldom quiet for long


class Limits(NamedTuple):
    """The most that so many threads of this machine reached; float32, in a second."""

    threads: int
    flops: float
    memory: float  # bytes, from arrays that no cache holds
    cache: float  # bytes, from arrays that the second cache of each core holds

    def roof(self, flops: float, nbytes: float, itemsize: int = 4) -> float:
        """The least seconds in which so much can be done."""
        # what is taken to be in a cache when a step starts
        speed = self.cache if nbytes <= self.threads * _cached() else self.memory
        return max(flops * (itemsize / 4) / self.flops, nbytes / speed)


class Probe(NamedTuple):
    """Something that does nothing but reach a limit."""

    run: Callable[[], object]
    work: float  # in a run: operations, or bytes

    def seconds(self) -> float:
        """Of one run."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def fastest(self) -> float:
        """Work in a second, at best."""
        best, begin, runs = float("inf"), time.perf_counter(), 0
        while runs < FEWEST or time.perf_counter() - begin < PATIENCE:
            best, runs = min(best, self.seconds()), runs + 1
        return self.work / best


def arithmetic(threads: int) -> Probe:
    """Chains of multiply-adds in registers."""
    work = 2 * CHUNKS * TURNS * _chains() * chosen().lanes(4)
    return Probe(_launch("peak", threads, SMALL), work)


def bandwidth(
    threads: int, nbytes: int, *, reads: int = 2, writes: int = 1
) -> dict[str, Probe]:
    """a, or a + s b, summed or stored; arrays of so many bytes in all.

    There are several ways of doing so, and which one is the fastest is up to the machine: to
    store past the caches or not, to call for what is read next or not.
    """
    many = 4 * (reads + writes)
    size = nbytes // many // STRIPE * STRIPE
    ways = [s for s in _STREAMS if (s.reads, s.writes) == (reads, writes)]
    return {s.name: Probe(_launch(s.name, threads, size), many * size) for s in ways}


@lru_cache
def measured(threads: int) -> Limits:
    """The limits for a number of threads; takes a few tenths of a second, once."""
    small = Probe(_launch(_SMALL.name, threads, SMALL), 12 * SMALL * AGAIN)
    flops, cache = (p.fastest() for p in (arithmetic(threads), small))
    memory = max(p.fastest() for p in bandwidth(threads, 12 * LARGE).values())
    if threads == 1:
        return Limits(1, flops, memory, max(cache, memory))
    alone = measured(1)  # a busy machine may give several threads less than one
    found = max(flops, alone.flops), max(memory, alone.memory), max(cache, alone.cache)
    return Limits(threads, *found)


def _launch(name: str, threads: int, size: int) -> Callable[[], object]:
    """A call of a kernel of the library on three arrays of its own: two given, one a result."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(_library().address(name))
    kind = np.dtype(np.float32)
    result = maker((size,), kind)((size,), kind)
    result.fill(1)
    arrays = [*(filled((size,), 1, kind) for _ in range(2)), result]

    def launch() -> None:
        bufs = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in arrays), size)
        run(ctypes.addressof(bufs), threads)

    return launch


@lru_cache
def _cached() -> int:
    """Bytes of the second cache of a core, as the system says."""
    try:
        with open(_SECOND, encoding="ascii") as file:
            told = file.read().strip()
        return int(told.rstrip("KM")) << {"K": 10, "M": 20}.get(told[-1:], 0)
    except (OSError, ValueError):
        return 1 << 20


@lru_cache
def _library() -> Library:
    module = Module(chosen())
    pool.declare(module)
    _launcher(module, "peak", _peak(module))
    for stream in (*_STREAMS, _SMALL):
        _launcher(module, stream.name, stream.write(module))
    return compiled(module)


def _launcher(module: Module, name: str, kernel: str) -> None:
    f = Fn(module, name, [("bufs", PTR), ("threads", I64)], linkage="")
    given = f"ptr @{kernel}, {f.arg('bufs')}, i64 {CHUNKS}, ptr null, i64 0"
    f.emit(f"call void @rg_parallel_within({given}, {f.arg('threads')})")
    f.done()


def _chains() -> int:
    """Independent sums: enough to hide the latency of one, and all in registers."""
    return min(16, chosen().registers - 4)


def _peak(module: Module) -> str:
    """x = x * a + b in every register, over and over."""
    f = Fn(module, "multiply_add", KERNEL)
    t = F32.by(module.machine.lanes(4))
    array = f.load(PTR, f.arg("bufs"), 8)
    a = f.load(t, array)
    with f.loop(0, TURNS, 1, [a] * _chains()) as loop:
        loop.next = [f.fma(x, a, a) for x in loop.carry]
    total = loop.results[0]
    for x in loop.results[1:]:
        total = f.add(total, x)
    second = f.load(PTR, f.at(f.arg("bufs"), 1, I64), 8)
    f.store(total, f.at(second, f.times(f.arg("chunk"), t.lanes), F32))
    return f.done()


class _Stream(NamedTuple):
    """One or two arrays, run through; what is made of them is added up, or stored."""

    reads: int
    writes: int
    past: bool = False
    called: bool = False  # whether what is read next is called for
    again: int = 1  # times

    @property
    def name(self) -> str:
        """One for each set of fields."""
        return "stream_" + "_".join(str(int(x)) for x in self)

    def write(self, module: Module) -> str:
        """The kernel, which takes a part of the arrays; its name."""
        f = Fn(module, f"{self.name}_part", KERNEL)
        t = F32.by(module.machine.lanes(4))
        size = f.load(I64, f.at(f.arg("bufs"), 3, I64), 8)
        wide = f.div(size, f.integer(CHUNKS))
        start = f.times(f.arg("chunk"), wide)
        places = [f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in range(3)]
        *sources, to = (f.at(p, start, F32) for p in places)
        store = f.stream if self.past else f.store
        with f.loop(0, self.again):
            with f.loop(0, wide, 4 * t.lanes, [f.zero(t)] * 4) as loop:
                for k in range(4):
                    i = f.plus(loop.i, k * t.lanes)
                    spots = [f.at(a, i, F32) for a in sources[: self.reads]]
                    for spot in spots if self.called else ():
                        prefetch(f, f.at(spot, INTO_SECOND.nbytes, I8), near=INTO_SECOND.near)
                    found = [f.load(t, spot) for spot in spots]
                    made = f.fma(found[-1], f.const(t, 0.5), found[0])
                    if self.writes:
                        store(made, f.at(to, i, F32))
                    else:
                        loop.next[k] = f.add(loop.carry[k], made)
            if not self.writes:
                total = f.add(f.add(*loop.results[:2]), f.add(*loop.results[2:]))
                f.store(total, f.at(places[2], f.times(f.arg("chunk"), t.lanes), F32))
        return f.done()


_FLAGS = False, True
_STREAMS = [
    _Stream(reads, writes, past, called)
    for reads, writes, past, called in itertools.product((1, 2), (0, 1), _FLAGS, _FLAGS)
    if writes or not past
]
_SMALL = _Stream(2, 1, again=AGAIN)
