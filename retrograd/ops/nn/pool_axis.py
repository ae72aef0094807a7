"""Windows along one axis, in NumPy: the largest of each and where it is; sums, and back.

A window's places are taken one after the other, each for all windows at once: where windows
repeat that is a slice of the axis, and nothing is copied to build them. Places outside the
axis are not there: no window sees them, and no gradient goes to them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Lead = tuple[slice, ...]


class Tap(NamedTuple):
    """One place of the windows: which windows have it, where it lies, how far into them."""

    windows: slice
    places: Any  # a slice; or an array, to read from
    at: int
    whole: bool  # all windows have it


class Line(NamedTuple):
    """The windows along one axis, which comes after `lead`."""

    taps: tuple[Tap, ...]
    starts: np.ndarray  # where each window begins
    apart: bool  # no place is in two windows
    lead: Lead = ()


@lru_cache(1024)
def regular(
    size: int, kernel: int, stride: int, dilation: int, before: int, count: int
) -> Line:
    """`count` windows, `stride` apart, as far as they lie inside the axis."""
    found = []
    for t in range(kernel):
        at = t * dilation - before
        first, stop = max(0, -(at // stride)), min(count, (size - 1 - at) // stride + 1)
        if first < stop:
            places = slice(first * stride + at, (stop - 1) * stride + at + 1, stride)
            whole = (first, stop) == (0, count)
            found.append(Tap(slice(first, stop), places, t * dilation, whole))
    starts = np.arange(count) * stride - before
    return Line(tuple(found), starts, apart=stride > dilation * (kernel - 1))


@lru_cache(1024)
def spanned(starts: tuple[int, ...], stops: tuple[int, ...]) -> Line:
    """Windows from each start to each stop.

    Shorter ones repeat their last element, which is then never the first of its kind.
    """
    begin, end, found = np.array(starts), np.array(stops), []
    for t in range(int((end - begin).max())):
        places = np.minimum(begin + t, end - 1)
        found.append(Tap(slice(0, len(begin)), places, t, whole=True))
    return Line(tuple(found), begin, apart=bool((end[:-1] <= begin[1:]).all()))


def _like(x: np.ndarray, line: Line) -> tuple[int, ...]:
    """The shape of one number for each window."""
    axis = len(line.lead)
    return (*x.shape[:axis], len(line.starts), *x.shape[axis + 1 :])


def lowest(dtype: np.dtype) -> Any:
    """The number that is not larger than any."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def largest(x: np.ndarray, line: Line) -> np.ndarray:
    """The largest of each window; NaN if one is."""
    lead = line.lead
    if len(line.taps) == 1:
        return x[(*lead, line.taps[0].places)]
    whole = [t for t in line.taps if t.whole]
    parts = [t for t in line.taps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = np.maximum(x[(*lead, a.places)], x[(*lead, b.places)])
        parts += rest
    else:
        out = np.full(_like(x, line), lowest(x.dtype), x.dtype)
        parts += whole
    for t in parts:
        mine = out[(*lead, t.windows)]
        np.maximum(mine, x[(*lead, t.places)], out=mine)
    return out


def chosen(
    x: np.ndarray, out: np.ndarray, line: Line, before: np.ndarray | None, radix: int, kind: Any
) -> np.ndarray:
    """The number of the first tap of each window that equals its largest.

    `before` has such numbers for the elements of x, below `radix`: then the tap's number is
    the digit in front of that of the element it chose. Integers of a small `kind` make this
    several times faster than anything done with the elements themselves.
    """
    lead, found = line.lead, np.zeros(out.shape, kind)
    done = np.zeros(out.shape, bool)
    strange = x.dtype.kind == "f" and bool(np.isnan(out).any())
    for t in line.taps[:-1]:  # what none before it took is the last one's
        mine = x[(*lead, t.places)]
        hit = mine == out[(*lead, t.windows)]
        if strange:
            hit |= mine != mine
        taken = done[(*lead, t.windows)]
        np.logical_or(taken, hit, out=taken)
        np.add(found, (~done).view(np.uint8), out=found)
    if before is None:
        return found
    both = found * kind(radix)
    for n, t in enumerate(line.taps):
        mask = (found[(*lead, t.windows)] == n).view(np.uint8)
        both[(*lead, t.windows)] += before[(*lead, t.places)] * mask
    return both


def summed(x: np.ndarray, line: Line) -> np.ndarray:
    """The sum of each window."""
    lead = line.lead
    if len(line.taps) == 1:
        return x[(*lead, line.taps[0].places)]
    whole = [t for t in line.taps if t.whole]
    parts = [t for t in line.taps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = x[(*lead, a.places)] + x[(*lead, b.places)]
        parts += rest
    else:
        out = np.zeros(_like(x, line), x.dtype)
        parts += whole
    for t in parts:
        out[(*lead, t.windows)] += x[(*lead, t.places)]
    return out


def spread(y: np.ndarray, line: Line, size: int) -> np.ndarray:
    """The transpose of `summed`: every place gets the sum of its windows."""
    lead = line.lead
    out = np.zeros((*y.shape[: len(lead)], size, *y.shape[len(lead) + 1 :]), y.dtype)
    for t in line.taps:
        if line.apart:
            out[(*lead, t.places)] = y[(*lead, t.windows)]
        else:
            out[(*lead, t.places)] += y[(*lead, t.windows)]
    return out
