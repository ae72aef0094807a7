"""Images: pools, norms, resizing, sampling, regions, similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "pool": "a kernel each way; the winners are looked for again backward",
    "average": "a kernel each way",
    "adaptive": "a kernel each way, over windows of all axes",
    "norm": "a kernel each way; the statistics are computed again backward",
    "groups": "backward the image is read three times: for its statistics, for sums, at last",
    "resize": "a kernel each way, over all axes",
    "sample": "four corners gathered; gradients added in the order of places, on one thread",
    "ssim": "a kernel each way; the forward pass is computed again backward",
    "boxes": "a few NumPy calls for each 64 boxes",
}
LAST, FIRST = ("last", "last"), ("first", "first")


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch
    from torch.nn import functional as f

    draw = Draw(3)
    image = draw.normal(8, 56, 56, 64)
    yield from _pools(f, image)
    yield from _norms(draw, f, image)
    yield from _resizes(f, image)
    yield from _samples(draw, torch, f, image)
    yield _ssim(draw, torch, f)
    yield _nms(draw, torch)


def _pools(f: Any, image: Any) -> Iterator[Case]:
    for name, kind, shown, args, options in (
        ("max_pool", "pool", "2x2", (2,), {}),
        ("max_pool", "pool", "3x3, stride 2", (3,), {"stride": 2, "padding": 1}),
        ("avg_pool", "average", "2x2", (2,), {}),
        ("lp_pool", "average", "2x2", (2, 2), {}),
        ("adaptive_avg_pool", "adaptive", "to 9x9", (9,), {}),
        ("adaptive_max_pool", "pool", "to 9x9", (9,), {}),
    ):
        ours, theirs = (
            lambda x, g=g, args=args, options=options: g(x, *args, **options)
            for g in (getattr(rg.nn, name), getattr(f, f"{name}2d"))
        )
        yield Case(f"{name} 8x56x56x64, {shown}", kind, ours, theirs, [image], LAST)


def _norms(draw: Draw, f: Any, image: Any) -> Iterator[Case]:
    zeros, ones = np.zeros(64, np.float32), np.ones(64, np.float32)
    given, nn = [image, draw.normal(64), draw.normal(64)], rg.nn
    layouts = ("first", "plain", "plain", "first")
    yield Case(
        "batch_norm 8x56x56x64",
        "norm",
        lambda x, w, b: nn.batch_norm(x, zeros, ones, w, b, training=True)[0],
        lambda x, w, b: f.batch_norm(x, None, None, w, b, training=True),
        given,
        layouts,
    )
    yield Case(
        "group_norm 8x56x56x64, 8 groups",
        "groups",
        lambda x, w, b: nn.group_norm(x, 8, w, b),
        lambda x, w, b: f.group_norm(x, 8, w, b),
        given,
        layouts,
    )
    yield Case(
        "instance_norm 8x56x56x64",
        "norm",
        nn.instance_norm,
        lambda x, w, b: f.instance_norm(x, None, None, w, b),
        given,
        layouts,
    )


def _resizes(f: Any, image: Any) -> Iterator[Case]:
    for mode, size, layouts in (
        ("bilinear", 112, LAST),
        ("nearest", 112, LAST),
        ("area", 24, LAST),
        ("bicubic", 84, FIRST),
    ):
        yield Case(
            f"resize 8x56x56x64 to {size}x{size}, {mode}",
            "adaptive" if mode == "area" else "resize",
            lambda x, size=size, mode=mode: rg.nn.resize(x, (size, size), mode=mode),
            lambda x, size=size, mode=mode: f.interpolate(x, (size, size), mode=mode),
            [image],
            layouts,
        )


def _samples(draw: Draw, torch: Any, f: Any, image: Any) -> Iterator[Case]:
    yield Case(
        "grid_sample 8x56x56x64",
        "sample",
        rg.nn.grid_sample,
        lambda x, g: f.grid_sample(x, g, align_corners=False),
        [image, draw.uniform(-1, 1, 8, 56, 56, 2)],
        ("first", "plain", "first"),
    )
    low, high = draw.uniform(1, 24, 128, 2), draw.uniform(28, 55, 128, 2)
    boxes = np.concatenate([np.repeat(np.arange(8.0), 16)[:, None], low, high], 1)

    def theirs(x: Any, boxes: Any) -> Any:
        """The boxes of each image below each other, in one grid of 16 * 14 rows."""
        steps = (torch.arange(14) + 0.5) / 14
        at = boxes[:, None, 1:3] + (boxes[:, None, 3:] - boxes[:, None, 1:3]) * steps[:, None]
        across, down = (at * (2 / 56) - 1).unbind(-1)
        grid = torch.stack(torch.broadcast_tensors(across[:, None], down[:, :, None]), -1)
        found = f.grid_sample(x, grid.reshape(8, 16 * 14, 14, 2), align_corners=False)
        cells = f.avg_pool2d(found, 2).reshape(8, 64, 16, 7, 7)
        return cells.transpose(1, 2).reshape(128, 64, 7, 7)

    yield Case(
        "roi_align 8x56x56x64, 128 boxes to 7x7",
        "sample",
        lambda x, b: rg.nn.roi_align(x, b, 7),
        theirs,
        [image, boxes.astype(np.float32)],
        ("first", "plain", "first"),
    )


def _ssim(draw: Draw, torch: Any, f: Any) -> Case:
    line = torch.exp(-((torch.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
    line = (line / line.sum()).reshape(1, 1, 11, 1).expand(15, 1, 11, 1)

    def theirs(x: Any, y: Any) -> Any:
        maps = torch.cat([x, y, x * x, y * y, x * y], 1)
        maps = f.conv2d(f.conv2d(maps, line, groups=15), line.mT, groups=15)
        mx, my, xx, yy, xy = maps.chunk(5, 1)
        top = (2 * mx * my + 1e-4) * (2 * (xy - mx * my) + 9e-4)
        low = (mx**2 + my**2 + 1e-4) * (xx - mx**2 + yy - my**2 + 9e-4)
        return (top / low).mean()

    pair = [draw.uniform(0, 1, 4, 128, 128, 3) for _ in "xy"]
    return Case(
        "ssim 4x128x128x3", "ssim", rg.nn.ssim, theirs, pair, ("first", "first", "plain")
    )


def _nms(draw: Draw, torch: Any) -> Case:
    low = draw.uniform(0, 100, 1000, 2)
    boxes = np.concatenate([low, low + draw.uniform(5, 30, 1000, 2)], 1)

    def theirs(boxes: Any, scores: Any) -> Any:
        order, kept = torch.argsort(scores, descending=True), []
        boxes = boxes[order]
        side = boxes[:, 2:] - boxes[:, :2]
        area = side[:, 0] * side[:, 1]
        edge = torch.minimum(boxes[:, None, 2:], boxes[:, 2:]) - torch.maximum(
            boxes[:, None, :2], boxes[:, :2]
        )
        shared = edge.clamp(min=0).prod(-1)
        clash = (shared > 0.5 * (area[:, None] + area - shared)).numpy()
        gone = np.zeros(len(boxes), bool)
        for n in range(len(boxes)):
            if not gone[n]:
                kept.append(n)
                gone |= clash[n]
        return order[kept]

    return Case(
        "nms, 1000 boxes, forward",
        "boxes",
        rg.nn.nms,
        theirs,
        [boxes, draw.uniform(0, 1, 1000)],
        slope=False,
    )
