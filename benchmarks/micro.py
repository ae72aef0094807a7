"""Single kernels against what this machine can do at most, with MKL and oneDNN beside.

The limits are measured on the same threads, in turns with the kernels: chains of multiply-adds
in registers, and arrays of as many bytes run through, as many read and as many written as the
kernel does, the best of storing through the caches and past them, calling for what is read next
or not; they lie in memory as the kernel's do. All kernels are measured
again and again, in sweeps, since a shared machine is fast for some seconds and slow for others;
the best of all sweeps counts, of limits too. Ours are kernel times inside of a program, to
where its result was asked for; PyTorch's are calls that write where their result was before,
if they can. The last column is what all threads would do with arrays so small that each has its
own in its second cache, measured with one: what is not faster there does not wait for memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import retrograd as rg
from benchmarks import machine
from benchmarks.why import KERNELS
from retrograd.jit.llvm.limits import arithmetic, bandwidth
from retrograd.jit.llvm.machine import chosen

SWEEPS, TURN = 75, 0.05
OFTEN = 3  # times as often, what waits for memory, which is the slower to be fast
THREADS = 2
NEAR = 1 << 16  # elements that a thread has in its second cache, read and written
AIMS = {True: 0.85, False: 0.9}  # shares of the limit that are aimed at, of memory or not


class Kernel(NamedTuple):
    """One line of the table; `work` in flops, or in bytes where `memory`."""

    name: str
    ours: Callable[..., Any]
    torchs: Callable[..., Any]
    arrays: list[np.ndarray]
    work: float
    memory: tuple[int, int] | None = None  # arrays that are read and written, if that is it
    out: tuple[int, ...] | None = None  # the shape of the result, if it is donated


def timed(
    f: Callable[..., Any], arrays: list[np.ndarray], out: Any, threads: int = THREADS
) -> Callable[[], float]:
    """Run a jitted f; seconds of its kernels."""
    from retrograd.core.lines import maker
    from retrograd.jit.execute import Executable
    from retrograd.jit.llvm.kernels import kernels_of
    from retrograd.jit.llvm.program import build
    from retrograd.jit.llvm.timing import Stopwatch
    from retrograd.jit.passes import steps

    given = list(arrays)
    if out is not None:
        kind = np.dtype(np.float32)
        given = [maker(out, kind)(out, kind), *arrays]  # on a cache line, as PyTorch's is
    program = f if out is None else lambda unused, *xs: f(*xs)
    lowered = rg.jit(program).lower(*map(rg.asarray, given))
    clock = Stopwatch()
    *_, (_, graph) = steps(lowered.graph, kernels_of)
    run = Executable(build(graph, chosen(), () if out is None else (0,), clock), threads)
    given += [t.array for t in lowered.captured]
    top = [i for i, e in enumerate(clock.entries) if not e.depth]
    mine = () if out is None else (0,)  # the result goes where the last one was

    def once() -> float:
        clock.ticks[:] = 0
        run(given, mine)
        return float(clock.ticks[top, 0].sum()) * 1e-9

    return once


class Race:
    """A kernel's turns: ours, PyTorch's, and those of the limits."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        probes = {"arithmetic": arithmetic(THREADS)}
        if kernel.memory:
            reads, writes = kernel.memory
            probes = bandwidth(THREADS, int(kernel.work), reads=reads, writes=writes)
        self.turns = {
            "ours": timed(kernel.ours, kernel.arrays, kernel.out),
            "torch": _clocked(kernel.torchs, kernel.arrays),
            **{name: probe.seconds for name, probe in probes.items()},
        }
        self.work = {name: probe.work for name, probe in probes.items()}
        self.near = 0.0  # work of the small one, times threads
        if kernel.memory:
            small = [_corner(a) for a in kernel.arrays]
            self.near = THREADS * kernel.work * small[0].size / kernel.arrays[0].size
            out = None if kernel.out is None else small[0].shape
            self.turns["near"] = timed(kernel.ours, small, out, 1)
        self.found = dict.fromkeys(self.turns, float("inf"))

    def sweep(self) -> None:
        """A turn of each."""
        for name, once in self.turns.items():
            once()
            begin = time.perf_counter()
            while time.perf_counter() - begin < TURN:
                self.found[name] = min(self.found[name], once())

    def row(self) -> dict[str, Any]:
        """What was found, for the table."""
        speed = {
            name: self.work.get(name, self.kernel.work) / t for name, t in self.found.items()
        }
        near = f"{self.near / self.found['near'] / 1e9:.0f} {{}}" if self.near else ""
        limit = max(speed[name] for name in self.work)
        unit = "GB/s" if self.kernel.memory else "GFLOP/s"
        return {
            "kernel": self.kernel.name,
            "retrograd": f"{speed['ours'] / 1e9:.0f} {unit}",
            "of the limit": f"{speed['ours'] / limit:.0%}",
            "PyTorch": f"{speed['torch'] / 1e9:.0f} {unit}",
            "its share": f"{speed['torch'] / limit:.0%}",
            "limit": f"{limit / 1e9:.0f} {unit}",
            "from a near cache": near.format(unit),
            "why it misses": self._why(speed["ours"] / limit),
        }

    def _why(self, share: float) -> str:
        if share >= AIMS[bool(self.kernel.memory)]:
            return ""
        mine = chosen()
        reasons = KERNELS.get(machine.kind(machine.processor(), mine.cpu, mine.name), {})
        names = (n for n in reasons if self.kernel.name.startswith(n))
        return reasons.get(next(names, ""), "not known")


