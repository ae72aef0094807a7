"""Where windows lie: kernels, strides, dilations and padding, worked out in one place.

Along each axis, place t of window o is element o * stride + t * dilation - before. Elements
outside the axis are zeros to a convolution and nothing to a pool. Every function of this
family takes its padding from `padded` and its number of windows from `frame`, so that what
runs forward and what runs backward cannot disagree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.tensor import Tensor
from retrograd.ops import options, shape

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class Frame(NamedTuple):
    """Windows along each spatial axis."""

    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes  # places in front of the first element
    counts: Sizes  # how many windows

    @property
    def reach(self) -> Sizes:
        """Places from the first of the first window to the last of the last."""
        return tuple(
            (c - 1) * s + span
            for c, s, span in zip(self.counts, self.stride, self.spans, strict=True)
        )

    @property
    def spans(self) -> Sizes:
        """Places from the first to the last of one window."""
        pairs = zip(self.kernel, self.dilation, strict=True)
        return tuple(d * (k - 1) + 1 for k, d in pairs)


def per_axis(who: str, name: str, value: Any, axes: int, *, least: int = 1) -> Sizes:
    """One whole number for all axes, or one for each."""
    if not isinstance(value, (tuple, list)):
        return (options.integer(who, name, value, least=least),) * axes
    if len(value) != axes:
        raise ArgumentError(
            f"{who}: {name} {tuple(value)} has {len(value)} numbers for {axes} spatial axes; "
            f"give one for each, or a single one"
        )
    return tuple(options.integer(who, name, v, least=least) for v in value)


def padded(
    who: str, padding: Any, sizes: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Pairs:
    """(before, after) for each axis: the one place where padding is resolved.

    "same" gives ceil(size / stride) windows, with the odd place behind; "causal" puts all of
    it before the first axis, so that no window looks ahead there, and is "same" elsewhere.
    """
    if isinstance(padding, str):
        return _named(who, padding, sizes, kernel, stride, dilation)
    if not isinstance(padding, (tuple, list)):
        width = options.integer(who, "padding", padding, least=0)
        return ((width, width),) * len(sizes)
    if len(padding) != len(sizes):
        raise ArgumentError(
            f"{who}: padding {tuple(padding)} must be a number, 'same', 'valid', 'causal', or "
            f"a number or a pair (before, after) for each of {len(sizes)} spatial axes",
            hint="padding=((1, 2),)      before and after one axis",
        )
    return tuple(_pair(who, p) for p in padding)


def _named(
    who: str, padding: str, sizes: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Pairs:
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding not in ("same", "causal"):
        raise ArgumentError(
            f"{who}: padding {padding!r} is not one of 'same', 'valid', 'causal'"
        )
    found = []
    for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        found.append((total // 2, total - total // 2))
    if padding == "causal" and found:
        found[0] = (dilation[0] * (kernel[0] - 1), 0)
    return tuple(found)


def _pair(who: str, given: Any) -> tuple[int, int]:
    if not isinstance(given, (tuple, list)):
        given = (given, given)
    if len(given) != 2:
        raise ArgumentError(f"{who}: padding of one axis is (before, after); got {given!r}")
    before, after = (options.integer(who, "padding", p, least=0) for p in given)
    return before, after


def frame(
    who: str,
    sizes: Sizes,
    kernel: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Frame:
    """The windows of `kernel` places over axes of `sizes`; with ceil_mode also a last partial.

    A partial window begins inside the axis or the padding before it, as PyTorch has it.
    """
    kernel, stride = _frozen(kernel), _frozen(stride)
    padding, dilation = _frozen(padding), _frozen(dilation)
    plan = _known if _plain((kernel, stride, padding, dilation)) else _framed
    return plan(who, sizes, kernel, stride, padding, dilation, ceil_mode)


def _frozen(option: Any) -> Any:
    return tuple(map(_frozen, option)) if isinstance(option, (tuple, list)) else option


def _plain(option: Any) -> bool:
    """Whether equal options mean the same: 1 is 1.0 to a cache, but not to us."""
    if type(option) is tuple:
        return all(map(_plain, option))
    return type(option) in (int, str)


def _framed(
    who: str,
    sizes: Sizes,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,  # noqa: FBT001 - the cache's key
) -> Frame:
    axes = len(sizes)
    kernel = per_axis(who, "the kernel", kernel, axes)
    stride = per_axis(who, "stride", stride, axes)
    dilation = per_axis(who, "dilation", dilation, axes)
    pairs = padded(who, padding, sizes, kernel, stride, dilation)
    counts = []
    for a, (n, k, s, d, pair) in enumerate(
        zip(sizes, kernel, stride, dilation, pairs, strict=True)
    ):
        room = n + sum(pair) - d * (k - 1) - 1
        if room < 0:
            dilated = f" with dilation {d}" if d > 1 else ""
            raise ShapeError(
                f"{who}: a kernel of {k}{dilated} spans {d * (k - 1) + 1} places; spatial axis "
                f"{a} has {n}, with padding {n + sum(pair)}"
            )
        count = (room + (s - 1) * ceil_mode) // s + 1
        counts.append(count - (ceil_mode and (count - 1) * s >= n + pair[0]))
    before = tuple(pair[0] for pair in pairs)
    found = plain(Frame(kernel, stride, dilation, before, tuple(map(int, counts))))
    options.possible(who, found.reach)
    return found


_known = lru_cache(4096)(_framed)


def plain(frame_: Frame) -> Frame:
    """The same windows; a stride between one window or a dilation of one place is 1."""
    pairs = zip(frame_.stride, frame_.counts, strict=True)
    stride = tuple(s if c > 1 else 1 for s, c in pairs)
    pairs = zip(frame_.dilation, frame_.kernel, strict=True)
    dilation = tuple(d if k > 1 else 1 for d, k in pairs)
    return frame_._replace(stride=stride, dilation=dilation)


# -- where the channels are --------------------------------------------------------------------


def channels_last(who: str, x: Any, layout: str | None, *, least: int = 3) -> Any:
    """x as [N, *spatial, C], from the layout that a word such as "NCHW" names."""
    if x.ndim < least:
        raise ShapeError(
            f"{who}: x {x.shape} must have a batch axis, at least one spatial axis, and "
            f"channels: [N, *spatial, C]"
        )
    return shape.moveaxis(x, 1, -1) if first(who, layout, x.ndim) else x


def as_given(who: str, y: Any, layout: str | None) -> Tensor:
    """A result [N, *spatial, C] in the caller's layout."""
    return shape.moveaxis(y, -1, 1) if first(who, layout, y.ndim) else y


