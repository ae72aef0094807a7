"""Attention's kernels: the op, and its gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.attention_backward import Backward, Outputs, write_backward
from retrograd.jit.llvm.attention_forward import write_forward
from retrograd.jit.llvm.attention_plan import Geometry, Over
from retrograd.jit.llvm.attention_sums import Sums, write_sums
from retrograd.jit.llvm.launches import REAL, Kernels
from retrograd.jit.steps import contiguous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["AttentionGradKernels", "AttentionKernels"]


class AttentionKernels(Kernels):
    """Attention forward: one kernel."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """All but no features at all, and more scores than dropout's counter counts."""
        q, k, v = specs[:3]
        few = not (q.shape[-1] and v.shape[-1] and k.shape[-2])
        many = op.dropout and prod(q.shape[-4:-1]) * (k.shape[-3] + 1) >= 2**33
        return q.dtype.name in REAL and not few and not many

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        geometry = geometry_of(op, specs, t)
        info = write_forward(self.writer.module, name, geometry, len(specs))
        self.launches = [(info, tuple(range(len(specs) + 2)))]
        self.share()

    def share(self) -> None:
        """Let layers of the same sizes have the same kernels."""
        self.launches = [
            (info._replace(name=self.writer.share(info.name)), buffers)
            for info, buffers in self.launches
        ]


class AttentionGradKernels(AttentionKernels):
    """The gradients: one kernel, and sums of parts where work was cut finer than results."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """As forward; a bias broadcasts along the last of the leading axes, or along none."""
        if not super().takes(op, specs):
            return False
        if "bias" not in op.parts:
            return True
        bias, lengths = op.named(specs)["bias"].shape[:-3], specs[0].shape[:-3]
        steps = [n == m for n, m in zip(bias, lengths, strict=True) if m > 1]
        return steps == sorted(steps, reverse=True)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        module, g, given = self.writer.module, geometry_of(op, specs, t), len(specs)
        names = ["q", "k", "v", *(n for n in op.parts if n in ("bias", "slopes"))]
        wanted = [n for i, n in enumerate(names) if i not in self.unread]
        cut = Backward(module, g, wanted)
        outs = {n: given + i for i, n in enumerate(names)}
        parts = sums_of(cut)
        self.temporaries = tuple(max(s.given * g.size, 1) for s in parts.values())
        free = given + len(outs)
        spots = outs | {n: free + i for i, n in enumerate(parts)}
        total = free + len(parts)
        info = write_backward(module, name, cut, Outputs(**spots), total)
        self.launches = [(info, tuple(range(total)))]
        for part, sums in parts.items():
            info = write_sums(module, f"{name}_{part}", sums)
            self.launches.append((info, (spots[part], outs[part])))
        if cut.bias:
            zeros = Sums(1, 0, op.named(specs)["bias"].size, t)
            info = write_sums(module, f"{name}_zero", zeros)
            self.launches.insert(0, (info, (outs["bias"], outs["bias"])))
        self.share()


def sums_of(cut: Backward) -> dict[str, Sums]:
    """The results that pieces of work leave parts of."""
    g, found = cut.geometry, {}
    if cut.pieces > 1:
        size = g.batch * g.queries * g.heads * g.features
        found["q"] = Sums(1, cut.pieces, size, g.type)
    if cut.slopes:
        few = g.lengths[-1]
        lead = g.batch // few if few else prod(g.lengths[:-1])
        found["slopes"] = Sums(lead, few, g.heads, g.type, cut.pieces)
    return found


def geometry_of(op: Any, specs: Sequence[Spec], t: Type) -> Geometry:
    """The geometry of an op, forward or gradient, on such operands."""
    q, k, v = (s.shape for s in specs[:3])
    at = {name: op.lead + n for n, name in enumerate(op.parts)}
    over = {n: _over(specs[at[n]], at[n]) for n in ("bias", "mask") if n in at}
    return Geometry(
        t,
        q[:-3],
        q[-3],
        k[-3],
        q[-2],
        k[-2],
        q[-1],
        v[-1],
        op.scale,
        op.left,
        op.right,
        op.dropout,
        over.get("bias"),
        over.get("mask"),
        at.get("slopes"),
        at.get("key"),
    )


def _over(spec: Spec, number: int) -> Over:
    steps = contiguous(spec.shape)
    own = [0 if n == 1 else s for n, s in zip(spec.shape, steps, strict=True)]
    return Over(number, tuple(own[:-3]), *own[-3:])
