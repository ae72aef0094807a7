"""The SSDs' kernels: Mamba-2's, Mamba-3's two forms, and their gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.selective import strides
from retrograd.jit.llvm.ssd import Ssd, whole
from retrograd.jit.llvm.ssd_back import BACK, write_back
from retrograd.jit.llvm.ssd_states import READ, STATES, write_read, write_states
from retrograd.jit.llvm.sums import write_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = [
    "DoubleBackKernels",
    "DoubleKernels",
    "SingleBackKernels",
    "SingleKernels",
    "SsdBackKernels",
    "SsdKernels",
]

LONGEST = 256  # steps in a chunk: scores of longer ones leave the caches

_OPERANDS = {
    "dt": ("x", "dt", "A", "B", "C", "D", "initial"),
    "one": ("x", "da", "B", "C", "initial"),
    "two": ("x", "da", "B", "C", "gamma", "scale", "initial"),
}


class _Parts(Kernels):
    """Both directions: buffers by name, temporaries as they are asked for."""

    kind: ClassVar[str]  # as in Ssd

    @classmethod
    def named(cls, specs: Sequence[Spec]) -> dict[str, Spec]:
        """The operands by name, without cotangents."""
        names = _OPERANDS[cls.kind]
        return dict(zip(names, specs[len(specs) - len(names) :], strict=True))

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, nothing empty, one rank."""
        real = super().takes(op, specs) and all(s.size for s in specs)
        return real and (cls.kind == "dt" or cls.named(specs)["x"].shape[-3] == 1)

    def begin(self, op: Any, specs: Sequence[Spec], t: Type, before: int, outs: int) -> Ssd:
        """The sizes; `before` cotangents precede the operands."""
        names = _OPERANDS[self.kind]
        self.spots = {k: before + n for n, k in enumerate(names)}
        if "dt" in names:
            self.spots |= dict.fromkeys(("da", "scale", "gamma"), self.spots["dt"])
        for missing in ("A", "D", "scale", "gamma"):  # not read by this kind
            self.spots.setdefault(missing, self.spots["da"])
        self.free = len(specs) + outs
        lanes = self.writer.machine.lanes(t.bits // 8)
        return _geometry(self.kind, self.named(specs), op.chunk, t, lanes)

    def room(self, name: str, size: int) -> int:
        """A temporary."""
        self.spots[name] = self.free + len(self.temporaries)
        self.temporaries = (*self.temporaries, size)
        return self.spots[name]

    def launch(self, info: Any, names: Sequence[str], **other: str) -> None:
        """Run a kernel on buffers by name, some of which have other names here."""
        spots = tuple(self.spots[other.get(k, k)] for k in names)
        self.launches.append((info, spots))


class _Forward(_Parts):
    """Forward: states between chunks, then all chunks by themselves."""

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        n = self.begin(op, specs, t, 0, 2)
        self.spots |= {"y": len(specs), "final": len(specs) + 1}
        self.room("states", n.states)
        module = self.writer.module
        states = write_states(module, f"{name}_states", n)
        self.launch(states, STATES, start="initial", end="final")
        self.launch(write_read(module, f"{name}_read", n), READ)


class _Backward(_Parts):
    """Backward: states and their cotangents between chunks, then all chunks by themselves."""

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        names = _OPERANDS[self.kind]
        n = self.begin(op, specs, t, 2, len(names))
        self.spots |= {"g_y": 0, "g_final": 1}
        self.spots |= {f"g{k}": len(specs) + i for i, k in enumerate(names)}
        for missing in ("gdt", "gda", "gA", "gD", "ggamma", "gscale"):  # not written
            self.spots.setdefault(missing, self.spots["gx"])
        self.room("states", n.states)
        self.room("gstates", n.states)
        self.room("end", n.batch * n.heads * n.p * n.r * n.size)
        module, shape = self.writer.module, self.named(specs)
        self.launch(
            write_states(module, f"{name}_states", n), STATES, start="initial", end="end"
        )
        shared = {"ginitial": n.batch * n.heads * n.p * n.r}
        if n.kind == "dt":
            shared |= dict.fromkeys(("gA", "gD"), n.chunks * n.batch * n.heads)
        sums = []
        for k, count in shared.items():
            length = prod(shape[k[1:]].shape)
            if count > length:
                target, source = self.spots[k], self.room(k, count * n.size)
                info = write_sum(module, f"{name}_{k}", count // length, length, t)
                sums.append((info, (source, target)))
        back = write_states(module, f"{name}_gstates", n, back=True)
        other = {"x": "g_y", "B": "C", "start": "g_final", "end": "ginitial"}
        self.launch(back, STATES, states="gstates", **other)
        self.launch(write_back(module, f"{name}_back", n), BACK)
        self.launches += sums


class SsdKernels(_Forward):
    """Mamba-2's."""

    kind = "dt"


class SsdBackKernels(_Backward):
    """The gradient of Mamba-2's."""

    kind = "dt"


class DoubleKernels(_Forward):
    """Mamba-3's double form."""

    kind = "one"


class DoubleBackKernels(_Backward):
    """The gradient of the double form."""

    kind = "one"


class SingleKernels(_Forward):
    """Mamba-3's single form."""

    kind = "two"


class SingleBackKernels(_Backward):
    """The gradient of the single form."""

    kind = "two"


def _geometry(kind: str, given: dict[str, Spec], chunk: int, t: Type, lanes: int) -> Ssd:
    *_, h, p = given["x"].shape
    *lead, s, _ = given["dt" if kind == "dt" else "da"].shape
    g, r = given["B"].shape[-2:]
    by = {
        k: strides(given[k].shape, core) if k in given else (0, 0)
        for k, core in (("A", (h,)), ("D", (h,)), ("initial", (h, p, r)))
    }
    length = whole(min(chunk, s, LONGEST), lanes)
    return Ssd(prod(lead), s, h, g, p, r, length, lanes, kind, t, *by.values())
