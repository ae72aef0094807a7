"""Numbers inside kernels: expressions, the statements made of them, and loops.

Expressions of one kernel are interned: the same computation is the same object, so a shared
part is written once. Statements are data; nothing here knows a vector or a pointer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.jit.loops.index import Axis, Ix

__all__ = [
    "CHECKS",
    "Assign",
    "Buffer",
    "Expr",
    "For",
    "Kernel",
    "NotLoweredError",
    "Slot",
    "Stmt",
    "Store",
    "Var",
    "apply",
    "is_test",
    "load",
    "number",
    "place",
    "read",
]

_BOOL = dt.bool
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
CHECKS = frozenset({"checked", "required"})  # what may refuse while a kernel runs


class NotLoweredError(Exception):
    """An op whose `lower` says something that kernels do not have: it runs on the host."""


class Buffer:
    """Memory that kernels read and write: elements of one dtype, in row-major order."""

    __slots__ = ("constant", "dtype", "name", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, name: Any = None) -> None:
        self.shape, self.dtype, self.name = shape, dtype, name
        self.constant: np.ndarray | None = None  # elements that are part of the code

    def __repr__(self) -> str:
        return f"b{self.name}"


class Var:
    """A number that loops may change. Its dtype is that of what is first assigned to it."""

    __slots__ = ("dtype", "init")

    def __init__(self, init: Any) -> None:
        self.init = init
        self.dtype: np.dtype | None = None


class Expr:
    """A number: an operation on others. `data` is what an operation needs beside them."""

    __slots__ = ("_axes", "args", "data", "dtype", "op", "table")

    def __init__(
        self, op: str, args: tuple[Expr, ...], dtype: np.dtype, data: Any, table: dict
    ) -> None:
        self.op, self.args, self.dtype, self.data, self.table = op, args, dtype, data, table
        self._axes: frozenset[Axis] | None = None

    @property
    def axes(self) -> frozenset[Axis]:
        """The loops it depends on; a variable depends on those of the loops around it."""
        if self._axes is None:
            found: set[Axis] = set()
            for a in self.args:
                found |= a.axes
            if self.op == "load":
                found |= self.data[1].axes()
            elif self.op == "place":
                found |= self.data.axes()
            self._axes = frozenset(found)
        return self._axes

    def walk(self, seen: set[int] | None = None) -> Iterator[Expr]:
        """Itself and all it is made of, each once, but for those whose ids were seen."""
        seen = set() if seen is None else seen
        stack = [self]
        while stack:
            e = stack.pop()
            if id(e) not in seen:
                seen.add(id(e))
                yield e
                stack += e.args
                if e.op in ("load", "place"):
                    stack += [d.expr for d in _dynamic(e)]

    def _two(self, op: str, other: Any, *, swap: bool = False) -> Expr:
        me = settled(self, other)
        other = settled(number(self.table, other, me.dtype), me)
        a, b = (other, me) if swap else (me, other)
        if a.dtype != b.dtype:
            common = np.promote_types(a.dtype, b.dtype)
            a, b = cast(a, common), cast(b, common)
        return apply(op, a, b)

    def __add__(self, other: Any) -> Expr:
        return self._two("add", other)

    def __radd__(self, other: Any) -> Expr:
        return self._two("add", other, swap=True)

    def __sub__(self, other: Any) -> Expr:
        return self._two("sub", other)

    def __rsub__(self, other: Any) -> Expr:
        return self._two("sub", other, swap=True)

    def __mul__(self, other: Any) -> Expr:
        return self._two("mul", other)

    def __rmul__(self, other: Any) -> Expr:
        return self._two("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Expr:
        return self._two("div", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self._two("div", other, swap=True)

    def __and__(self, other: Any) -> Expr:
        return self._two("and", other)

    def __or__(self, other: Any) -> Expr:
        return self._two("or", other)

    def __xor__(self, other: Any) -> Expr:
        return self._two("xor", other)

    def __lshift__(self, other: Any) -> Expr:
        return self._two("shl", other)

    def __rshift__(self, other: Any) -> Expr:
        return self._two("shr", other)

    def __lt__(self, other: Any) -> Expr:
        return self._two("lt", other)

    def __le__(self, other: Any) -> Expr:
        return self._two("le", other)

    def __gt__(self, other: Any) -> Expr:
        return self._two("gt", other)

    def __ge__(self, other: Any) -> Expr:
        return self._two("ge", other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._two("eq", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._two("ne", other)

    __hash__ = object.__hash__

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __invert__(self) -> Expr:
        return apply("not", self)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        return f"{self.op}({inner})" if self.args else f"{self.op}:{self.data!r}"


def _dynamic(e: Expr) -> list[Any]:
    ix = e.data[1] if e.op == "load" else e.data if e.op == "place" else None
    return [] if ix is None else dynamics(ix)


def dynamics(ix: Ix) -> list[Any]:
    """The run-time integers inside an index."""
    found: list[Any] = []
    for a in ix.terms:
        if hasattr(a, "expr"):
            found.append(a)
        elif hasattr(a, "of"):
            found += dynamics(a.of)
    return found


def is_test(op: str) -> bool:
    """Whether a function of one number is a question: isnan, signbit."""
    return op.startswith("is") or op == "signbit"


def intern(table: dict, op: str, args: tuple[Expr, ...], dtype: np.dtype, data: Any) -> Expr:
    """The one expression of this computation in a kernel's table."""
    key = (op, tuple(map(id, args)), dtype, data)
    found = table.get(key)
    if found is None:
        found = table[key] = Expr(op, args, dtype, data, table)
    return found


