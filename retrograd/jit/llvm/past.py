"""Stores past the caches: large results that nothing reads soon.

Such a store must be of whole registers, where those lie in memory; and what is stored so must
not be read by the same kernel, as it is where a donated argument is updated. Both are known
when the kernel begins, if rows of the result are whole lines: then a store is one test of a
bit. Else each store looks at its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.text import I1, I64, LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Val

__all__ = ["Past"]


class Past:
    """The results of a kernel that leave past the caches."""

    def __init__(self, f: Fn) -> None:
        self.f = f
        self.fresh: dict[Val, Val] = {}  # whether a result is where nothing is read
        self.even: dict[Val, Val] = {}  # and begins with a line

    def add(self, base: Val, read: Iterable[Val]) -> None:
        """A result, and what the kernel reads."""
        f, fresh = self.f, self.f.const(I1, 1)
        for other in read:
            fresh = f.bitwise("and", fresh, f.compare("ne", base, other))
        self.fresh[base] = fresh
        self.even[base] = f.bitwise("and", fresh, self._multiple(base, LINE))

    def store(self, base: Val, x: Val, spot: Val, *, lined: bool) -> None:
        """Neighbours; `lined`: their place is a whole number of registers from the base."""
        f = self.f
        if base not in self.fresh:
            f.store(x, spot)
            return
        size = min(x.type.bits // 8 * x.type.lanes, LINE)
        there = self.even[base] if lined else self._there(base, spot, size)
        with f.when(there, lambda: f.store(x, spot)):
            f.stream(x, spot)

    def done(self) -> None:
        """What was stored is there for all threads before what follows."""
        if self.fresh and self.f.machine.triple.startswith("x86"):
            self.f.module.declare("llvm.x86.sse.sfence", "void", "")
            self.f.emit("call void @llvm.x86.sse.sfence()")
        elif self.fresh:
            self.f.emit("fence seq_cst")

    def _there(self, base: Val, spot: Val, size: int) -> Val:
        return self.f.bitwise("and", self.fresh[base], self._multiple(spot, size))

    def _multiple(self, spot: Val, size: int) -> Val:
        """Whether an address is a multiple of a power of two."""
        f = self.f
        at = f.bitwise("and", f.convert("ptrtoint", spot, I64), f.const(I64, size - 1))
        return f.compare("eq", at, f.const(I64, 0))
