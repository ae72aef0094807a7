"""Order: sort, topk, and places in it. Ties keep their first-come order; NaN is the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import gather, options

__all__ = ["argsort", "searchsorted", "sort", "topk"]

LIBRARY = "sorting is a library call"


def order(x: np.ndarray, axis: int, *, descending: bool) -> np.ndarray:
    """The indices that sort x along an axis; ties keep first-come order, both ways."""
    if x.dtype in NARROW and x.ndim and x.shape[axis] < 1 << 31:
        pairs = np.moveaxis(paired(np.moveaxis(x, axis, -1), descending=descending), -1, axis)
        pairs.sort(axis=axis)  # no two are equal: any sort is stable
        return pairs & LOW
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    from_end = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(from_end, axis)


NARROW = (dt.bool, dt.int8, dt.int16, dt.int32, dt.uint8, dt.uint16, dt.float32)
LOW = (1 << 32) - 1


def paired(x: np.ndarray, *, descending: bool) -> np.ndarray:
    """Integers in the order of (x, place along the last axis); the place is their low half.

    NumPy's vectorised sorts are for numbers alone, and need not be stable: so the places of
    equal elements are made part of the numbers.
    """
    if x.dtype == np.float32:
        bits = (x + np.float32(0)).view(np.int32)  # -0.0 and 0.0 are equal
        np.copyto(bits, np.int32(0x7FC00000), where=x != x)  # NaNs are, and the largest
        bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    else:
        bits = x.astype(np.int32)
    pairs = (~bits if descending else bits).astype(np.int64)
    pairs <<= 32
    pairs |= np.arange(x.shape[-1])
    return pairs


def taken(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """np.take_along_axis; along the last axis of row-major memory in a fraction of its time."""
    if axis != x.ndim - 1 or not x.flags.c_contiguous or not x.size:
        return np.take_along_axis(x, indices, axis)
    n = x.shape[-1]
    rows = np.arange(0, x.size, n).reshape(*x.shape[:-1], 1)
    return x.reshape(-1).take(indices + rows)


@op
class Sort(Op):
    """The elements along an axis in order."""

    axis: int
    descending: bool = False
    stable: bool = True
    uniform = True
    takes = "real"
    host = LIBRARY

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        x = np.flip(x, self.axis) if self.descending else x
        out = np.sort(x, axis=self.axis)
        if self.stable and x.dtype.kind == "f" and ((out == 0) & np.signbit(out)).any():
            out = np.sort(x, axis=self.axis, kind="stable")  # 0.0 and -0.0 keep their order
        return np.flip(out, self.axis) if self.descending else out

    def jvp(self, dx, x):
        return gather.take_along_axis(dx, self._order(x), axis=self.axis)

    def vjp(self, g, x):
        return apply(gather.AddAlongAxis(self.axis, x.shape[self.axis]), g, self._order(x))

    def batch(self, size, args, mapped):
        return apply(Sort(self.axis + 1, self.descending, self.stable), *args)

    def _order(self, x):
        return apply(Argsort(self.axis, self.descending), x)

    @staticmethod
    def samples(rng):
        x = rng.permutation(24).reshape(4, 6) * 0.5
        yield Sort(1), x
        yield Sort(0, descending=True), x
        yield Sort(1, stable=False), x
        yield Sort(0), rng.normal(size=(0, 2))
        yield Sort(0), rng.integers(0, 5, 7)

    @staticmethod
    def refuses(rng):
        yield Sort(0), rng.normal(size=3) + 1j, "it takes real dtypes"


@function
def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along `axis` in order. NaN comes last, or first if `descending`."""
    x = lift(x)
    return apply(Sort(axis_index("sort", axis, x.ndim), bool(descending), bool(stable)), x)


@op
class Argsort(Op):
    """The indices that sort along an axis; ties keep first-come order."""

    axis: int
    descending: bool = False
    uniform = True
    takes = "real"
    host = LIBRARY
    no_derivative = "its results are indices, constant almost everywhere"

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(dt.int64)

    def forward(self, x):
        return order(x, self.axis, descending=self.descending)

    def batch(self, size, args, mapped):
        return apply(Argsort(self.axis + 1, self.descending), *args)

    @staticmethod
    def samples(rng):
        x = rng.integers(0, 4, (4, 6)) * 0.5
        yield Argsort(1), x
        yield Argsort(0, descending=True), x
        yield Argsort(0), rng.normal(size=(0, 2))


@function
def argsort(
    x: Any,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,  # noqa: ARG001 - the standard's
) -> Tensor:
    """The indices that sort x along `axis`; always stable, whether asked to or not."""
    x = lift(x)
    return apply(Argsort(axis_index("argsort", axis, x.ndim), bool(descending)), x)


