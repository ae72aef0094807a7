"""The Kernel protocol as a recorder: an op's `lower` runs once, on symbols, and leaves data."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.jit.loops import arrays, random
from retrograd.jit.loops.arrays import Array
from retrograd.jit.loops.expr import (
    Buffer,
    Expr,
    For,
    NotLoweredError,
    Slot,
    Store,
    Var,
    apply,
    cast,
    is_test,
    number,
    place,
    settled,
)
from retrograd.jit.loops.index import Axis, Ix, flat
from retrograd.jit.loops.scatter import FEW, few, scattered, within

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from retrograd.jit.loops.expr import Stmt

__all__ = ["Frame", "MismatchError", "Out", "Recorder"]


class MismatchError(Exception):
    """Two ops that do not share their loops: they cannot be one kernel."""


class Frame:
    """The loops of a kernel: an axis for each of a shape, some of them inner (reduced)."""

    def __init__(self, shape: Sequence[int], inner: Sequence[int] = ()) -> None:
        self.shape, self.inner = tuple(shape), tuple(inner)
        self.axes = tuple(Axis(n) for n in shape)
        self.index = tuple(Ix.of(a) for a in self.axes)

    @property
    def outer_axes(self) -> tuple[Axis, ...]:
        """The loops whose turns are independent."""
        return tuple(a for i, a in enumerate(self.axes) if i not in self.inner)

    @property
    def inner_axes(self) -> tuple[Axis, ...]:
        """The loops inside."""
        return tuple(a for i, a in enumerate(self.axes) if i in self.inner)

    def row(self, shape: Sequence[int]) -> tuple[Ix, ...]:
        """The index of the row in an array of rows: inner axes are missing, or of length 1."""
        outer = [i for a, i in enumerate(self.index) if a not in self.inner]
        if len(shape) == len(self.shape):
            return tuple(Ix() if a in self.inner else i for a, i in enumerate(self.index))
        return tuple(outer)


class Out:
    """An output of loops: what is written to it is recorded."""

    def __init__(self, recorder: Recorder, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.recorder, self.shape, self.dtype = recorder, shape, dtype
        self.buffer = Buffer(shape, dtype)
        self.value: Expr | None = None  # a number for each row
        self.array: Array | None = None  # an array that needs no loop of its own

    def __setitem__(self, step: Any, value: Any) -> None:
        k = self.recorder
        value = cast(number(k.table, value, self.dtype), self.dtype)
        if isinstance(step, Row):
            self.value = value
        else:
            k.body.append(Store(self.buffer, flat(step.index, self.shape), value))


class Step:
    """A turn of an inner loop, as an index."""

    def __init__(self, index: tuple[Ix, ...], axis: int = 0) -> None:
        self.index, self.axis = index, axis

    def read(self, x: Array) -> Expr:
        """The element of x at this turn."""
        return x.at(self.index)

    def _moved(self, by: int) -> Step:
        moved = [i + by if a == self.axis else i for a, i in enumerate(self.index)]
        return Step(tuple(moved), self.axis)

    def __sub__(self, by: int) -> Step:
        return self._moved(-by)

    def __add__(self, by: int) -> Step:
        return self._moved(by)


class Row:
    """One row, or one lane: its steps are a loop."""

    def __init__(self, recorder: Recorder, frame: Frame) -> None:
        self.recorder, self.frame = recorder, frame

    def read(self, x: Array) -> Expr:
        """The element of an array that has one for each row."""
        return x.at(self.frame.row(x.shape))

    def steps(self, *, reverse: bool = False) -> Iterator[Step]:
        """Record the loop's body once."""
        k, frame = self.recorder, self.frame
        loop = For(frame.inner_axes, [], reverse=reverse)
        before, k.body = k.body, loop.body
        yield Step(frame.index, frame.inner[0] if frame.inner else 0)
        k.body = before
        k.body.append(loop)


