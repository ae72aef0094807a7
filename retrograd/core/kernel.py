"""The Kernel protocol: what an op's `lower` is written against. Data, not pointers.

A target (LLVM now, WGSL later) renders it; `testing.reference` renders it with NumPy, which
is how `lower` is tested against `forward` without a compiler. Nothing here assumes a vector
width, a memory layout, 64-bit numbers or a loop order: `lower` says what is independent of
what, and the target chooses the loops.

Three forms of `lower`, told apart by its parameters:

- elementwise: `lower(self, k, x1, x2)` returns an expression of numbers. Operators
  `+ - * /`, comparisons, `& | ^ ~ << >>`, Python numbers, and the functions of Kernel.
- movement: `lower(self, k, x)` of an op that is not elementwise returns an array
  expression made by view, broadcast, permute, slice, pad, flip, concat or random_bits;
  arithmetic is done by `map`, element by element.
- loops: `lower(self, k, x, out)` names its outputs, and writes every element of them in
  loops over rows or lanes, or by one of the macros gemm, gather, scatter, scatter_add. An
  elementwise op may be written so too: a row is then one element, of operands that it
  broadcasts, and `turns` are its own loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np


class Var(Protocol):
    """A number that loops may change: read and write `value`."""

    value: Any


class Lane(Protocol):
    """One walk along the axis of `lanes`; independent of all other lanes.

    x[lane] is the element of an array that has length 1 along the axis.
    """

    def steps(self, *, reverse: bool = False) -> Iterator[Any]:
        """Indices along the axis, in order; arrays are indexed by them: x[t]."""
        ...


class Row(Protocol):
    """One output element of `rows`, with the elements that are reduced to it."""

    def steps(self) -> Iterator[Any]:
        """Indices over the reduced axes, in row-major order: x[i]."""
        ...


class Kernel(Protocol):
    """What `lower` may say."""

    # numbers
    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """x where mask, else y."""
        ...

    def cast(self, x: Any, dtype: np.dtype) -> Any:
        """x in another dtype, by C's rules."""
        ...

    def maximum(self, x: Any, y: Any) -> Any:
        """The larger; NaN if either is."""
        ...

    def larger(self, x: Any, y: Any) -> Any:
        """x if it is larger than y, else y: NaN never is."""
        ...

    def minimum(self, x: Any, y: Any) -> Any:
        """The smaller; NaN if either is."""
        ...

    def pow(self, x: Any, y: Any) -> Any:
        """x to the y-th, by IEEE's rules."""
        ...

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, rounded once where the machine can: only for what may differ."""
        ...

    def atan2(self, x: Any, y: Any) -> Any:
        """The angle of (y, x)."""
        ...

    def rem(self, x: Any, y: Any) -> Any:
        """x - y * trunc(x / y), exactly, with the sign of x; of integers, 0 if y is 0."""
        ...

    def quotient(self, x: Any, y: Any) -> Any:
        """x / y of integers, towards zero; 0 if y is 0."""
        ...

    def complex(self, re: Any, im: Any) -> Any:
        """The complex number of two parts, each as it is."""
        ...

    def checked(self, i: Any, n: int) -> Any:
        """An index into n, from the front; out of range, the call is a BoundsError."""
        ...

    def required(self, x: Any, good: Any, said: str) -> Any:
        """x, which must be good; where it is not, the call is an ArgumentError that says so."""
        ...

    def bits(self, x: Any) -> Any:
        """The bit pattern of a float32 or float64, as an unsigned integer."""
        ...

    def from_bits(self, x: Any) -> Any:
        """The float32 or float64 of a bit pattern."""
        ...

    def rarely(self, mask: Any, f: Callable[..., Any], otherwise: Any, *args: Any) -> Any:
        """f(*args) where mask, else `otherwise`: f may be skipped where no mask holds."""
        ...

    def __getattr__(self, name: str) -> Any:
        """Unary functions.

        exp, exp_below (of numbers up to 0), expm1, exp2, log, log1p, log2, log10, sqrt, sin,
        cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, silu,
        floor, ceil, trunc, round (half to even), abs, isnan, isinf, isfinite, signbit, real,
        imag, conj.
        """
        ...

    # arrays
    def map(self, f: Callable[..., Any], dtype: np.dtype, *xs: Any) -> Any:
        """f of the numbers of arrays that broadcast, element by element, in `dtype`."""
        ...

    def view(self, x: Any, shape: tuple[int, ...]) -> Any:
        """The elements in row-major order, in another shape."""
        ...

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Repeated to `shape`."""
        ...

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        """The axes in another order."""
        ...

    def slice(self, x: Any, ranges: Sequence[tuple[int, int, int]]) -> Any:
        """(start, count, step) for each axis; step may be negative."""
        ...

    def pad(self, x: Any, widths: Sequence[tuple[int, int]], value: Any) -> Any:
        """`value` put before and after along each axis."""
        ...

    def flip(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Backwards along the axes."""
        ...

    def windows(self, x: Any, axis: int, size: int, step: int, dilation: int) -> Any:
        """Windows along an axis: element w of one is a new last axis."""
        ...

    def concat(self, xs: Sequence[Any], axis: int) -> Any:
        """One after another."""
        ...

    def pick(self, x: Any, *at: Any) -> Any:
        """The number of x at integers that were computed, which must be inside its axes."""
        ...

    # loops
    def var(self, init: Any, like: Any = None) -> Var:
        """A number that loops may change, of the dtype of `like` or of what it first meets."""
        ...

    def lanes(self, out: Any, *, axis: int) -> Iterator[Lane]:
        """All walks along `axis`; arrays inside are indexed by the walk's steps."""
        ...

    def rows(self, x: Any, out: Any, *, axis: tuple[int, ...]) -> Iterator[Row]:
        """All elements of out, each with the elements of x along `axis`: out[row] = ..."""
        ...

    def turns(self, most: int, done: Var | None = None) -> Iterator[Any]:
        """The numbers 0, 1, ... below `most`, until `done` is true wherever it is computed."""
        ...

    def inside(self, x: Any, t: Any, default: Any) -> Any:
        """x[t], or `default` where t is outside the axis of the lanes."""
        ...

    # macros
    def gemm(self, a: Any, b: Any, out: Any) -> None:
        """out = a @ b over the last two axes; leading axes broadcast."""
        ...

    def gather(self, x: Any, indices: Any, out: Any, *, axis: int) -> None:
        """out = x taken along an axis at indices of out's shape, bounds checked."""
        ...

    def scatter_add(self, x: Any, indices: Any, out: Any, *, axis: int) -> None:
        """out = zeros, then x added along an axis at indices, in index order."""
        ...

    def scatter(
        self, start: Any, x: Any, indices: Any, out: Any, *, axis: int, combine: Any
    ) -> None:
        """out = start, then combine(out, x) along an axis at indices, in index order.

        `start` is an array of out's shape or a number; indices broadcast to x's shape.
        """
        ...

    def literal(self, value: np.ndarray) -> Any:
        """The elements of a small array, which are part of the code."""
        ...

    def iota(self, length: int, dtype: np.dtype) -> Any:
        """0, 1, 2, ... up to length."""
        ...

    def random_bits(
        self, key: Any, shape: tuple[int, ...], domain: int = 0, first: Any = None
    ) -> Any:
        """uint32 words: element i is core.rng's of (key, i), for each key of a batch.

        They are those of a domain of core.rng's counters, from its first block on or, with
        `first`, an integer for each key, from that block on.
        """
        ...
