"""Points against points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "cdist": "distances by differences, for accuracy; PyTorch's by products",
    "coordinates": "a kernel each way",
    "pdist": "a kernel over the pairs; the gradient takes the square of all pairs",
    "neighbours": "two thirds of the time is the kernel that finds the nearest",
    "pairs": "a kernel each way; distances and function are computed again backward",
    "loss": "a kernel each way; the forward pass is computed again backward",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch
    from torch.nn import functional as f

    draw = Draw(6)
    x, y = draw.normal(2000, 16), draw.normal(1500, 16)
    yield Case(
        "cdist 2000 x 16",
        "cdist",
        rg.distances.cdist,
        lambda x: torch.cdist(x, x),
        [x],
        close=1e-3,  # PyTorch's distance of a point to itself, by products, is not quite 0
    )
    yield Case("cdist 2000 and 1500 x 16", "cdist", rg.distances.cdist, torch.cdist, [x, y])
    yield Case(
        "cdist 2000 and 1500 x 16, manhattan",
        "coordinates",
        lambda x, y: rg.distances.cdist(x, y, metric="manhattan"),
        lambda x, y: torch.cdist(x, y, p=1.0),
        [x, y],
    )
    yield Case("pdist 1000 x 16", "pdist", rg.distances.pdist, f.pdist, [x[:1000]])
    yield from _neighbours(torch, x, y)
    yield from _losses(draw, torch, f, x)


def _neighbours(torch: Any, x: Any, y: Any) -> Iterator[Case]:
    def theirs(x: Any, y: Any) -> Any:
        with torch.no_grad():
            at = torch.cdist(x, y).topk(8, largest=False)[1]
        return torch.linalg.vector_norm(x[:, None] - y[at], dim=-1)

    yield Case(
        "knn 2000 in 1500 x 16, 8",
        "neighbours",
        lambda x, y: rg.distances.knn(x, y, k=8)[0],
        theirs,
        [x, y],
    )


def _losses(draw: Draw, torch: Any, f: Any, x: Any) -> Iterator[Case]:
    def squared(x: Any) -> Any:
        size = (x * x).sum(-1)
        return size[:, None] + size - 2 * x @ x.T

    yield Case(
        "pair_reduce exp(-d / 32), 2000 x 16",
        "pairs",
        lambda x: rg.distances.pair_reduce(lambda d: rg.exp(-d / 32), x),
        lambda x: torch.exp(squared(x) / -32).sum(),
        [x],
    )
    views = [draw.normal(1024, 128), draw.normal(1024, 128)]

    def nce(query: Any, keys: Any) -> Any:
        a, b = f.normalize(query, dim=-1), f.normalize(keys, dim=-1)
        return f.cross_entropy(a @ b.T / 0.1, torch.arange(1024))

    yield Case("info_nce 1024 x 128", "loss", rg.nn.info_nce, nce, views)
    three = [draw.normal(8192, 128) for _ in range(3)]
    yield Case("triplet 8192 x 128", "loss", rg.nn.triplet, f.triplet_margin_loss, three)