class Recorder:
    """core.kernel.Kernel, rendered as loop statements."""

    def __init__(
        self, table: dict, functions: Container[str], frame: Frame | None = None
    ) -> None:
        self.table, self.frame = table, frame
        self.functions = functions  # those of numbers that the target has
        self.body: list[Stmt] = []
        self.gemms: list[tuple[Array, Array, Out]] = []
        self.constants: dict[Any, Buffer] = {}
        self.where_from: Any = None  # the node being lowered: errors at run time name it

    # numbers

    def __getattr__(self, name: str) -> Any:
        if is_test(name):
            return lambda x: apply(name, x)
        if name in self.functions:
            return lambda x: apply(name, self._real(name, x))
        raise NotLoweredError(name)

    @staticmethod
    def _real(name: str, x: Expr) -> Expr:
        if x.dtype.kind == "c":
            raise NotLoweredError(f"{name} of complex numbers")
        return x

    def _meet(self, *xs: Any) -> list[Expr]:
        """Numbers of one dtype: Python's take that of the others."""
        if any(isinstance(x, Expr) and x.op == "var" for x in xs):
            for other in xs:
                xs = tuple(settled(x, other) if x is not other else x for x in xs)
        known = [x.dtype for x in xs if isinstance(x, Expr)]
        common = np.result_type(*known) if known else np.asarray(xs[0]).dtype
        return [cast(number(self.table, x, common), common) for x in xs]

    def where(self, mask: Any, x: Any, y: Any) -> Expr:
        """x where mask, else y."""
        a, b = self._meet(x, y)
        if mask.dtype != dt.bool:
            mask = mask != 0
        return apply("where", mask, a, b, dtype=a.dtype)

    def cast(self, x: Any, dtype: np.dtype) -> Any:
        """x in another dtype: a number or, element by element, an array."""
        if isinstance(x, Array):
            return Array(x.shape, dtype, lambda index: cast(x.at(index), dtype))
        return cast(x, dtype)

    def maximum(self, x: Any, y: Any) -> Expr:
        """The larger; NaN if either is."""
        return apply("maximum", *self._meet(x, y))

    def larger(self, x: Any, y: Any) -> Expr:
        """x if it is larger than y, else y: NaN never is."""
        return apply("larger", *self._meet(x, y))

    def minimum(self, x: Any, y: Any) -> Expr:
        """The smaller; NaN if either is."""
        return apply("minimum", *self._meet(x, y))

    def pow(self, x: Any, y: Any) -> Expr:
        """x to the y-th."""
        a, b = self._meet(x, y)
        return apply("pow", self._real("pow", a), b)

    def atan2(self, x: Any, y: Any) -> Expr:
        """The angle of (y, x)."""
        return apply("atan2", *self._meet(x, y))

    def rem(self, x: Any, y: Any) -> Expr:
        """x - y * trunc(x / y), exactly."""
        return apply("rem", *self._meet(x, y))

    def quotient(self, x: Any, y: Any) -> Expr:
        """x / y of integers, towards zero."""
        return apply("quotient", *self._meet(x, y))

    def fma(self, x: Any, y: Any, z: Any) -> Expr:
        """x * y + z, rounded once where the machine can."""
        return apply("fma", *self._meet(x, y, z))

    def complex(self, re: Any, im: Any) -> Expr:
        """The complex number of two parts."""
        a, b = self._meet(re, im)
        return apply("complex", a, b, dtype=dt.complex_of(a.dtype))

    def checked(self, i: Expr, n: int) -> Expr:
        """An index from the front; out of range it is an error of the call, and 0."""
        if not n:
            raise NotLoweredError("an index into nothing")
        if i.dtype == dt.uint64:  # what does not fit must not come out negative
            i = apply("minimum", i, number(self.table, 2**63 - 1, i.dtype))
        return apply("checked", cast(i, dt.int64), data=(n, self.where_from))

    def required(self, x: Expr, good: Expr, said: str) -> Expr:
        """x, which must be good: else the call is an error that says so, and its value."""
        return apply("required", x, good, data=(said, self.where_from))

    def abs(self, x: Expr) -> Expr:
        """|x|; of complex numbers, their length."""
        return apply("abs", x, dtype=dt.real_of(x.dtype) if x.dtype.kind == "c" else x.dtype)

    def real(self, x: Expr) -> Expr:
        """The real part."""
        return apply("real", x, dtype=dt.real_of(x.dtype)) if x.dtype.kind == "c" else x

    def imag(self, x: Expr) -> Expr:
        """The imaginary part."""
        if x.dtype.kind != "c":
            return number(self.table, 0, x.dtype)
        return apply("imag", x, dtype=dt.real_of(x.dtype))

    def conj(self, x: Expr) -> Expr:
        """The complex conjugate."""
        return apply("conj", x) if x.dtype.kind == "c" else x

    def bits(self, x: Expr) -> Expr:
        """The bit pattern of a float."""
        return apply("bits", x, dtype=np.dtype(f"u{x.dtype.itemsize}"))

    def from_bits(self, x: Expr) -> Expr:
        """The float of a bit pattern."""
        return apply("from_bits", x, dtype=np.dtype(f"f{x.dtype.itemsize}"))

    def rarely(self, mask: Any, f: Callable[..., Any], otherwise: Any, *args: Any) -> Expr:
        """f(*args) where mask, else `otherwise`: both are computed, as lanes differ."""
        return self.where(mask, f(*args), otherwise)

    # arrays

    def map(self, f: Callable[..., Any], dtype: np.dtype, *xs: Array) -> Array:
        """f of the numbers of arrays that broadcast."""

        def at(index: tuple[Ix, ...]) -> Expr:
            found = f(*(arrays.stretched(x, index) for x in xs))
            return cast(number(self.table, found, dtype), dtype)

        shape = np.broadcast_shapes(*(x.shape for x in xs))
        return Array(shape, dtype, self.later(at))

    view = staticmethod(arrays.view)
    broadcast = staticmethod(arrays.broadcast)
    permute = staticmethod(arrays.permute)
    slice = staticmethod(arrays.sliced)
    flip = staticmethod(arrays.flip)
    windows = staticmethod(arrays.windows)

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], value: Any) -> Array:
        """`value` put before and after along each axis."""
        return arrays.pad(self.table, x, widths, value)

    def concat(self, xs: Sequence[Array], axis: int) -> Array:
        """One after another."""
        return arrays.concat(self.table, xs, axis)

    def pick(self, x: Array, *at: Expr) -> Expr:
        """The number of x at integers that were computed."""
        return x.at(tuple(within(i, n) for i, n in zip(at, x.shape, strict=True)))

    def later(self, at: Callable[[Any], Expr]) -> Callable[[Any], Expr]:
        """What is asked for later, when another op is lowered: its checks name this one."""
        node = self.where_from

        def named(index: tuple[Ix, ...]) -> Expr:
            before, self.where_from = self.where_from, node
            try:
                return at(index)
            finally:
                self.where_from = before

        return named

    # loops

    def var(self, init: Any, like: Any = None) -> Slot:
        """A number that loops may change."""
        var = Var(init)
        if like is not None:
            var.dtype = like.dtype
        return Slot(self, var)

    def lanes(self, out: Out, *, axis: int) -> Iterator[Row]:
        """All walks along `axis`."""
        yield Row(self, self.framed(out.shape, (axis,)))

    def rows(self, x: Array, out: Out, *, axis: tuple[int, ...]) -> Iterator[Row]:
        """All elements of out, each with the elements of x along `axis`."""
        yield Row(self, self.framed(x.shape, tuple(a % len(x.shape) for a in axis)))

    def framed(self, shape: tuple[int, ...], inner: tuple[int, ...]) -> Frame:
        """The loops of this kernel, which must be these."""
        if self.frame is None:
            self.frame = Frame(shape, inner)
        if self.frame.shape != shape or set(self.frame.inner) != set(inner):
            raise MismatchError
        return self.frame

    def turns(self, most: int, done: Slot | None = None) -> Iterator[Expr]:
        """Record a loop that ends when all lanes are done; its turn as a number."""
        axis = Axis(most)
        loop = For((axis,), [], reverse=False, until=done.var if done else None)
        before, self.body = self.body, loop.body
        yield place(self.table, Ix.of(axis))
        self.body = before
        self.body.append(loop)

    def inside(self, x: Array, t: Step, default: Any) -> Expr:
        """x[t], or `default` where t is outside the axis."""
        outside = number(self.table, default, x.dtype)
        return arrays.guarded(self.table, t.index, x.shape, lambda: x.at(t.index), outside)

    # macros

    def gemm(self, a: Array, b: Array, out: Out) -> None:
        """out = a @ b."""
        self.gemms.append((a, b, out))

    def gather(self, x: Array, indices: Array, out: Out, *, axis: int) -> None:
        """Out = x taken along an axis at indices of out's shape, bounds checked."""

        def at(index: tuple[Ix, ...]) -> Expr:
            if not prod(out.shape):
                return number(self.table, 0, out.dtype)  # never asked for by a loop that runs
            found = self.checked(arrays.stretched(indices, index), x.shape[axis])
            return x.at((*index[:axis], within(found, x.shape[axis]), *index[axis + 1 :]))

        out.array = Array(out.shape, out.dtype, self.later(at))

    def scatter_add(self, x: Array, indices: Array, out: Out, *, axis: int) -> None:
        """Out = zeros, then x added along an axis at indices, in index order."""
        if x.shape[axis] <= FEW and 0 not in out.shape:
            at = self.later(few(self, x, indices, out, axis))
            out.array = Array(out.shape, out.dtype, at)
            return
        self.scatter(0, x, indices, out, axis=axis, combine=Expr.__add__)

    def scatter(
        self, start: Any, x: Array, indices: Array, out: Out, *, axis: int, combine: Any
    ) -> None:
        """Out = start, then combine(out, x) along an axis at indices, in index order."""
        frame = self.framed(x.shape, (axis,))
        self.body += scattered(self, frame, start, x, indices, out, axis, combine)

    def literal(self, value: np.ndarray) -> Array:
        """The elements of a small array, which are part of the code."""
        if value.size == 1:
            one = number(self.table, value.reshape(())[()], value.dtype)
            return Array(value.shape, value.dtype, lambda index: one)
        name = (value.shape, value.dtype.str, value.tobytes())
        buffer = Buffer(value.shape, value.dtype, name)
        buffer.constant = value
        return arrays.stored(self.table, self.constants.setdefault(name, buffer))

    def iota(self, length: int, dtype: np.dtype) -> Array:
        """0, 1, 2, ... up to length."""
        return Array((length,), dtype, lambda index: cast(place(self.table, index[0]), dtype))

    def random_bits(
        self, key: Array, shape: tuple[int, ...], domain: int = 0, first: Array | None = None
    ) -> Array:
        """uint32 words of (key, i)."""
        return random.words(self.table, key, shape, domain, first)