def apply(op: str, *args: Expr, dtype: np.dtype | None = None, data: Any = None) -> Expr:
    """An operation; its dtype is the first argument's unless the operation has its own."""
    if dtype is None:
        dtype = _BOOL if op in COMPARISONS or is_test(op) else args[0].dtype
    return intern(args[0].table, op, args, dtype, data)


def number(table: dict, value: Any, dtype: np.dtype) -> Expr:
    """A constant; expressions pass. A Python number takes the dtype that it meets."""
    if isinstance(value, Expr):
        return value
    if dtype.kind in "iub" and isinstance(value, float) and not value.is_integer():
        raise NotLoweredError(f"{value} in {dtype}")
    bits = np.asarray(value).astype(dtype)
    return intern(table, "number", (), bits.dtype, bits.tobytes())


def settled(e: Any, other: Any) -> Any:
    """A variable that has no dtype yet takes that of what it meets."""
    if _unsettled(e) and isinstance(other, Expr) and not _unsettled(other):
        e.data[0].dtype = other.dtype
    return _as_known(e)


def _as_known(e: Any) -> Any:
    """A variable that was read before its dtype was known, now that it is."""
    if not (isinstance(e, Expr) and e.op == "var"):
        return e
    known = e.data[0].dtype  # `is None`: to NumPy, float64 == None
    return e if known is None or known == e.dtype else read(e.table, *e.data)


def _unsettled(e: Any) -> bool:
    return isinstance(e, Expr) and e.op == "var" and e.data[0].dtype is None


def cast(x: Expr, dtype: np.dtype) -> Expr:
    """x in another dtype, by C's rules."""
    x = _as_known(x)
    return x if x.dtype == dtype else apply("cast", x, dtype=dtype)


def load(table: dict, buffer: Buffer, index: Ix) -> Expr:
    """The element of a buffer at a row-major number."""
    return intern(table, "load", (), buffer.dtype, (buffer, index))


def place(table: dict, index: Ix) -> Expr:
    """An index as a number."""
    return intern(table, "place", (), dt.int64, index)


def read(table: dict, var: Var, turn: int) -> Expr:
    """A variable as it is now: after `turn` assignments in the order of writing."""
    dtype = var.dtype or np.asarray(var.init).dtype
    return intern(table, "var", (), dtype, (var, turn))


class Assign:
    """var = expr."""

    __slots__ = ("expr", "turn", "var")

    def __init__(self, var: Var, expr: Expr, turn: int) -> None:
        self.var, self.expr, self.turn = var, expr, turn


class Store:
    """buffer[index] = expr."""

    __slots__ = ("buffer", "expr", "index")

    def __init__(self, buffer: Buffer, index: Ix, expr: Expr) -> None:
        self.buffer, self.index, self.expr = buffer, index, expr


class For:
    """A loop, whose turns follow one another; it ends early where `until` holds."""

    __slots__ = ("axes", "body", "reverse", "until")

    def __init__(
        self,
        axes: Sequence[Axis],
        body: list[Stmt],
        *,
        reverse: bool,
        until: Var | None = None,
    ) -> None:
        self.axes, self.body, self.reverse, self.until = tuple(axes), body, reverse, until


Stmt = Assign | Store | For


class Slot:
    """A variable as `lower` sees it."""

    __slots__ = ("k", "turn", "var")

    def __init__(self, k: Any, var: Var) -> None:
        self.k, self.var, self.turn = k, var, 0

    @property
    def value(self) -> Expr:
        """What it holds now."""
        return read(self.k.table, self.var, self.turn)

    @value.setter
    def value(self, new: Any) -> None:
        if self.var.dtype is None and isinstance(new, Expr):
            self.var.dtype = new.dtype
        want = self.var.dtype or np.asarray(self.var.init).dtype
        self.turn += 1
        self.k.body.append(
            Assign(self.var, cast(number(self.k.table, new, want), want), self.turn)
        )


class Kernel:
    """Loops whose turns are independent, and what each turn does."""

    __slots__ = ("axes", "body", "table")

    def __init__(self, axes: Sequence[Axis], body: list[Stmt], table: dict) -> None:
        self.axes, self.body, self.table = tuple(axes), body, table
