"""Heavy ops, forward and backward, eager against PyTorch eager, two threads each.

Each row: gradients of sum(op(...) * weights) with respect to all float inputs, float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.timing import interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RNG = np.random.default_rng(0)
REASONS = {
    "conv": "columns are copied for one matrix product; oneDNN works on the image itself",
    "taps": "one NumPy pass for each place of the window, on one thread",
    "pool": "NumPy compares the windows one offset at a time",
    "lstm": "one NumPy call for each step and gate; oneDNN runs the sequence in one kernel",
    "gru": "as the LSTM",
    "elementwise": "NumPy makes one pass for each operation, on one thread",
    "rows": "several NumPy passes over memory, on one thread",
    "gather": "NumPy adds duplicate rows on one thread",
    "attention": "tiles of NumPy calls, exp on one thread",
    "resize": "a pass for each axis and corner, on one thread",
    "lapack": "NumPy keeps no factorization, so the backward pass factors again",
    "fft": "NumPy's transform against MKL's",
    "sort": "NumPy sorts with the stable algorithm, on one thread, and gathers",
    "distances": "differences, not products, for accuracy; on one thread",
}


def normal(*shape: int) -> np.ndarray:
    """Float32 numbers of the normal distribution."""
    return RNG.normal(size=shape).astype(np.float32)


def cases() -> Iterator[tuple[str, str, Any, Any, list[np.ndarray]]]:
    """(name, kind, ours, PyTorch's, arrays): functions of the arrays to one tensor."""
    import torch
    from torch.nn import functional as f

    nn = rg.nn
    yield "matmul 512", "gemm", rg.matmul, torch.matmul, [normal(512, 512), normal(512, 512)]
    yield "tanh(x) * y + x, 1e6", "elementwise", _chain(rg), _chain(torch), [normal(10**6)] * 2
    yield "gelu 1e6", "elementwise", nn.gelu, f.gelu, [normal(10**6)]
    yield "softmax 4096 x 1024", "rows", nn.softmax, _last(f.softmax), [normal(4096, 1024)]
    yield (
        "layer_norm 4096 x 1024",
        "rows",
        nn.layer_norm,
        lambda x, w, b: f.layer_norm(x, (1024,), w, b),
        [normal(4096, 1024), normal(1024), normal(1024)],
    )
    labels, ids = RNG.integers(0, 1000, 2048), RNG.integers(0, 20000, 50000)
    their_labels, their_ids = torch.from_numpy(labels), torch.from_numpy(ids)
    yield (
        "cross_entropy 2048 x 1000",
        "rows",
        lambda x: nn.cross_entropy(x, labels),
        lambda x: f.cross_entropy(x, their_labels),
        [normal(2048, 1000)],
    )
    yield from _convolutions(nn, f)
    yield from _images(nn, f)
    yield from _sequences(nn, f, torch)
    yield from _algebra(torch)
    yield (
        "embedding 20,000 x 128, 50,000 ids",
        "gather",
        lambda w: rg.embedding(ids, w),
        lambda w: f.embedding(their_ids, w),
        [normal(20000, 128)],
    )
    points = normal(2000, 16)
    yield (
        "cdist 2000 x 16",
        "distances",
        rg.distances.cdist,
        lambda x: torch.cdist(x, x),
        [points],
    )


def _chain(xp: Any) -> Callable[..., Any]:
    return lambda x, y: xp.tanh(x) * y + x


def _last(f: Any) -> Callable[..., Any]:
    return lambda x: f(x, -1)


def _convolutions(nn: Any, f: Any) -> Iterator[Any]:
    image, weight = normal(8, 28, 28, 64), normal(3, 3, 64, 64)

    def theirs(x: Any, w: Any, groups: int = 1) -> Any:
        out = f.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1, groups=groups)
        return out.permute(0, 2, 3, 1)

    yield "conv 8x28x28x64, 3x3", "conv", _padded(nn.conv), theirs, [image, weight]
    thin = normal(3, 3, 1, 64)
    yield (
        "depthwise conv 8x28x28x64, 3x3",
        "taps",
        _padded(nn.depthwise_conv),
        lambda x, w: theirs(x, w, 64),
        [image, thin],
    )
    yield (
        "max_pool 8x28x28x64, 2x2",
        "pool",
        lambda x: nn.max_pool(x, 2),
        lambda x: f.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1),
        [image],
    )


def _images(nn: Any, f: Any) -> Iterator[Any]:
    image, volume = normal(8, 28, 28, 64), normal(2, 8, 16, 16, 16)

    def first(g: Any) -> Callable[..., Any]:
        return lambda x, *rest: g(x.movedim(-1, 1), *rest).movedim(1, -1)

    yield (
        "conv 2x8x16x16x16, 3x3x3 to 32",
        "conv",
        _padded(nn.conv),
        first(lambda x, w: f.conv3d(x, w.permute(4, 3, 0, 1, 2), padding=1)),
        [volume, normal(3, 3, 3, 16, 32)],
    )
    average = first(lambda x: f.avg_pool2d(x, 2))
    yield "avg_pool 8x28x28x64, 2x2", "pool", lambda x: nn.avg_pool(x, 2), average, [image]
    zeros, ones = np.zeros(64, np.float32), np.ones(64, np.float32)
    yield (
        "batch_norm 8x28x28x64",
        "rows",
        lambda x, w, b: nn.batch_norm(x, zeros, ones, w, b, training=True)[0],
        first(lambda x, w, b: f.batch_norm(x, None, None, w, b, training=True)),
        [image, normal(64), normal(64)],
    )
    yield (
        "resize 8x28x28x64 to 56x56",
        "resize",
        lambda x: nn.resize(x, (56, 56)),
        first(lambda x: f.interpolate(x, (56, 56), mode="bilinear")),
        [image],
    )
    grid = RNG.uniform(-1, 1, (8, 28, 28, 2)).astype(np.float32)
    yield (
        "grid_sample 8x28x28x64",
        "gather",
        lambda x, g: nn.grid_sample(x, g, align_corners=False),
        lambda x, g: f.grid_sample(x.movedim(-1, 1), g, align_corners=False).movedim(1, -1),
        [image, grid],
    )