def first(who: str, layout: str | None, ndim: int) -> bool:
    """Whether a layout has the channels before the spatial axes."""
    if layout is None:
        return False
    word = layout.upper() if isinstance(layout, str) else ""
    ends = word[:1] == "N" and "C" in (word[1:2], word[-1:])
    if not ends or len(word) != ndim or len(set(word)) != ndim:
        raise ArgumentError(
            f"{who}: layout {layout!r} does not name the {ndim} axes of x: N first, C second "
            f"or last, such as NLC, NCL, NHWC, NCHW, NDHWC, NCDHW"
        )
    return word[1] == "C" and ndim > 2


@lru_cache(1024)
def inhabited(who: str, frame_: Frame, sizes: Sizes) -> None:
    """Refuse windows of a pool that lie wholly in the padding."""
    for a, (n, k, s, d, b, c) in enumerate(zip(sizes, *frame_, strict=True)):
        outside = [o * s - b for o in (*range(min(c, -(-b // s))), c - 1)]
        for start in outside:  # a window that begins inside has an element
            ahead = max(0, -(start // d))  # the first place that is not before the axis
            if ahead >= k or start + ahead * d >= n:
                raise ShapeError(
                    f"{who}: the window at {start} of spatial axis {a}, which has length {n}, "
                    f"holds no element; padding and dilation must leave it one"
                )