@op
class Topk(Op):
    """The k largest (or smallest) along an axis, in order, and where they are."""

    k: int
    axis: int
    largest: bool = True
    outputs = ("values", "indices")
    native = "largest few"
    quicker = True
    host = LIBRARY

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        n = x.shape[self.axis]
        if not 0 <= self.k <= n:
            raise ArgumentError(f"topk: k {self.k} must be from 0 to {n}, the axis's length")
        out = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return x.with_shape(out), Spec(out, dt.int64)

    def forward(self, x):
        indices = self._indices(x)
        return taken(x, indices, self.axis), indices

    def _indices(self, x):
        n = x.shape[self.axis] if x.ndim else 0
        if not (0 < self.k < n // 2) or x.dtype not in NARROW:
            found = order(x, self.axis, descending=self.largest)
            return np.take(found, range(self.k), self.axis)
        lanes = np.moveaxis(x, self.axis, -1)
        found = self._beyond(lanes)
        if found is None:
            pairs = paired(lanes, descending=self.largest)
            best = np.partition(pairs, self.k - 1, axis=-1)[..., : self.k]
            best.sort(axis=-1)
            found = best & LOW
        return np.moveaxis(found, -1, self.axis)

    def _beyond(self, x):
        """Where the elements are that the k-th does not come before; None if it has equals."""
        n, k = x.shape[-1], self.k
        limit = np.partition(x, n - k if self.largest else k - 1, axis=-1)
        limit = limit[..., n - k : n - k + 1] if self.largest else limit[..., k - 1 : k]
        there = np.flatnonzero(x >= limit if self.largest else x <= limit)
        if len(there) != x.size // n * k or (self.largest and np.isnan(x).any()):
            return None
        there = (there % n).reshape(*x.shape[:-1], k)
        values = np.take_along_axis(x, there, -1)
        return np.take_along_axis(there, order(values, -1, descending=self.largest), -1)

    def jvp(self, dx, indices):
        return gather.take_along_axis(dx, indices, axis=self.axis), None

    def vjp(self, g_values, x: Spec, indices):
        return apply(gather.AddAlongAxis(self.axis, x.shape[self.axis]), g_values, indices)

    def batch(self, size, args, mapped):
        return apply(Topk(self.k, self.axis + 1, self.largest), *args)

    @staticmethod
    def samples(rng):
        x = rng.permutation(24).reshape(4, 6) * 0.5
        yield Topk(2, 1), x
        yield Topk(3, 0, largest=False), x
        yield Topk(0, 0), x

    @staticmethod
    def refuses(rng):
        yield Topk(5, 0), rng.normal(size=3), "k 5 must be from 0 to 3"


@function
def topk(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along `axis`, largest first, and their indices."""
    x = lift(x)
    k, axis = options.integer("topk", "k", k), axis_index("topk", axis, x.ndim)
    return apply(Topk(k, axis, bool(largest)), x)


@op
class Searchsorted(Op):
    """Where each x2 would be put into the sorted x1; both begin with the same `lead` axes."""

    right: bool = False
    lead: int = 0
    uniform = True
    takes = "real"
    no_derivative = "its results are indices, constant almost everywhere"

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        if x1.ndim != self.lead + 1:
            raise ShapeError(f"searchsorted: x1 must have one axis; got shape {x1.shape}")
        return x2.with_dtype(dt.int64)

    def forward(self, x1, x2):
        side: Any = "right" if self.right else "left"
        if not self.lead:
            return np.asarray(np.searchsorted(x1, x2, side))
        out = np.empty(x2.shape, dt.int64)
        for i in np.ndindex(*x1.shape[:-1]):
            out[i] = np.searchsorted(x1[i], x2[i], side)
        return out

    def batch(self, size, args, mapped):
        if not self.lead and not mapped[0]:
            return apply(self, *args)
        return apply(Searchsorted(self.right, self.lead + 1), *front(size, args, mapped))

    def lower(self, k, x1, x2):
        length, behind = x1.shape[-1], len(x2.shape) - self.lead
        own = [
            k.view(k.iota(n, dt.int64), (n, *(1,) * (self.lead - a - 1 + behind)))
            for a, n in enumerate(x1.shape[:-1])
        ]

        def below(x, at):
            """Whether x comes after the element before place `at`; NaN comes last."""
            there = k.pick(x1, *at)
            mine, its = x != x, there != there
            if self.right:
                return mine | ((there <= x) & ~its)
            return (there < x) | (mine & ~its)

        def place(x, *lead):
            found = k.cast(x != x, dt.int64) * 0
            for step in reversed([1 << b for b in range(length.bit_length())]):
                reach = found + step
                within = k.minimum(reach, length) - 1
                found = k.where((reach <= length) & below(x, (*lead, within)), reach, found)
            return found

        return k.map(place, dt.int64, x2, *own)

    @staticmethod
    def samples(rng):
        edges = np.arange(5.0)
        yield Searchsorted(), edges, rng.integers(-2, 12, (2, 3)) * 0.5
        yield Searchsorted(right=True), edges, np.asarray(2.0)
        yield Searchsorted(lead=1), np.stack([edges, edges * 2]), rng.normal(size=(2, 3))
        yield Searchsorted(), rng.normal(size=0), rng.normal(size=2)

    @staticmethod
    def refuses(rng):
        yield Searchsorted(), rng.normal(size=(2, 3)), rng.normal(size=2), "must have one axis"


@function
def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where each x2 would be put to keep the sorted x1 in order: before its equals, or after.

    `sorter` holds the indices that sort x1, where it is not sorted.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right'; got {side!r}")
    x1 = lift(x1)
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: x1 must have one axis; got shape {x1.shape}")
    x1 = x1 if sorter is None else gather.take_along_axis(x1, sorter, axis=0)
    return apply(Searchsorted(side == "right"), x1, x2)
