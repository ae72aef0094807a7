"""Convolution in NumPy: windows as columns of one matrix product, a cacheful at a time.

Windows over channels-last data are views; a tile of them is copied into one buffer, which
the matrix product then reads. So the column matrix, as many times as large as its input as
the kernel has places, never exists. Where each channel is its own group there is nothing to
multiply matrices for: sums of products along runs of memory do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from retrograd.ops.nn.geometry import Frame, Sizes

TILE = 1 << 22  # bytes of columns at a time: what stays in a cache
RUN = 1 << 12  # numbers in a run of a depthwise product


def moved(x: np.ndarray, before: Sizes, sizes: Sizes) -> np.ndarray:
    """y[n, i, c] = x[n, i - before, c] for i < sizes, zero outside x; a view where it can be.

    `before` may be negative.
    """
    ends = [
        (max(b, 0), min(b + n, m)) for b, n, m in zip(before, x.shape[1:-1], sizes, strict=True)
    ]
    inner = x[(slice(None), *(_taken(*e, b) for e, b in zip(ends, before, strict=True)))]
    if inner.shape[1:-1] == tuple(sizes):
        return inner
    out = np.zeros((len(x), *sizes, x.shape[-1]), x.dtype)
    if inner.size:
        out[(slice(None), *(slice(*e) for e in ends))] = inner
    return out


def _taken(start: int, stop: int, before: int) -> slice:
    return slice(start - before, max(stop, start) - before)


def windows(x: np.ndarray, frame: Frame, groups: int) -> np.ndarray:
    """The view [groups, N, *counts, *kernel, C / groups] of x, whose border is there."""
    *lead, channels = x.shape
    apart = x[None]
    if groups > 1:  # regrouped, runs are longer and tiles are copied faster
        apart = np.moveaxis(x.reshape(*lead, groups, channels // groups), -2, 0)
        apart = np.ascontiguousarray(apart)
    group, batch, *steps, last = apart.strides
    along = [a * s for a, s in zip(steps, frame.stride, strict=True)]
    inside = [a * d for a, d in zip(steps, frame.dilation, strict=True)]
    shape = (groups, lead[0], *frame.counts, *frame.kernel, channels // groups)
    strides = (group, batch, *along, *inside, last)
    return as_strided(apart, shape, strides, writeable=False)


def blocks(sizes: Sizes, unit: int) -> Iterator[tuple[slice, ...]]:
    """An array of `sizes` in parts of at most TILE bytes, `unit` bytes for each element."""
    if not prod(sizes):
        return
    most, whole, axis = TILE // max(unit, 1), 1, len(sizes)
    while axis and whole * sizes[axis - 1] <= most:
        axis -= 1
        whole *= sizes[axis]
    rest = tuple(slice(0, n) for n in sizes[axis:])
    if not axis:
        yield rest
        return
    step = max(1, most // whole)
    for lead in np.ndindex(*sizes[: axis - 1]):
        for a in range(0, sizes[axis - 1], step):
            part = slice(a, min(a + step, sizes[axis - 1]))
            yield (*(slice(i, i + 1) for i in lead), part, *rest)


def columns(
    x: np.ndarray, frame: Frame, groups: int
) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    """Parts of the windows as matrices [groups, windows, places * channels], one by one."""
    view = windows(moved(x, frame.before, frame.reach), frame, groups)
    head = 2 + len(frame.kernel)
    width = prod(view.shape[head:])
    buffer = None
    for block in blocks(view.shape[1:head], width * groups * x.itemsize):
        part = view[(slice(None), *block)]
        if buffer is None:  # the first part is the largest
            buffer = np.empty(part.size, x.dtype)
        tile = buffer[: part.size].reshape(part.shape)
        np.copyto(tile, part)
        yield block, tile.reshape(groups, prod(part.shape[1:head]), width)


def by_group(w: np.ndarray, groups: int) -> np.ndarray:
    """Weights [*kernel, C / groups, out] as matrices [groups, places * C / groups, each]."""
    *kernel, deep, wide = w.shape
    parts = w.reshape(prod(kernel), deep, groups, wide // groups)
    return parts.transpose(2, 0, 1, 3).reshape(groups, prod(kernel) * deep, wide // groups)


def rows(y: np.ndarray, block: tuple[slice, ...], groups: int) -> np.ndarray:
    """A part of [N, *counts, out] as [groups, windows, out / groups]."""
    part = y[block]
    wide = y.shape[-1]
    return part.reshape(prod(part.shape[:-1]), groups, wide // groups).transpose(1, 0, 2)


def convolve(x: np.ndarray, w: np.ndarray, frame: Frame, groups: int) -> np.ndarray:
    """[N, *counts, out] from [N, *sizes, C] and [*kernel, C / groups, out]."""
    if groups > 1 and w.shape[-2] == 1:
        return depthwise(x, w[..., 0, :], frame)
    out = np.empty((len(x), *frame.counts, w.shape[-1]), x.dtype)
    if groups == 1 and prod(frame.kernel) == 1:
        points = _points(x, frame)
        np.matmul(points, w.reshape(w.shape[-2:]), out=out.reshape(len(points), w.shape[-1]))
        return out
    weights = by_group(w, groups)
    for block, tile in columns(x, frame, groups):
        np.matmul(tile, weights, out=rows(out, block, groups))
    return out


def weight_gradient(x: np.ndarray, g: np.ndarray, frame: Frame, groups: int) -> np.ndarray:
    """[*kernel, C / groups, out] from [N, *sizes, C] and [N, *counts, out]."""
    deep, wide = x.shape[-1] // groups, g.shape[-1]
    if groups > 1 and deep == 1:
        return depthwise_weights(x, g, frame)[..., None, :]
    if groups == 1 and prod(frame.kernel) == 1:
        points = _points(x, frame)
        out = np.matmul(points.T, g.reshape(len(points), wide))
        return out.reshape(*frame.kernel, deep, wide)
    total = np.zeros((groups, prod(frame.kernel) * deep, wide // groups), x.dtype)
    part = np.empty_like(total)
    for block, tile in columns(x, frame, groups):
        np.matmul(tile.transpose(0, 2, 1), rows(g, block, groups), out=part)
        total += part
    apart = total.reshape(groups, *frame.kernel, deep, wide // groups)
    return np.moveaxis(apart, 0, -2).reshape(*frame.kernel, deep, wide)


def _points(x: np.ndarray, frame: Frame) -> np.ndarray:
    """The elements that a kernel of one place sees, as rows."""
    seen = moved(x, frame.before, frame.reach)
    seen = seen[(slice(None), *(slice(None, None, s) for s in frame.stride))]
    return seen.reshape(prod(seen.shape[:-1]), x.shape[-1])


def input_gradient(
    g: np.ndarray, w: np.ndarray, frame: Frame, sizes: Sizes, groups: int
) -> np.ndarray:
    """[N, *sizes, C] from [N, *counts, out] and [*kernel, C / groups, out]."""
    deep = w.shape[-2]
    if groups > 1 and deep == 1:
        full = depthwise_spread(g, w[..., 0, :], frame, sizes)
        many = w.shape[-1] // groups
        return full if many == 1 else full.reshape(*full.shape[:-1], groups, many).sum(-1)
    if max(frame.stride, default=1) > 1:
        return _added(g, w, frame, sizes, groups)
    kernel = frame.kernel
    apart = w.reshape(*kernel, deep, groups, w.shape[-1] // groups).swapaxes(-1, -3)
    back = apart[(slice(None, None, -1),) * len(kernel)]
    back = back.reshape(*kernel, apart.shape[-3], groups * deep)
    before = tuple(span - 1 - b for span, b in zip(frame.spans, frame.before, strict=True))
    return convolve(g, back, frame._replace(before=before, counts=tuple(sizes)), groups)


def _added(g: np.ndarray, w: np.ndarray, frame: Frame, sizes: Sizes, groups: int) -> np.ndarray:
    """The same where windows do not begin at each place: columns, added where they lie."""
    weights = by_group(w, groups).transpose(0, 2, 1)
    out = np.zeros((len(g), *frame.reach, groups, w.shape[-2]), g.dtype)
    width = weights.shape[-1] * groups
    for block in blocks(g.shape[:-1], width * g.itemsize):
        lengths = tuple(s.stop - s.start for s in block)
        tile = np.matmul(rows(g, block, groups), weights)
        tile = tile.reshape(groups, *lengths, *frame.kernel, w.shape[-2])
        tile = np.moveaxis(tile, 0, -2)
        for tap in np.ndindex(*frame.kernel):
            place = _placed(block, frame, tap)
            out[place] += tile[(*(slice(None),) * len(lengths), *tap)]
    out = out.reshape(*out.shape[:-2], groups * w.shape[-2])
    return moved(out, tuple(-b for b in frame.before), sizes)


def _placed(block: tuple[slice, ...], frame: Frame, tap: Sizes) -> tuple[slice, ...]:
    """Where one place of the windows of a block lies."""
    batch, *along = block
    axes = zip(along, frame.stride, frame.dilation, tap, strict=True)
    return batch, *(
        slice(a.start * s + t * d, (a.stop - 1) * s + t * d + 1, s) for a, s, d, t in axes
    )


# -- each channel a group of its own -----------------------------------------------------------


def strips(x: np.ndarray, frame: Frame) -> Iterator[tuple[slice, int, np.ndarray]]:
    """Windows that follow each other in memory, as one: views [N, *counts, *kernel, many * C].

    The last count is of runs of `many` windows; what is left over comes as another strip.
    """
    x = np.ascontiguousarray(moved(x, frame.before, frame.reach))
    lead, *steps, last = x.strides
    channels, total, stride = x.shape[-1], frame.counts[-1], frame.stride[-1]
    many = 1 if stride > 1 else max(1, min(total, RUN // max(channels, 1)))
    along = [a * s for a, s in zip(steps, frame.stride, strict=True)]
    inside = [a * d for a, d in zip(steps, frame.dilation, strict=True)]
    for start, stop in ((0, total - total % many), (total - total % many, total)):
        if start == stop:
            continue
        run = min(many, stop - start)
        shape = (len(x), *frame.counts[:-1], (stop - start) // run, *frame.kernel)
        strides = (lead, *along[:-1], along[-1] * run, *inside, last)
        view = as_strided(
            x[..., start * stride :, :], (*shape, run * channels), strides, writeable=False
        )
        yield slice(start, stop), run, view


def _labels(frame: Frame) -> tuple[list[int], list[int], list[int]]:
    """Einstein's indices of a strip, of its windows' results, and of the weights."""
    axes = len(frame.kernel)
    own, inner, run = [*range(axes + 1)], [*range(axes + 1, 2 * axes + 1)], 2 * axes + 1
    return [*own, *inner, run], [*own, run], [*inner, run]


def depthwise(x: np.ndarray, w: np.ndarray, frame: Frame) -> np.ndarray:
    """[N, *counts, out], out a multiple of C, from [N, *sizes, C] and [*kernel, out]."""
    x = np.repeat(x, w.shape[-1] // x.shape[-1], -1) if w.shape[-1] != x.shape[-1] else x
    out = np.empty((len(x), *frame.counts, w.shape[-1]), x.dtype)
    of_x, of_out, of_w = _labels(frame)
    for part, run, view in strips(x, frame):
        to = out[..., part, :].reshape(*view.shape[: len(of_out) - 1], view.shape[-1])
        np.einsum(view, of_x, np.tile(w, run), of_w, of_out, out=to)
    return out


def depthwise_weights(x: np.ndarray, g: np.ndarray, frame: Frame) -> np.ndarray:
    """[*kernel, out] from [N, *sizes, C] and [N, *counts, out]."""
    wide = g.shape[-1]
    x = np.repeat(x, wide // x.shape[-1], -1) if wide != x.shape[-1] else x
    total = np.zeros((*frame.kernel, wide), x.dtype)
    of_x, of_g, of_w = _labels(frame)
    for part, run, view in strips(x, frame):
        given = g[..., part, :].reshape(*view.shape[: len(of_g) - 1], view.shape[-1])
        found = np.einsum(view, of_x, given, of_g, of_w)
        total += found.reshape(*frame.kernel, run, wide).sum(-2)
    return total


def depthwise_spread(g: np.ndarray, w: np.ndarray, frame: Frame, sizes: Sizes) -> np.ndarray:
    """[N, *sizes, out] from [N, *counts, out] and [*kernel, out]: what each channel gets."""
    if max(frame.stride) == 1:
        before = tuple(n - 1 - b for n, b in zip(frame.spans, frame.before, strict=True))
        back = w[(slice(None, None, -1),) * len(frame.kernel)]
        return depthwise(g, back, frame._replace(before=before, counts=tuple(sizes)))
    out = np.zeros((len(g), *frame.reach, g.shape[-1]), g.dtype)
    whole = tuple(slice(0, n) for n in g.shape[:-1])
    for tap in np.ndindex(*frame.kernel):
        out[_placed(whole, frame, tap)] += g * w[tap]
    return moved(out, tuple(-b for b in frame.before), sizes)
