"""How costs grow, ours alone: steps with batch, width, sequence, depth; compiling and planning.

Beside each doubling stands what the arithmetic says: twice the batch is twice the work, twice
the width four times; twice the depth a little more than twice, as a step of n layers has
3 n - 1 products (the data need no gradient). All sizes take turns. Objects are not read from
disk. Planning is what a budget adds to that: which kernels may run again, what is kept, all
plans with their layouts, and the bound that is proven.
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import numpy as np

import retrograd as rg
from benchmarks.steps.row import CALM, Draw

ROUNDS, TURN, THREADS = 20, 0.05, 2


def _weights(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        rg.asarray(rng.standard_normal(s, np.float32) * np.float32(s[0] ** -0.5))
        for s in shapes
    ]


def _mlp(batch: int, width: int, depth: int) -> tuple[Any, tuple[Any, ...]]:
    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = rg.nn.gelu(x @ w)
        return rg.mean(x * x)

    made = Draw()
    weights = [rg.asarray(2 * made.rotation(width)) for _ in range(depth)]
    return _step(loss), (weights, rg.asarray(made.normal(batch, width, scale=CALM)))


def _attention(length: int) -> tuple[Any, tuple[Any, ...]]:
    def loss(weights: Any, x: Any) -> Any:
        q, k, v = ((x @ w).reshape(1, length, 4, 64) for w in weights)
        return rg.mean(rg.nn.attention(q, k, v, causal=True) ** 2)

    return _step(loss), (_weights(*[(256, 256)] * 3), *_weights((length, 256)))


def _scan(length: int) -> tuple[Any, tuple[Any, ...]]:
    def loss(weights: Any, x: Any) -> Any:
        v, B, C = (x @ w for w in weights)
        dt = rg.full((1, length, 4), 0.05)
        v, B, C = v.reshape(1, length, 4, 64), B[None, :, None], C[None, :, None]
        y, _ = rg.ssm.ssd(v, dt, rg.full((4,), -1.0), B, C)
        return rg.mean(y * y)

    return _step(loss), (_weights((256, 256), (256, 64), (256, 64)), *_weights((length, 256)))


def _step(loss: Any) -> Any:
    def step(weights: Any, x: Any) -> Any:
        value, grads = rg.value_and_grad(loss)(weights, x)
        return [w - 1e-3 * g for w, g in zip(weights, grads, strict=True)], value

    return step


# What grows, the sizes, the step at a size, and what its work grows as.
STEPS: list[tuple[str, tuple[int, ...], Any, Any]] = [
    ("MLP 4x512, batch", (128, 256, 512, 1024, 2048), lambda n: _mlp(n, 512, 4), lambda n: n),
    (
        "MLP of 4, batch 256, width",
        (256, 512, 1024, 2048),
        lambda n: _mlp(256, n, 4),
        lambda n: n * n,
    ),
    (
        "MLP of 256, batch 256, depth",
        (2, 4, 8, 16, 32),
        lambda n: _mlp(256, 256, n),
        lambda n: 3 * n - 1,
    ),
    ("causal attention, sequence", (512, 1024, 2048, 4096), _attention, lambda n: n * n),
    ("SSD, sequence", (512, 1024, 2048, 4096), _scan, lambda n: n),
]
NEAR = 1.02  # of what the arithmetic says: as much is not a miss
# Why a step grows faster, as profiles show; by how its name begins.
WHY = {
    "MLP of 256": "arithmetic does not see caches: 4 layers are in the near ones, 32 (24 MB of "
    "weights and of what is kept) are not. `explain` of both, on the EPYC: a forward product "
    "161 and 173 µs, a backward one 171 and 194, one with its update 147 and 152. Since then "
    "products call for what the next one reads, and all together grow from 165 to 171 and not "
    "to 183; the rest was not taken apart",
    "SSD": "what is read comes from the third cache at 4,096, and products call for it: of 512 "
    "turns the scan then takes 276 µs where it is 262 at length 512, its gradient 680 and 667, "
    "the two products after it 86 and 75, 308 and 291",
}
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
DEEP = (40, 80, 160, 330)  # layers that are planned: 330 have more than 5,000 nodes
TIMES = 3  # that a program is compiled or planned; the best counts


class _Run:
    """A step at one size, and the best of its times."""

    def __init__(self, made: tuple[Any, tuple[Any, ...]]) -> None:
        step, (self.weights, *self.data) = made
        self.step = rg.jit(step, donate=("weights",))
        self.best = float("inf")
        self.turn()

    def turn(self) -> None:
        begin = time.perf_counter()
        while (start := time.perf_counter()) - begin < TURN:
            self.weights, _ = self.step(self.weights, *self.data)
            self.best = min(self.best, time.perf_counter() - start)


def steps() -> list[dict[str, Any]]:
    """Step times at doubling sizes."""
    rows = []
    for name, sizes, make, work in STEPS:
        runs = [_Run(make(n)) for n in sizes]
        for _ in range(ROUNDS):
            for run in runs:
                run.turn()
        took, doublings = [run.best for run in runs], len(runs) - 1
        grows = (took[-1] / took[0]) ** (1 / doublings)
        says = (work(sizes[-1]) / work(sizes[0])) ** (1 / doublings)
        why = [text for key, text in WHY.items() if name.startswith(key)]
        rows.append(
            {
                "what grows": name,
                "sizes": f"{sizes[0]} to {sizes[-1]}",
                "ms": ", ".join(f"{t * 1e3:.2f}" for t in took),
                "by doubling": round(grows, 2),
                "the arithmetic says at most": round(says, 2),
                "why it misses": "".join(why) if grows > says * NEAR else "",
            }
        )
        print("  ", *rows[-1].values(), flush=True)
    return rows


def compiling() -> list[dict[str, Any]]:
    """Trace, plan and compile equal layers."""
    from retrograd.jit.llvm.kernels import kernels_of
    from retrograd.jit.llvm.machine import chosen
    from retrograd.jit.llvm.program import Writer
    from retrograd.jit.passes import optimized

    os.environ["RETROGRAD_CACHE"] = "off"
    rg.jit(lambda x: x + 1)(rg.ones(3))  # loads LLVM
    rows = []
    for depth in DEPTHS:
        step, args = _mlp(64, 128, depth)
        took = []
        for _ in range(TIMES):
            gc.collect()  # of what came before
            clocks = [time.perf_counter()]
            lowered = rg.jit(step).lower(*args)
            clocks.append(time.perf_counter())
            Writer(optimized(lowered.graph, kernels_of), chosen(), ()).written()
            clocks.append(time.perf_counter())
            lowered.compile()
            clocks.append(time.perf_counter())
            took.append(np.diff(clocks))
        trace, plan, both = np.min(took, 0)
        nodes = len(lowered.graph.nodes)
        rows.append(
            {
                "equal layers": depth,
                "nodes": nodes,
                "trace, ms": round(trace * 1e3, 1),
                "plan, ms": round(plan * 1e3, 1),
                "µs a node": round((trace + plan) / nodes * 1e6),
                "plan and compile, ms": round(both * 1e3),
            }
        )
        print("  ", *rows[-1].values(), flush=True)
    return rows


def planning() -> list[dict[str, Any]]:
    """What a budget adds to compiling, by the number of equal layers."""
    from retrograd.jit.llvm.budget import plans_of
    from retrograd.jit.llvm.kernels import kernels_of
    from retrograd.jit.llvm.machine import chosen
    from retrograd.jit.llvm.program import Writer
    from retrograd.jit.passes import optimized

    rows = []
    for depth in DEEP:
        step, args = _mlp(128, 64, depth)
        graph = optimized(rg.jit(step).lower(*args).graph, kernels_of)
        best = float("inf")
        for _ in range(TIMES):
            writer = Writer(graph, chosen(), ())
            routine = writer.written()
            start = time.perf_counter()
            found = plans_of(writer, routine, THREADS)
            count, bound = len(found.choices), found.bound
            best = min(best, time.perf_counter() - start)
        rows.append(
            {
                "equal layers": depth,
                "nodes": len(graph.nodes),
                "kernels": len(found.problem.units),
                "plans found": count,
                "smallest / proven": round(found.minimum / bound, 2),
                "s to plan": round(best, 2),
            }
        )
        print("  ", *rows[-1].values(), flush=True)
    return rows


def measure() -> dict[str, list[dict[str, Any]]]:
    """All tables."""
    rg.set_threads(THREADS)
    return {"steps": steps(), "compiling": compiling(), "planning": planning()}
