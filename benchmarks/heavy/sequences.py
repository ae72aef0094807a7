"""Sequences: recurrent networks, attention, alignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "recurrent": "our kernel against oneDNN's",
    "attention": "our kernels against PyTorch's",
    "ctc": "a kernel each way; the forward walk is made again backward",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch
    from torch.nn import functional as f

    draw = Draw(4)
    for name in ("rnn", "lstm", "gru"):
        yield _recurrent(draw, torch, name)
    yield from _attention(draw, f)
    yield _ctc(draw, torch, f)


def _recurrent(draw: Draw, torch: Any, name: str) -> Case:
    layer = getattr(torch.nn, name.upper())(128, 256, batch_first=True)
    names = [n for n, _ in layer.named_parameters()]
    weights = [p.detach().numpy() for p in layer.parameters()]
    arrays = [draw.normal(32, 64, 128), *(w.T.copy() for w in weights[:2]), *weights[2:]]

    def theirs(x: Any, *ws: Any) -> Any:
        turned = {n: w.T if "weight" in n else w for n, w in zip(names, ws, strict=True)}
        return torch.func.functional_call(layer, turned, (x,))[0]

    ours = getattr(rg.nn, name)
    return Case(
        f"{name}, T 64, batch 32, 128 to 256",
        "recurrent",
        lambda *a: ours(*a)[0],
        theirs,
        arrays,
    )


def _attention(draw: Draw, f: Any) -> Iterator[Case]:
    q = draw.normal(2, 512, 8, 64)

    def theirs(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        heads = [t.transpose(1, 2) for t in (q, k, v)]
        return f.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2)

    for name, causal in (("", False), (", causal", True)):
        yield Case(
            f"attention, T 512, 8 heads{name}",
            "attention",
            lambda q, k, v, causal=causal: rg.nn.attention(q, k, v, causal=causal),
            lambda q, k, v, causal=causal: theirs(q, k, v, causal=causal),
            [q, q + 1, q - 1],
        )


def _ctc(draw: Draw, torch: Any, f: Any) -> Case:
    labels = draw.rng.integers(1, 64, (16, 30))
    theirs, frames, lengths = torch.from_numpy(labels), [128] * 16, [30] * 16
    # PyTorch's gradient is that of ctc after log_softmax, so both take it
    return Case(
        "ctc, T 128, batch 16, 64 classes, 30 labels",
        "ctc",
        lambda x: rg.nn.ctc(rg.nn.log_softmax(x), labels),
        lambda x: f.ctc_loss(f.log_softmax(x, -1), theirs, frames, lengths),
        [draw.normal(128, 16, 64)],
        close=1e-3,  # in float32 PyTorch's gradient is 1e-4 from that in float64
    )
