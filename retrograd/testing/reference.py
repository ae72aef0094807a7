"""The Kernel protocol in NumPy: whole arrays where a target would have lanes.

With it the test table runs every op's `lower` against its `forward`, compiler or not.
"""

from __future__ import annotations

import inspect
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import rng, special
from retrograd.core.errors import ArgumentError, BoundsError
from retrograd.core.interpret import PURE, using
from retrograd.core.op import Op
from retrograd.core.quiet import loud, quiet
from retrograd.core.rng_laws import ARRAYS, Slot
from retrograd.core.spec import Spec, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NAMED = {"erf": special.erf, "erfc": special.erfc, "round": np.rint}


class Array:
    """An operand of loops: indexed by a step, or by the row being written."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    @property
    def dtype(self) -> np.dtype:
        """Of its elements."""
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        return self.data.shape

    def __getitem__(self, step: Any) -> Any:
        return step.read(self.data)

    def __setitem__(self, step: Any, value: Any) -> None:
        step.write(self.data, value)


def bare(x: Any) -> np.ndarray:
    """The elements of an operand, whatever it comes as."""
    return x.data if isinstance(x, Array) else np.asarray(x)


def as_given(found: np.ndarray, *xs: Any) -> Any:
    """An operand of loops, if it was made of some."""
    return Array(found) if any(isinstance(x, Array) for x in xs) else found


class Along:
    """A step of all lanes at once: position t along `axis`."""

    def __init__(self, axis: int, t: int) -> None:
        self.axis, self.t = axis, t

    def __sub__(self, by: int) -> Along:
        return Along(self.axis, self.t - by)

    def __add__(self, by: int) -> Along:
        return Along(self.axis, self.t + by)

    def read(self, data: np.ndarray) -> Any:
        return np.take(data, self.t, self.axis)

    def write(self, data: np.ndarray, value: Any) -> None:
        np.moveaxis(data, self.axis, 0)[self.t] = value


class Lanes:
    """All lanes at once."""

    def __init__(self, length: int, axis: int) -> None:
        self.length, self.axis = length, axis

    def steps(self, *, reverse: bool = False) -> Iterator[Along]:
        order = range(self.length)
        return (Along(self.axis, t) for t in (reversed(order) if reverse else order))

    def read(self, data: np.ndarray) -> Any:
        return np.take(data, 0, self.axis)


class Rows:
    """All rows at once; as an index it is the output."""

    def __init__(self, shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
        self.shape, self.axis = shape, axis

    def steps(self) -> Iterator[Reduced]:
        return (Reduced(self.axis, i) for i in np.ndindex(*(self.shape[a] for a in self.axis)))

    def write(self, data: np.ndarray, value: Any) -> None:
        value = np.asarray(value)
        data[...] = value.reshape(data.shape) if value.size == data.size else value

    def read(self, data: np.ndarray) -> Any:
        kept = [1 if a in self.axis else n for a, n in enumerate(self.shape)]
        lead = np.reshape(data, kept)
        return lead[tuple(0 if a in self.axis else slice(None) for a in range(len(kept)))]


class Reduced:
    """One index over the reduced axes."""

    def __init__(self, axis: tuple[int, ...], index: tuple[int, ...]) -> None:
        self.axis, self.index = axis, index

    def read(self, data: np.ndarray) -> Any:
        where: list[Any] = [slice(None)] * data.ndim
        for a, i in zip(self.axis, self.index, strict=True):
            where[a] = i
        return data[tuple(where)]


class NumpyKernel:
    """core.kernel.Kernel, rendered by NumPy."""

    def __getattr__(self, name: str) -> Any:
        return _NAMED.get(name) or getattr(np, name)

    where = staticmethod(np.where)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)
    pow = staticmethod(np.power)
    exp_below = staticmethod(np.exp)
    fast_tanh = staticmethod(np.tanh)
    var = ARRAYS.var

    def cast(self, x: Any, dtype: np.dtype) -> Any:
        """By C's rules; a complex number loses its imaginary part."""
        given, x = x, bare(x)
        x = x.real if x.dtype.kind == "c" and dtype.kind not in "cb" else x
        return as_given(x.astype(dtype), given)

    def larger(self, x: Any, y: Any) -> Any:
        return np.where(x > y, x, y)

    def silu(self, x: Any) -> Any:
        return x / (1 + np.exp(-x))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    def atan2(self, x: Any, y: Any) -> Any:
        return np.arctan2(x, y)

    def bits(self, x: Any) -> Any:
        return np.asarray(x).view(f"u{x.dtype.itemsize}")

    def from_bits(self, x: Any) -> Any:
        return np.asarray(x).view(f"f{x.dtype.itemsize}")

    def rarely(self, mask: Any, f: Callable[..., Any], otherwise: Any, *args: Any) -> Any:
        return np.where(mask, f(*args), otherwise)

    def map(self, f: Callable[..., Any], dtype: np.dtype, *xs: Any) -> Any:
        given = np.broadcast_arrays(*map(bare, xs))
        return as_given(np.broadcast_to(np.asarray(f(*given), dtype), given[0].shape), *xs)

    def complex(self, re: Any, im: Any) -> Any:
        re, im = np.broadcast_arrays(re, im)
        out = np.empty(re.shape, np.result_type(re, im, np.complex64))
        out.real, out.imag = re, im
        return out

    def rem(self, x: Any, y: Any) -> Any:
        return np.fmod(x, y)

    def quotient(self, x: Any, y: Any) -> Any:
        return np.floor_divide(x - np.fmod(x, y), y)

    def checked(self, i: Any, n: int) -> Any:
        i = np.asarray(i).astype(np.int64)
        if ((i < -n) | (i >= n)).any():
            raise BoundsError(f"an index is outside an axis of length {n}")
        return np.where(i < 0, i + n, i)

    def required(self, x: Any, good: Any, said: str) -> Any:
        if not np.all(good):
            raise ArgumentError(said)
        return x

    def turns(self, most: int, done: Slot | None = None) -> Iterator[Any]:
        return ARRAYS.turns(most, done)

    def pick(self, x: Any, *at: Any) -> Any:
        return np.asarray(x.data if isinstance(x, Array) else x)[tuple(at)]

    def view(self, x: Any, shape: tuple[int, ...]) -> Any:
        return Array(x.data.reshape(shape)) if isinstance(x, Array) else np.reshape(x, shape)

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return as_given(np.broadcast_to(bare(x), shape), x)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return np.transpose(x, axes)

    def slice(self, x: Any, ranges: Sequence[tuple[int, int, int]]) -> Any:
        picked = [start + step * np.arange(count) for start, count, step in ranges]
        return as_given(bare(x)[np.ix_(*picked)], x) if picked else x

    def pad(self, x: Any, widths: Sequence[tuple[int, int]], value: Any) -> Any:
        return np.pad(x, widths, constant_values=value) if len(widths) else x

    def flip(self, x: Any, axes: tuple[int, ...]) -> Any:
        return as_given(np.flip(bare(x), axes), x)

    def windows(self, x: Any, axis: int, size: int, step: int, dilation: int) -> Any:
        span = dilation * (size - 1) + 1
        found = np.lib.stride_tricks.sliding_window_view(x, span, axis)[..., ::dilation]
        return np.moveaxis(np.moveaxis(found, axis, 0)[::step], 0, axis)

    def concat(self, xs: Sequence[Any], axis: int) -> Any:
        return np.concatenate(xs, axis)

    def lanes(self, out: Array, *, axis: int) -> Iterator[Lanes]:
        return iter([Lanes(out.data.shape[axis], axis)])

    def rows(self, x: Array, out: Array, *, axis: tuple[int, ...]) -> Iterator[Rows]:
        return iter([Rows(x.data.shape, axis)])

    def inside(self, x: Array, t: Along, default: Any) -> Any:
        within = 0 <= t.t < x.data.shape[t.axis]
        return x[t] if within else np.full_like(np.take(x.data, 0, t.axis), default)

    def gemm(self, a: Array, b: Array, out: Array) -> None:
        out.data[...] = np.matmul(a.data, b.data)

    def gather(self, x: Array, indices: Array, out: Array, *, axis: int) -> None:
        out.data[...] = np.take_along_axis(x.data, indices.data, axis)

    def scatter_add(self, x: Array, indices: Array, out: Array, *, axis: int) -> None:
        out.data[...] = 0
        where = list(np.ogrid[tuple(slice(n) for n in x.data.shape)])
        where[axis] = indices.data
        np.add.at(out.data, tuple(where), x.data)

    def scatter(
        self, start: Any, x: Array, indices: Array, out: Array, *, axis: int, combine: Any
    ) -> None:
        out.data[...] = start.data if isinstance(start, Array) else start
        found = np.broadcast_to(self.checked(indices.data, out.data.shape[axis]), x.data.shape)
        for at in np.ndindex(x.data.shape):
            to = (*at[:axis], found[at], *at[axis + 1 :])
            out.data[to] = combine(out.data[to], x.data[at])

    def literal(self, value: np.ndarray) -> Any:
        return value

    def iota(self, length: int, dtype: np.dtype) -> Any:
        return np.arange(length, dtype=dtype)

    def random_bits(
        self, key: Any, shape: tuple[int, ...], domain: int = 0, first: Any = None
    ) -> Any:
        given, key, lead = key, bare(key), key.shape[:-1]
        starts = np.zeros(lead, np.int64) if first is None else bare(first).astype(np.int64)
        size = prod(shape)
        words = [
            np.stack(rng.blocks(row, domain, start + np.arange((size + 1) // 2)), -1)
            for row, start in zip(key.reshape(-1, 2), starts.reshape(-1), strict=True)
        ]
        flat = np.array(words, np.uint32).reshape(prod(lead), -1)[:, :size]
        return as_given(flat.reshape(*lead, *shape), given)


def run_lower(op: Op, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The results of an op's `lower`, by NumPy."""
    k = NumpyKernel()
    arrays = [np.asarray(a) for a in arrays]
    lower: Any = op.lower  # type: ignore[attr-defined]
    names = list(inspect.signature(lower).parameters)
    loops = any(o in names for o in op.outputs)
    token = quiet()
    try:
        with using(PURE):
            if not loops:
                found = lower(k, *arrays)
                return [
                    np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))
                ]
            specs = op.shape(*(spec_of(a) for a in arrays))
            outs = [
                np.empty(s.shape, s.dtype)
                for s in ([specs] if isinstance(specs, Spec) else specs)
            ]
            lower(k, *map(Array, arrays), *map(Array, outs))
            return outs
    finally:
        loud(token)
