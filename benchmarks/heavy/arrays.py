"""Arrays: products, sums, running sums, order, indices, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REASONS = {
    "gemm": "one kernel call each way against MKL's",
    "elementwise": "a kernel for each op and each rule, and one for the sum of cotangents",
    "sums": "reading memory: both are near its bandwidth",
    "running sum": "rows side by side in a vector, by squares that are turned in registers",
    "running product": "as the running sum; the gradient is two more such walks",
    "running maximum": "as the running sum; the gradient adds at places found by another walk",
    "sort": "NumPy sorts on one thread; the gradient sorts again, with places",
    "select": "a kernel that counts; its gradient is added to zeros",
    "few": "a kernel; its gradient is added to zeros by NumPy, on one thread",
    "gather": "a kernel each way; most of the time is in adding at the indices",
    "rows": "a kernel each way, which copy rows and add rows: nine tenths of the time",
    "copies": "a kernel against memcpy",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch

    draw = Draw(0)
    yield from _products(draw, torch)
    yield from _elementwise(draw, torch)
    yield from _sums(draw, torch)
    yield from _running(draw, torch)
    yield from _order(draw, torch)
    yield from _indices(draw, torch)
    yield from _copies(draw, torch)


def _products(draw: Draw, torch: Any) -> Iterator[Case]:
    square, many = [draw.normal(512, 512) for _ in "ab"], [draw.normal(64, 128, 128)] * 2
    yield Case("matmul 512", "gemm", rg.matmul, torch.matmul, square)
    yield Case("matmul, batch 64 of 128", "gemm", rg.matmul, torch.matmul, many)
    heads = [draw.normal(4, 256, 8, 64), draw.normal(4, 256, 8, 64)]
    yield Case(
        "einsum bqhd,bkhd->bhqk, 4x256x8x64",
        "gemm",
        lambda q, k: rg.einsum("bqhd,bkhd->bhqk", q, k),
        lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k),
        heads,
    )


def _elementwise(draw: Draw, torch: Any) -> Iterator[Case]:
    x, y, row = draw.normal(10**6), draw.normal(10**6), draw.normal(1024)
    wide = draw.normal(4096, 1024)
    yield Case("tanh(x) * y + x, 1e6", "elementwise", _chain(rg), _chain(torch), [x, y])
    yield Case("x ** 2.5, 1e6", "elementwise", *[lambda x: x**2.5] * 2, [np.abs(x) + 0.1])
    yield Case("x + row, 4096 x 1024", "elementwise", rg.add, torch.add, [wide, row])
    hold = draw.rng.integers(0, 2, 10**6) > 0
    ours, theirs = rg.asarray(hold), torch.from_numpy(hold)
    yield Case(
        "where 1e6",
        "elementwise",
        lambda x, y: rg.where(ours, x, y),
        lambda x, y: torch.where(theirs, x, y),
        [x, y],
    )


def _chain(xp: Any) -> Callable[..., Any]:
    return lambda x, y: xp.tanh(x) * y + x


def _sums(draw: Draw, torch: Any) -> Iterator[Case]:
    x, long = [draw.normal(4096, 1024)], [draw.normal(16384, 1024)]

    def both(ours: Any, theirs: Any, axis: int) -> list[Any]:
        return [lambda x: ours(x, axis=axis), lambda x: theirs(x, axis)]

    yield Case("sum 16384 x 1024 over rows", "sums", *both(rg.sum, torch.sum, 0), long)
    yield Case("sum 16384 x 1024 over columns", "sums", *both(rg.sum, torch.sum, 1), long)
    yield Case("max 4096 x 1024 over columns", "sums", *both(rg.max, torch.amax, 1), x)
    yield Case("var 4096 x 1024", "sums", *both(rg.var, _var, 1), x)
    yield Case("std 4096 x 1024", "sums", *both(rg.std, lambda *a: _var(*a).sqrt(), 1), x)
    yield Case("logsumexp 4096 x 1024", "sums", *both(rg.logsumexp, torch.logsumexp, 1), x)


def _var(x: Any, axis: int) -> Any:
    """In steps, which takes PyTorch half the time of its torch.var."""
    return (x - x.mean(axis, keepdim=True)).square().mean(axis)


def _running(draw: Draw, torch: Any) -> Iterator[Case]:
    x = draw.normal(1024, 1024)

    def both(name: str, theirs: Any) -> list[Any]:
        ours = getattr(rg, f"cumulative_{name}")
        return [lambda x: ours(x, axis=1), lambda x: theirs(x, 1)]

    yield Case("cumulative_sum 1024 x 1024", "running sum", *both("sum", torch.cumsum), [x])
    near = [1 + x / 100]
    yield Case(
        "cumulative_prod 1024 x 1024", "running product", *both("prod", torch.cumprod), near
    )
    largest = both("max", lambda x, axis: torch.cummax(x, axis)[0])
    yield Case("cumulative_max 1024 x 1024", "running maximum", *largest, [x])


def _order(draw: Draw, torch: Any) -> Iterator[Case]:
    x = [draw.normal(1024, 1024)]
    yield Case(
        "sort 1024 x 1024",
        "sort",
        lambda x: rg.sort(x, axis=1),
        lambda x: torch.sort(x, dim=1, stable=True)[0],
        x,
    )
    yield Case(
        "argsort 1024 x 1024, forward",
        "sort",
        lambda x: rg.argsort(x, axis=1),
        lambda x: torch.argsort(x, dim=1, stable=True),
        x,
        slope=False,
    )
    yield Case(
        "topk 1024 x 1024, 16",
        "few",
        lambda x: rg.topk(x, 16, axis=1)[0],
        lambda x: torch.topk(x, 16, dim=1)[0],
        x,
    )
    yield Case(
        "quantile 0.3 of 1024 x 1024",
        "select",
        lambda x: rg.quantile(x, 0.3, axis=1),
        lambda x: _between(torch, x, 0.3 * 1023),
        x,
    )


def _between(torch: Any, x: Any, at: float) -> Any:
    """A quantile by two selections, which takes PyTorch half the time of torch.quantile."""
    low, high = (torch.kthvalue(x, int(at) + n, dim=1)[0] for n in (1, 2))
    return torch.lerp(low, high, at - int(at))


def _indices(draw: Draw, torch: Any) -> Iterator[Case]:
    x, more = draw.normal(2048, 512), draw.normal(2048, 512)
    at = draw.rng.integers(0, 2048, (2048, 512))
    ours, theirs = rg.asarray(at), torch.from_numpy(at)
    yield Case(
        "gather 2048 x 512 along 0",
        "gather",
        lambda x: rg.gather(x, ours, axis=0),
        lambda x: torch.gather(x, 0, theirs),
        [x],
    )
    yield Case(
        "scatter_add 2048 x 512 along 0",
        "gather",
        lambda x, y: rg.scatter_add(x, ours, y, axis=0),
        lambda x, y: torch.scatter_add(x, 0, theirs, y),
        [x, more],
    )
    rows = draw.rng.integers(0, 2048, 4096)
    both = _taken(rg.asarray(rows), torch.from_numpy(rows))
    yield Case("x[i], 4096 of 2048 x 512", "rows", *both, [x])


def _taken(ours: Any, theirs: Any) -> list[Any]:
    return [lambda x: rg.take(x, ours, axis=0), lambda x: x.index_select(0, theirs)]


def _copies(draw: Draw, torch: Any) -> Iterator[Case]:
    x, y = draw.normal(64, 256, 128), draw.normal(64, 256, 128)
    yield Case(
        "transposed copy 64x256x128",
        "copies",
        lambda x: rg.reshape(rg.permute_dims(x, (2, 0, 1)), (-1,)),
        lambda x: x.permute(2, 0, 1).reshape(-1),
        [x],
    )
    yield Case(
        "concat 2 of 64x256x128 along 1",
        "copies",
        lambda x, y: rg.concat([x, y], axis=1),
        lambda x, y: torch.cat([x, y], 1),
        [x, y],
    )
    yield Case(
        "pad 64x256x128 by 2",
        "copies",
        lambda x: rg.pad(x, ((0, 0), (2, 2), (2, 2))),
        lambda x: torch.nn.functional.pad(x, (2, 2, 2, 2)),
        [x],
    )
