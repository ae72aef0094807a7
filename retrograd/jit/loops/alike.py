"""Which kernels are the same but for the memory they work on: these are written once.

    signature(kernel)     # equal for equal kernels; None where that cannot be told

It says all that a kernel is: axes, buffers, variables and expressions by number, in the order
in which they are met. What kernels refuse names the user's line, so such are never the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.expr import CHECKS, Assign, Store
from retrograd.jit.loops.index import Axis, Dynamic, Quotient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.loops.expr import Buffer, Expr, Kernel, Stmt, Var
    from retrograd.jit.loops.index import Ix

__all__ = ["signature"]


class _StrangeError(Exception):
    """Something in a kernel that is not known to be a plain value."""


def signature(kernel: Kernel, marked: Sequence[int] = ()) -> tuple[Any, ...] | None:
    """A kernel as a key. `marked` are names of buffers that are special, each in its way."""
    try:
        return _Reader(marked).read(kernel)
    except _StrangeError:
        return None


class _Reader:
    """Numbers what it meets."""

    def __init__(self, marked: Sequence[int]) -> None:
        self.axes: dict[Axis, int] = {}
        self.buffers: dict[Buffer, int] = {}
        self.vars: dict[Var, int] = {}
        self.exprs: dict[Expr, int] = {}
        self.names: dict[Any, int] = {v: -1 - n for n, v in enumerate(marked)}

    def read(self, kernel: Kernel) -> tuple[Any, ...]:
        """All of it."""
        axes = tuple(map(self.axis, kernel.axes))
        met = list(expressions(kernel.body))
        self.exprs = {e: n for n, e in enumerate(met)}
        rows = tuple([self.expr(e) for e in met])
        body = self.body(kernel.body)
        loops = tuple([a.extent for a in self.axes])
        memory = tuple(map(self.memory, self.buffers))
        held = tuple([(repr(v.init), type(v.init), v.dtype) for v in self.vars])
        return axes, rows, body, loops, memory, held

    def axis(self, axis: Axis) -> int:
        return self.axes.setdefault(axis, len(self.axes))

    def buffer(self, buffer: Buffer) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def var(self, var: Var | None) -> int:
        return -1 if var is None else self.vars.setdefault(var, len(self.vars))

    def memory(self, b: Buffer) -> tuple[Any, ...]:
        """A buffer; those with one name are one memory."""
        if b.constant is not None:
            return b.shape, b.dtype, b.constant.dtype, b.constant.tobytes()
        return b.shape, b.dtype, self.names.setdefault(b.name, len(self.names))

    def expr(self, e: Expr) -> tuple[Any, ...]:
        """A row of the table of expressions."""
        op, data, numbers = e.op, e.data, self.exprs
        if op == "load":
            data = self.buffer(data[0]), self.index(data[1])
        elif op == "place":
            data = self.index(data)
        elif op == "var":
            data = self.var(data[0]), data[1]
        elif op in CHECKS or not _is_plain(data):
            raise _StrangeError
        return op, tuple([numbers[a] for a in e.args]), e.dtype, data

    def index(self, ix: Ix) -> tuple[Any, ...]:
        return ix.const, tuple([(self.atom(a), c) for a, c in ix.terms.items()])

    def atom(self, a: Any) -> Any:
        if type(a) is Axis:
            return self.axis(a)
        if type(a) is Dynamic:
            return "dynamic", self.exprs[a.expr], a.below
        return type(a) is Quotient, self.index(a.of), a.by

    def body(self, body: Sequence[Stmt]) -> tuple[Any, ...]:
        return tuple([self.statement(s) for s in body])

    def statement(self, s: Stmt) -> tuple[Any, ...]:
        if isinstance(s, Assign):
            return "assign", self.var(s.var), s.turn, self.exprs[s.expr]
        if isinstance(s, Store):
            return self.buffer(s.buffer), self.index(s.index), self.exprs[s.expr]
        axes = tuple(map(self.axis, s.axes))
        return axes, s.reverse, self.var(s.until), self.body(s.body)


def _is_plain(data: Any) -> bool:
    if type(data) is tuple:
        return all(map(_is_plain, data))
    return data is None or type(data) in (int, str, bytes, bool)
