"""Windows along one axis, in NumPy: the largest of each, the sum, and what undoes them.

A window's places are taken one after the other, each for all windows at once: that is a
slice of the axis, so nothing is copied to build windows. Places outside the axis are not
there: no window sees them, and no gradient goes to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

Lead = tuple[slice, ...]


class Tap:
    """One place of the windows along one axis: which windows have it, and where it is."""

    def __init__(self, windows: slice, places: slice, *, whole: bool, apart: bool) -> None:
        self.windows, self.places = windows, places
        self.whole = whole  # all windows have it
        self.apart = apart  # no place is in two windows


Steps = tuple[Tap, ...]


@lru_cache(1024)
def taps(size: int, kernel: int, stride: int, dilation: int, before: int, count: int) -> Steps:
    """The places of `count` windows along an axis, as far as they lie inside it."""
    found, apart = [], stride > dilation * (kernel - 1)
    for t in range(kernel):
        at = t * dilation - before
        first, stop = max(0, -(at // stride)), min(count, (size - 1 - at) // stride + 1)
        if first < stop:
            places = slice(first * stride + at, (stop - 1) * stride + at + 1, stride)
            whole = (first, stop) == (0, count)
            found.append(Tap(slice(first, stop), places, whole=whole, apart=apart))
    return tuple(found)


def largest(x: np.ndarray, lead: Lead, steps: Steps, count: int) -> np.ndarray:
    """The largest of each window along the axis after `lead`; NaN if one is."""
    if len(steps) == 1:
        return x[(*lead, steps[0].places)]
    whole = [t for t in steps if t.whole]
    parts = [t for t in steps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = np.maximum(x[(*lead, a.places)], x[(*lead, b.places)])
        parts += rest
    elif whole:
        out = np.array(x[(*lead, whole[0].places)], order="C")
    else:
        to = (*x.shape[: len(lead)], count, *x.shape[len(lead) + 1 :])
        out = np.full(to, lowest(x.dtype), x.dtype)
    for t in parts:
        mine = out[(*lead, t.windows)]
        np.maximum(mine, x[(*lead, t.places)], out=mine)
    return out


def lowest(dtype: np.dtype) -> Any:
    """The number that is not larger than any."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def winners(
    x: np.ndarray, out: np.ndarray, lead: Lead, steps: Steps
) -> Iterator[tuple[Tap, np.ndarray]]:
    """For each tap, in which of its windows it is the first that equals the result.

    Every window has one: the last place takes what none before it took.
    """
    done = np.zeros(out.shape, bool)
    strange = x.dtype.kind == "f" and bool(np.isnan(out).any())
    for t in steps:
        taken = done[(*lead, t.windows)]
        if t is steps[-1]:
            yield t, ~taken
            return
        mine = x[(*lead, t.places)]
        hit = mine == out[(*lead, t.windows)]
        if strange:
            hit |= mine != mine
        np.greater(hit, taken, out=hit)  # and not taken
        yield t, hit
        np.logical_or(taken, hit, out=taken)


def _calm(g: np.ndarray) -> bool:
    """Whether products of g with 0 are 0."""
    return g.dtype.kind not in "fc" or bool(np.isfinite(g).all())


def _give(to: np.ndarray, g: np.ndarray, hit: np.ndarray, *, calm: bool, apart: bool) -> None:
    """Add g where hit; where `apart`, on zeros."""
    if not calm:  # a product with 0 would be NaN; else it is many times faster
        to += np.where(hit, g, g.dtype.type(0))
    elif apart:
        np.multiply(g, hit, out=to)
    else:
        to += np.multiply(g, hit)


def pulled(
    g: np.ndarray, x: np.ndarray, out: np.ndarray, lead: Lead, steps: Steps
) -> np.ndarray:
    """Zeros like x, with each g added to the winner of its window."""
    found, calm = np.zeros(x.shape, g.dtype), _calm(g)
    for t, hit in winners(x, out, lead, steps):
        to, given = found[(*lead, t.places)], g[(*lead, t.windows)]
        _give(to, given, hit, calm=calm, apart=t.apart)
    return found


def picked(
    v: np.ndarray, x: np.ndarray, out: np.ndarray, lead: Lead, steps: Steps
) -> np.ndarray:
    """The elements of v that stand where the winners of x do."""
    found, calm = np.zeros(out.shape, v.dtype), _calm(v)
    for t, hit in winners(x, out, lead, steps):
        to, given = found[(*lead, t.windows)], v[(*lead, t.places)]
        _give(to, given, hit, calm=calm, apart=False)
    return found


def summed(x: np.ndarray, lead: Lead, steps: Steps, count: int) -> np.ndarray:
    """The sum of each window along the axis after `lead`."""
    if len(steps) == 1:
        return x[(*lead, steps[0].places)]
    whole = [t for t in steps if t.whole]
    parts = [t for t in steps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = x[(*lead, a.places)] + x[(*lead, b.places)]
        parts += rest
    else:
        out = np.zeros((*x.shape[: len(lead)], count, *x.shape[len(lead) + 1 :]), x.dtype)
        parts += whole
    for t in parts:
        out[(*lead, t.windows)] += x[(*lead, t.places)]
    return out


def spread(y: np.ndarray, lead: Lead, steps: Steps, size: int) -> np.ndarray:
    """The transpose of _summed: every place gets the sum of its windows."""
    out = np.zeros((*y.shape[: len(lead)], size, *y.shape[len(lead) + 1 :]), y.dtype)
    for t in steps:
        if t.apart:
            out[(*lead, t.places)] = y[(*lead, t.windows)]
        else:
            out[(*lead, t.places)] += y[(*lead, t.windows)]
    return out
