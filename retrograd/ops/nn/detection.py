"""Boxes in images: non-maximum suppression and the reading of regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError, TraceError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import FUNCTIONS, Op, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.core.whole import whole
from retrograd.ops import cast, create, gather, options, reduce, select, shape, sort
from retrograd.ops.nn import geometry, grid_sample

__all__ = ["nms", "roi_align"]


@op
class Survivors(Op):
    """Indices of boxes that overlap no better one by more than `threshold`, best first.

    -1 where there are no more; and how many there are. Overlap is the shared area by the
    joined one. Of equal scores the first box is the better.
    """

    threshold: float
    size: int
    outputs = ("indices", "count")
    no_derivative = "its results are indices, constant almost everywhere"

    def shape(self, boxes: Spec, scores: Spec) -> tuple[Spec, Spec]:
        if boxes.ndim < 2 or boxes.shape[-1] != 4 or scores.shape != boxes.shape[:-1]:
            raise ShapeError(
                f"nms: boxes {boxes.shape} and scores {scores.shape} must be [..., n, 4] and "
                f"[..., n]"
            )
        lead = boxes.shape[:-2]
        return Spec((*lead, self.size), dt.int64), Spec(lead, dt.int64)

    def forward(self, boxes, scores):
        to, lead = self.shape(Spec(boxes.shape, boxes.dtype), Spec(scores.shape, scores.dtype))
        indices, count = np.full(to.shape, -1, np.int64), np.zeros(lead.shape, np.int64)
        for at in np.ndindex(lead.shape):
            kept = _kept(boxes[at], scores[at], self.threshold, self.size)
            indices[at][: len(kept)] = kept
            count[at] = len(kept)
        return indices, count

    def expand(self, boxes, scores):
        return _chosen(boxes, scores, self.threshold, self.size)

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        corner = rng.uniform(size=(2, 6, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0.2, 1, (2, 6, 2))], -1)
        yield Survivors(0.3, 6), boxes[0], rng.uniform(size=6)
        yield Survivors(0.3, 3), boxes, rng.uniform(size=(2, 6))
        yield Survivors(0.3, 2), boxes[0, :0], rng.uniform(size=0)

    @staticmethod
    def refuses(rng):
        yield Survivors(0.3, 2), np.ones((2, 3)), np.ones(2), "must be [..., n, 4]"


BLOCK = 64  # boxes that are compared with each other at once


def _kept(boxes: np.ndarray, scores: np.ndarray, threshold: float, most: int) -> list[int]:
    """The greedy choice: the best box, then the best that does not overlap it, and so on.

    Block after block: of those of a block that remain, then of all that come after it, what
    they overlap goes.
    """
    order = np.argsort(-scores, kind="stable")
    ranked = boxes[order].T.copy()
    kept: list[int] = []
    while len(order) and len(kept) < most:
        clash, mine = _clash(ranked[:, :BLOCK], ranked[:, :BLOCK], threshold), []
        gone = np.zeros(len(clash), bool)
        for n, row in enumerate(clash):
            if not gone[n]:
                mine.append(n)
                gone |= row
        kept += order[mine].tolist()
        stays = ~_clash(ranked[:, mine], ranked[:, BLOCK:], threshold).any(0)
        order, ranked = order[BLOCK:][stays], ranked[:, BLOCK:][:, stays]
    return kept[:most]


def _clash(a: np.ndarray, b: np.ndarray, threshold: float) -> np.ndarray:
    """Which boxes of a, the better ones, overlap which of b: corners are rows of both."""
    one, other = map(_areas, (a, b))
    across = np.minimum(a[2][:, None], b[2]) - np.maximum(a[0][:, None], b[0])
    down = np.minimum(a[3][:, None], b[3]) - np.maximum(a[1][:, None], b[1])
    shared = np.maximum(across, 0, out=across) * np.maximum(down, 0, out=down)
    return shared > threshold * (one[:, None] + other - shared)


def _areas(corners: np.ndarray) -> np.ndarray:
    return (corners[2] - corners[0]) * (corners[3] - corners[1])


def _chosen(boxes: Any, scores: Any, threshold: float, most: int) -> tuple[Any, Any]:
    """The greedy choice for all images at once: box after box, the best first."""
    lead, n = scores.shape[:-1], scores.shape[-1]
    indices = create.full((*lead, most), -1, dtype=dt.int64)
    count = create.zeros(lead, dtype=dt.int64)
    if not n or not most:
        return indices, count
    order = sort.argsort(-scores, axis=-1)
    ranked = gather.take_along_axis(boxes, shape.expand_dims(order, axis=-1), axis=-2)
    low, high = ranked[..., :2], ranked[..., 2:]
    area = _product(high - low)

    def row(x: Any, i: Any) -> Any:
        return gather.take(x, shape.reshape(i, (1,)), axis=len(lead))

    def going(state: Any) -> Any:
        i, _, _, count = state
        return (i < n) & reduce.any(count < most)

    def turn(state: Any) -> Any:
        i, alive, indices, count = state
        full = shape.expand_dims(count, axis=-1)
        now = row(alive, i) & (full < most)
        here = create.arange(most, dtype=dt.int64) == full
        indices = select.where(now & here, row(order, i), indices)
        side = select.minimum(row(high, i), high) - select.maximum(row(low, i), low)
        shared = _product(select.maximum(side, 0))
        covered = now & (shared > threshold * (row(area, i) + area - shared))
        count = count + cast.astype(shape.reshape(now, lead), dt.int64)
        return i + 1, alive & ~covered, indices, count

    first = create.zeros((), dtype=dt.int64), create.ones(order.shape, dtype=dt.bool)
    _, _, indices, count = FUNCTIONS["while_loop"](going, turn, (*first, indices, count))
    return indices, count


def _product(sides: Any) -> Any:
    """The area of boxes with these sides."""
    return sides[..., 0] * sides[..., 1]


def nms(
    boxes: Any, scores: Any, /, *, threshold: float = 0.5, size: int | None = None
) -> Tensor:
    """Indices of the boxes (x1, y1, x2, y2) that survive non-maximum suppression, best first.

    Without `size` their number depends on the values: eager only. With it there are `size`
    indices, -1 where there are no more; leading axes are then separate images.
    """
    boxes, scores = lift(boxes), lift(scores)
    threshold = options.number("nms", "threshold", threshold)
    if size is not None:
        size = options.integer("nms", "size", size, least=0)
        return apply(Survivors(threshold, size), boxes, scores)[0]
    if isinstance(boxes, Box) or isinstance(scores, Box):
        raise TraceError(
            "nms: how many boxes survive is known only when their values are; inside "
            "transforms give size=",
            hint="nms(boxes, scores, size=100)",
        )
    if boxes.ndim != 2:
        raise ShapeError(f"nms: boxes {boxes.shape} must be [n, 4]; for more images give size=")
    indices, count = apply(Survivors(threshold, boxes.shape[0]), boxes, scores)
    return indices[: int(count)]


@whole
def roi_align(
    x: Any,
    boxes: Any,
    size: Any,
    /,
    *,
    scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    layout: str | None = None,
) -> Tensor:
    """Means of x [N, H, W, C] in `size` cells of each box: [K, *size, C].

    boxes [K, 5] are (image, x1, y1, x2, y2), times `scale` in elements of x. Each cell is the
    mean of samples x samples bilinear readings. `aligned` puts element centres at whole
    places plus a half; without it boxes are at least 1 wide, as in old models. As in
    torchvision, with derivatives in the boxes too.
    """
    x, boxes = geometry.channels_last("roi_align", lift(x), layout), lift(boxes)
    if x.ndim != 4 or boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ShapeError(
            f"roi_align: x {x.shape} and boxes {boxes.shape} must be [N, H, W, C] and [K, 5]"
        )
    samples = options.integer("roi_align", "samples", samples, least=1)
    cells = geometry.per_axis("roi_align", "size", size, 2)
    scale = options.number("roi_align", "scale", scale)
    if not boxes.shape[0]:
        none = create.zeros((0, *cells, x.shape[-1]), dtype=x.dtype)
        return geometry.as_given("roi_align", none, layout)
    if not x.shape[0] or not all(x.shape[1:3]):
        raise ArgumentError(f"roi_align: x {x.shape} has no elements to read")
    taps = []
    for k, count in enumerate(c * samples for c in cells):
        at = _spread(boxes, k, count, scale, aligned=aligned)
        taps.append(_clamped(shape.expand_dims(at, axis=2 - k), x.shape[1 + k]))
    rows = shape.reshape(cast.astype(boxes[:, 0], dt.int64), (boxes.shape[0], 1, 1))
    found = grid_sample.read(x, rows, taps)
    apart = (boxes.shape[0], cells[0], samples, cells[1], samples, x.shape[-1])
    mean = reduce.mean(shape.reshape(found, apart), axis=(2, 4))
    return geometry.as_given("roi_align", mean, layout)


def _spread(boxes: Any, axis: int, count: int, scale: float, *, aligned: bool) -> Any:
    """Places of `count` samples along the height (axis 0) or width of each box: [K, count]."""
    shift = 0.5 if aligned else 0.0
    start, stop = boxes[:, 2 - axis] * scale - shift, boxes[:, 4 - axis] * scale - shift
    length = stop - start if aligned else select.maximum(stop - start, 1.0)
    steps = lift(((np.arange(count) + 0.5) / count).astype(boxes.dtype))
    column = (boxes.shape[0], 1)
    return shape.reshape(start, column) + shape.reshape(length, column) * steps


def _clamped(at: Any, n: int) -> list[tuple[Any, Any]]:
    """Both neighbours; up to one element outside x its border is read, beyond it zeros."""
    near = (at >= -1.0) & (at <= float(n))
    inside = select.clip(at, 0.0, float(n - 1))
    return [(i, select.where(near, w, 0.0)) for i, w in grid_sample._linear(inside)]
