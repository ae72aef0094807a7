"""Layers of networks that are no convolutions: activations, norms, losses, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "gelu": "a division, an exp and a polynomial of degree 8, for accuracy in the tail",
    "silu": "a kernel each way",
    "activation": "a kernel each way",
    "softmax": "a kernel each way",
    "norm": "a kernel each way; the statistics are computed again backward",
    "loss": "a kernel each way; the forward pass is computed again backward",
    "random": "the random bits are made again backward: no mask is kept",
    "embedding": "rows are added in the order of the indices: bits do not depend on threads",
    "rotary": "a kernel each way",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch
    from torch.nn import functional as f

    draw = Draw(1)
    yield from _activations(draw, f)
    yield from _norms(draw, f)
    yield from _losses(draw, torch, f)
    yield from _random(draw, f)
    yield from _tables(draw, torch, f)


def _activations(draw: Draw, f: Any) -> Iterator[Case]:
    x, nn = [draw.normal(10**6)], rg.nn
    yield Case("gelu 1e6", "gelu", nn.gelu, f.gelu, x)
    yield Case("silu 1e6", "silu", nn.silu, f.silu, x)
    yield Case("softplus 1e6", "activation", nn.softplus, f.softplus, x)
    wide = [draw.normal(4096, 1024)]
    yield Case("softmax 4096 x 1024", "softmax", nn.softmax, lambda x: f.softmax(x, -1), wide)


def _norms(draw: Draw, f: Any) -> Iterator[Case]:
    wide = [draw.normal(4096, 1024), draw.normal(1024), draw.normal(1024)]
    yield Case(
        "layer_norm 4096 x 1024",
        "norm",
        rg.nn.layer_norm,
        lambda x, w, b: f.layer_norm(x, (1024,), w, b),
        wide,
    )
    yield Case(
        "rms_norm 4096 x 1024",
        "norm",
        rg.nn.rms_norm,
        lambda x, w: f.rms_norm(x, (1024,), w, 1e-6),
        wide[:2],
    )


def _losses(draw: Draw, torch: Any, f: Any) -> Iterator[Case]:
    labels, x = draw.rng.integers(0, 1000, 2048), draw.normal(2048, 1000)
    theirs = torch.from_numpy(labels)
    yield Case(
        "cross_entropy 2048 x 1000",
        "loss",
        lambda x: rg.nn.cross_entropy(x, labels),
        lambda x: f.cross_entropy(x, theirs),
        [x],
    )
    share = draw.uniform(0, 1, 2048, 1000)
    their_share = torch.from_numpy(share)
    yield Case(
        "bce_logits 2048 x 1000",
        "loss",
        lambda x: rg.nn.bce_logits(x, share),
        lambda x: f.binary_cross_entropy_with_logits(x, their_share),
        [x],
    )


def _random(draw: Draw, f: Any) -> Iterator[Case]:
    key = rg.random.key(0)
    yield Case(
        "dropout 1e6",
        "random",
        lambda x: rg.nn.dropout(key, x),
        f.dropout,
        [draw.normal(10**6)],
        same=_dropped,
    )


def _dropped(case: Case, seeds: Any, ours: Any, theirs: Any) -> None:
    """Each engine drops its own half: what remains is doubled, in result and gradient."""
    for (out,), (slope,) in (ours, theirs):
        left = out != 0
        assert abs(left.mean() - 0.5) < 0.01, case.name
        np.testing.assert_allclose(out, 2 * case.arrays[0] * left, rtol=1e-6)
        np.testing.assert_allclose(slope, 2 * seeds[0] * left, rtol=1e-6)


def _tables(draw: Draw, torch: Any, f: Any) -> Iterator[Case]:
    ids = draw.rng.integers(0, 20000, 50000)
    theirs = torch.from_numpy(ids)
    yield Case(
        "embedding 20,000 x 128, 50,000 ids",
        "embedding",
        lambda w: rg.embedding(ids, w),
        lambda w: f.embedding(theirs, w),
        [draw.normal(20000, 128)],
    )
    rates = 10000.0 ** -(torch.arange(32) / 32)
    angles = torch.arange(1024)[:, None] * rates
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    yield Case(
        "rotary 4x1024x8x64", "rotary", rg.nn.rotary, turned, [draw.normal(4, 1024, 8, 64)]
    )
