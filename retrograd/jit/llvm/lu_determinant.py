"""The kernels of determinants: elimination, and the product of what is on the diagonal."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.lu_kernels import Elimination
from retrograd.jit.llvm.lu_tiny import Group, eliminated
from retrograd.jit.llvm.lu_values import numbers, one, times, write_determinant
from retrograd.jit.llvm.text import I64, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["DetKernels", "SlogdetKernels"]


class DetKernels(Elimination):
    """Det."""

    names: tuple[str, ...] = ("x", "out")

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """Numbers for each matrix."""
        *lead, n, _ = specs[0].shape
        self.stack = prod(lead)
        self.dims = [(self.stack, n * n, *[1] * (len(self.names) - 1))]
        nbytes = self.stack * n * n * self.type.bits // 8
        self.arrange(n, (self.stack * n**3 // 3, nbytes))

    def lanes(self, at: Places, g: Group, n: int, strides: tuple[int, ...]) -> None:
        """Of a few rows."""
        f = g.f
        a = g.read(at["x"], strides[0], (n, n))
        _, odd = eliminated(g, a, [[] for _ in range(n)])
        product = one(f, g.type.lanes)
        for i in range(n):
            x = a[i][i]
            product = times(f, product, x if i else f.select(odd, f.neg(x), x))
        found = numbers(f, product, logarithm=len(self.names) > 2)
        for x, name, stride in zip(found, self.names[1:], strides[1:], strict=True):
            x = x if self.type.bits == 64 else f.convert("fptrunc", x, self.type)
            g.write([[x]], at[name], stride)

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """One chunk multiplies what is on the diagonal."""
        name = write_determinant(f.module, self.s, logarithm=len(self.names) > 2)
        with f.when(f.compare("eq", chunk, f.const(I64, 0))):
            outs = (at[n] for n in self.names[1:])
            f.call(name, None, at["low"], at["pivots"], *outs)


class SlogdetKernels(DetKernels):
    """Slogdet."""

    names = ("x", "sign", "logabsdet")