def _corner(a: np.ndarray) -> np.ndarray:
    """As much of an array as is near: the first of its rows, or a square of equal sides."""
    if a.ndim == 2 and a.shape[0] == a.shape[1]:
        side = int(NEAR**0.5)
        return np.ascontiguousarray(a[:side, :side])
    return np.ascontiguousarray(a[: NEAR // (a.size // len(a))])


def _clocked(f: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[[], float]:
    import torch

    given = [torch.from_numpy(a) for a in arrays]
    run = f(*given)

    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return once


def _draw(*shape: int) -> np.ndarray:
    """Where a tensor of such numbers would be, ours or PyTorch's: at a cache line."""
    return rg.asarray(np.random.default_rng(0).standard_normal(shape, np.float32)).array


def _products() -> Iterator[Kernel]:
    import torch

    for n in (256, 512, 1024, 2048):
        for kind in ("nn", "nt", "tn", "tt"):
            a, b = kind

            def ours(x: Any, y: Any, a: str = a, b: str = b) -> Any:
                return (x if a == "n" else x.mT) @ (y if b == "n" else y.mT)

            def theirs(x: Any, y: Any, a: str = a, b: str = b) -> Any:
                out = torch.empty(len(x), len(x))
                x, y = x if a == "n" else x.mT, y if b == "n" else y.mT
                return lambda: torch.mm(x, y, out=out)

            pair = [_draw(n, n), _draw(n, n)]
            yield Kernel(f"GEMM {n}^3 {kind}", ours, theirs, pair, 2 * n**3, out=(n, n))


def _batched() -> Iterator[Kernel]:
    import torch

    for n, many in ((16, 512), (32, 256), (64, 64), (128, 32)):

        def theirs(x: Any, y: Any) -> Any:
            out = torch.empty_like(x)
            return lambda: torch.bmm(x, y, out=out)

        pair = [_draw(many, n, n), _draw(many, n, n)]
        yield Kernel(
            f"batched GEMM {many} x {n}^3",
            lambda x, y: x @ y,
            theirs,
            pair,
            2 * many * n**3,
            out=(many, n, n),
        )


def _convolutions() -> Iterator[Kernel]:
    import torch

    back = torch.ops.aten.convolution_backward
    for n, side, c in ((16, 56, 64), (16, 28, 128), (16, 14, 256)):
        image, kernel = (n, side, side, c), (3, 3, c, c)
        x, w, g = _draw(*image), _draw(*kernel), _draw(*image)
        work = 2 * n * (3 * side - 2) ** 2 * c * c  # taps beyond the edge are no work

        def conv(x: Any, w: Any) -> Any:
            return rg.nn.conv(x, w, padding=1)

        def held(x: Any, w: Any) -> Any:
            last = torch.channels_last
            x, w = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=last)
            return x, w

        def forward(x: Any, w: Any) -> Any:
            x, w = held(x, w)
            return lambda: torch.nn.functional.conv2d(x, w, padding=1)

        def backward(which: list[bool]) -> Any:
            def make(x: Any, w: Any, g: Any) -> Any:
                (x, w), g = held(x, w), g.permute(0, 3, 1, 2)
                rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, which)
                return lambda: back(g, x, w, None, *rest)

            return make

        def input_grad(x: Any, w: Any, g: Any) -> Any:
            return rg.grad(lambda x: rg.sum(conv(x, w) * g))(x)

        def weight_grad(x: Any, w: Any, g: Any) -> Any:
            return rg.grad(lambda w: rg.sum(conv(x, w) * g))(w)

        name = f"conv 3x3, {n}x{side}x{side}x{c}"
        all_ = [x, w, g]
        yield Kernel(f"{name}, forward", conv, forward, [x, w], work, out=image)
        theirs = backward([True, False, False])
        yield Kernel(f"{name}, input", input_grad, theirs, all_, work, out=image)
        theirs = backward([False, True, False])
        yield Kernel(f"{name}, weight", weight_grad, theirs, all_, work, out=kernel)


def _streams() -> Iterator[Kernel]:
    import torch

    f = torch.nn.functional
    n = 1 << 24
    flat, rows = [_draw(n)], [_draw(8192, 1024)]
    two = [*flat, _draw(n)[::-1].copy()]

    def into(g: Any) -> Any:
        def make(*xs: Any) -> Any:
            out = torch.empty_like(xs[0])
            return lambda: g(*xs, out=out)

        return make

    def plain(g: Any) -> Any:
        return lambda *xs: lambda: g(*xs)

    size, table = 4 * n, 4 * 8192 * 1024
    row = (8192, 1024)
    add = into(torch.add)
    yield Kernel("x + y, 16M", lambda x, y: x + y, add, two, 3 * size, (2, 1), (n,))
    exp = into(torch.exp)
    yield Kernel("exp(x), 16M", rg.exp, exp, flat, 2 * size, (1, 1), (n,))
    silu = plain(f.silu)
    yield Kernel("silu(x), 16M", rg.nn.silu, silu, flat, 2 * size, (1, 1), (n,))
    yield Kernel("sum(x), 16M", rg.sum, plain(torch.sum), flat, size, (1, 0))
    dot = plain(torch.dot)
    yield Kernel("sum(x * y), 16M", lambda x, y: rg.sum(x * y), dot, two, 2 * size, (2, 0))
    yield Kernel(
        "sum over rows, 8192 x 1024",
        lambda x: rg.sum(x, axis=0),
        plain(lambda x: x.sum(0)),
        rows,
        table,
        (1, 0),
    )
    yield Kernel(
        "softmax, 8192 x 1024",
        rg.nn.softmax,
        into(lambda x, out: torch.softmax(x, -1, out=out)),
        rows,
        2 * table,
        (1, 1),
        row,
    )
    yield Kernel(
        "layer norm, 8192 x 1024",
        rg.nn.layer_norm,
        plain(lambda x: f.layer_norm(x, (1024,))),
        rows,
        2 * table,
        (1, 1),
        row,
    )
    for side in (4096, 4000):
        yield Kernel(
            f"transpose, {side} x {side}",
            lambda x: rg.matrix_transpose(x) + 0.0,
            into(lambda x, out: out.copy_(x.mT)),
            [_draw(side, side)],
            8 * side * side,
            (1, 1),
            (side, side),
        )


def measure(wanted: str = "", sweeps: int = SWEEPS) -> list[dict[str, Any]]:
    """One row for each kernel whose name holds `wanted`."""
    import torch

    rg.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    with torch.no_grad():
        makers = (_products, _batched, _convolutions, _streams)
        races = [Race(k) for maker in makers for k in maker() if wanted in k.name]
        for turn in range(sweeps):
            for race in races:
                if race.kernel.memory or turn % OFTEN == 0:
                    race.sweep()
    rows = [race.row() for race in races]
    for row in rows:
        print("  ", *row.values(), flush=True)
    return rows
