"""A row of the table: one function in both engines, checked to be the same, then timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.timing import interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECONDS = 1.0  # for the turns of one row; at most 8 of them and at least 2
CALLS = 5  # of a turn
FRONT = {"kernel": (-1, -2), "back": (-2, -1)}  # the axes that come first in a layout


@dataclass(frozen=True)
class Case:
    """A function of arrays in both engines; `kind` names the reason should ours be slow.

    `layouts` are those in which PyTorch gets each array and gives its result: "plain" (as
    ours), "last" or "first" (channels second in shape; last or second in memory), "kernel"
    (out and in channels first), "back" (in and out channels first). Without `slope` only the
    forward pass is run. `same` compares results and gradients that cannot be equal.
    """

    name: str
    kind: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: Sequence[np.ndarray]
    layouts: tuple[str, ...] = ()
    slope: bool = True
    close: float = 2e-4  # of the largest number of an array, in float32
    same: Callable[..., None] | None = None


class Draw:
    """Random numbers of one family."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        """Float32 numbers of the normal distribution."""
        return self.rng.normal(size=shape).astype(np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Float32 numbers from low to high."""
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def waves(self, *shape: int) -> np.ndarray:
        """Complex numbers, complex64."""
        return (self.normal(*shape) + 1j * self.normal(*shape)).astype(np.complex64)


def run(case: Case) -> dict[str, Any]:
    """Check that both compute the same, then time them in turns: seconds of each."""
    seeds = _seeds(case)
    runs = {"ours": our_step(case, seeds), "torch": torch_step(case, seeds)}
    for _ in range(2):
        start = time.perf_counter()
        ours, theirs = (step() for step in runs.values())
        turn = time.perf_counter() - start
    (case.same or _same)(case, seeds, _numpy(case, ours), _numpy(case, theirs, peer=True))
    del ours, theirs
    rounds = min(8, max(2, int(SECONDS / turn / CALLS)))
    return interleaved(runs, rounds=rounds, warmup=1, calls=CALLS)


def _many(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def _seeds(case: Case) -> list[np.ndarray]:
    """The cotangents of the results, in our layout."""
    draw = Draw(1)
    out = _many(case.ours(*(rg.asarray(a) for a in case.arrays)))
    if not case.slope:
        return []
    return [(draw.waves if "c" in o.dtype.kind else draw.normal)(*o.shape) for o in out]


def our_step(case: Case, seeds: list[np.ndarray]) -> Any:
    """Forward and backward on the tape: results and gradients."""
    xs = [rg.tensor(a, requires_grad=case.slope) for a in case.arrays]
    gs = [rg.asarray(g) for g in seeds]

    def step() -> tuple[list[Any], list[Any]]:
        out = _many(case.ours(*xs))
        if len(gs) == 1:
            out[0].backward(gs[0], accumulate=False)
        elif gs:
            parts = [rg.sum(o * g) for o, g in zip(out, gs, strict=True)]
            sum(parts[1:], start=parts[0]).backward(accumulate=False)
        return out, [x.grad for x in xs] if gs else []

    return step


def torch_step(case: Case, seeds: list[np.ndarray]) -> Any:
    """Forward and backward in PyTorch: results and gradients."""
    import torch

    given, result = _layouts(case)
    xs = [laid(a, how) for a, how in zip(case.arrays, given, strict=True)]
    xs = [x.requires_grad_(case.slope) for x in xs]
    gs = [laid(g, result) for g in seeds]

    def step() -> tuple[list[Any], list[Any]]:
        out = _many(case.theirs(*xs))
        if len(gs) == 1:
            return out, list(torch.autograd.grad(out, xs, gs))
        parts = [(o * g).sum() for o, g in zip(out, gs, strict=False)]
        return out, list(torch.autograd.grad(sum(parts), xs)) if parts else []

    return step


def _layouts(case: Case) -> tuple[tuple[str, ...], str]:
    """Of each array, and of the result."""
    if not case.layouts:
        return ("plain",) * len(case.arrays), "plain"
    return case.layouts[:-1], case.layouts[-1]


def laid(a: np.ndarray, how: str) -> Any:
    """An array as a PyTorch tensor in one of the layouts of `Case`."""
    import torch

    x = torch.tensor(a)
    if how == "plain":
        return x
    if how in FRONT:
        return x.movedim(FRONT[how], (0, 1)).contiguous()
    return x.movedim(-1, 1).contiguous() if how == "first" else x.movedim(-1, 1)


def _unlaid(x: Any, how: str) -> np.ndarray:
    """The reverse of laid."""
    if how in FRONT:
        x = x.movedim((0, 1), FRONT[how])
    elif how != "plain":
        x = x.movedim(1, -1)
    return x.numpy(force=True)


def _numpy(case: Case, found: Any, *, peer: bool = False) -> tuple[list[Any], list[Any]]:
    """Results and gradients as arrays in our layout."""
    out, grads = found
    if not peer:
        return [np.asarray(o.detach()) for o in out], [np.asarray(g) for g in grads]
    given, result = _layouts(case)
    back = [_unlaid(g, how) for g, how in zip(grads, given, strict=False)]
    return [_unlaid(o, result) for o in out], back


def _same(case: Case, _seeds: Any, ours: Any, theirs: Any) -> None:
    """Results and gradients agree, up to rounding: in shape, dtype and numbers."""
    for a, b in zip(chain(*ours), chain(*theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), case.name
        assert np.isfinite(b).all(), case.name
        scale = np.abs(b).max() + 1e-6
        np.testing.assert_allclose(a / scale, b / scale, atol=case.close, err_msg=case.name)