def _algebra(torch: Any) -> Iterator[Any]:
    square = normal(256, 256)
    definite = square @ square.T / 256 + np.eye(256, dtype=np.float32)
    both = [definite, normal(256, 64)]
    yield "solve 256", "lapack", rg.linalg.solve, torch.linalg.solve, both
    yield "cholesky 256", "lapack", rg.linalg.cholesky, _lower(torch), [definite]
    yield "svdvals 256", "lapack", rg.linalg.svdvals, torch.linalg.svdvals, [square]
    wave = normal(256, 4096)
    ours, theirs = (lambda x, f=f: abs(f(x)) ** 2 for f in (rg.fft.rfft, torch.fft.rfft))
    yield "abs(rfft)**2, 256 x 4096", "fft", ours, theirs, [wave]
    sums = (lambda x: rg.cumulative_sum(x, axis=1)), (lambda x: torch.cumsum(x, 1))
    yield "cumulative_sum 1024 x 1024", "rows", *sums, [normal(1024, 1024)]
    sorts = (lambda x: rg.sort(x, axis=1)), (lambda x: torch.sort(x, dim=1, stable=True)[0])
    yield "sort 1024 x 1024", "sort", *sorts, [normal(1024, 1024)]


def _lower(torch: Any) -> Callable[..., Any]:
    # ours reads the Hermitian part, so its gradient is symmetric: so is this one's
    return lambda x: torch.linalg.cholesky((x + x.T) / 2)


def _padded(conv: Any) -> Callable[..., Any]:
    return lambda x, w: conv(x, w, padding=1)


def _sequences(nn: Any, f: Any, torch: Any) -> Iterator[Any]:
    for name, gates in (("lstm", 4), ("gru", 3)):
        layer = getattr(torch.nn, name.upper())(128, 256, batch_first=True)
        weights = [p.detach().numpy() for p in layer.parameters()]
        arrays = [normal(32, 64, 128), *(w.T.copy() for w in weights[:2]), *weights[2:]]
        ours = getattr(nn, name)

        def run(x: Any, *ws: Any, layer: Any = layer) -> Any:
            named = dict(zip([n for n, _ in layer.named_parameters()], ws, strict=True))
            turned = {n: w.T if "weight" in n else w for n, w in named.items()}
            return torch.func.functional_call(layer, turned, (x,))[0]

        assert arrays[1].shape == (128, gates * 256)
        yield f"{name}, T 64, batch 32, 128 to 256", name, _only_y(ours), run, arrays
    q = normal(2, 512, 8, 64)

    def attend(q: Any, k: Any, v: Any) -> Any:
        heads = [t.transpose(1, 2) for t in (q, k, v)]
        return f.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)

    ours = lambda q, k, v: nn.attention(q, k, v, causal=True)  # noqa: E731
    yield "attention, T 512, 8 heads, causal", "attention", ours, attend, [q, q + 1, q - 1]


def _only_y(f: Any) -> Callable[..., Any]:
    return lambda *a: f(*a)[0]


def our_step(f: Any, arrays: list[np.ndarray], g: np.ndarray) -> Callable[[], list[Any]]:
    """Forward and backward on the tape."""
    xs = [rg.tensor(a, requires_grad=True) for a in arrays]
    seed = rg.asarray(g)

    def run() -> list[Any]:
        f(*xs).backward(seed, accumulate=False)
        return [x.grad for x in xs]

    return run


def torch_step(f: Any, arrays: list[np.ndarray], g: np.ndarray) -> Callable[[], list[Any]]:
    """Forward and backward in PyTorch."""
    import torch

    xs = [torch.tensor(a, requires_grad=True) for a in arrays]
    seed = torch.from_numpy(g)
    return lambda: list(torch.autograd.grad(f(*xs), xs, seed))


def measure() -> list[dict[str, Any]]:
    """One row for each op: milliseconds and the ratio; above 3 the reason stands beside it."""
    import torch

    torch.set_num_threads(2)
    rows = []
    for name, kind, ours, theirs, arrays in cases():
        out = ours(*(rg.asarray(a) for a in arrays))
        g = RNG.normal(size=out.shape).astype(np.float32)
        runs = {"ours": our_step(ours, arrays, g), "torch": torch_step(theirs, arrays, g)}
        for a, b in zip(runs["ours"](), runs["torch"](), strict=True):
            scale = np.abs(b.numpy()).max() + 1e-6
            np.testing.assert_allclose(np.asarray(a) / scale, b.numpy() / scale, atol=2e-4)
        best = interleaved(runs, rounds=30, warmup=2)
        ratio = best["ours"] / best["torch"]
        rows.append(
            {
                "op": name,
                "ms": round(best["ours"] * 1e3, 2),
                "PyTorch ms": round(best["torch"] * 1e3, 2),
                "ratio": round(ratio, 2),
                "why above 3": REASONS.get(kind, "") if ratio > 3 else "",
            }
        )
        print(rows[-1], flush=True)
    return rows
