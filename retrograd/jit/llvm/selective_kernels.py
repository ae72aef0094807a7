"""The selective scan's kernels: the op, and its gradient."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.selective import Selective, write_scan
from retrograd.jit.llvm.selective_back import (
    BIAS,
    G_FINAL,
    INITIAL,
    OUT_A,
    OUT_B,
    OUT_BIAS,
    OUT_C,
    OUT_D,
    OUT_INITIAL,
    OUT_Z,
    STARTS,
    A,
    D,
    ScanBack,
)
from retrograd.jit.llvm.sums import write_sum, write_zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["ScanBackKernels", "ScanKernels"]


class ScanKernels(Kernels):
    """SelectiveScan."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, and nothing empty."""
        return super().takes(op, specs) and all(s.size for s in specs)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        scan = _geometry(op, specs, t)
        info = write_scan(self.writer.module, name, scan)
        self.launches = [(info, tuple(range(len(specs) + 2)))]


class ScanBackKernels(Kernels):
    """SelectiveScanGrad: one kernel, then sums over what its units and the batch share."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, and nothing empty."""
        return super().takes(op, specs) and all(s.size for s in specs)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        scan = _geometry(op, specs[G_FINAL + 1 :], t)
        back = ScanBack(self.writer.module, name, scan)
        self.room = _Room([back.starts])
        spots = list(range(STARTS + 1))
        sums = self.sums(back, specs, spots)
        self.launches = [(back.write(), tuple(spots)), *sums]
        if not op.gated:
            spots[OUT_Z] = OUT_Z
            zeros = write_zeros(self.writer.module, f"{name}_zeros", 1, t)
            self.launches.append((zeros, (OUT_Z,)))
        self.temporaries = tuple(self.room.sizes)

    def sums(self, back: ScanBack, specs: Sequence[Spec], spots: list[int]) -> list:
        """The kernels that add up what has parts; its places become temporaries."""
        scan, found = back.scan, []
        rows = scan.batch * scan.time * scan.state
        each = [(OUT_B, back.parts, rows), (OUT_C, back.parts, rows)]
        for out, given in ((OUT_A, A), (OUT_D, D), (OUT_BIAS, BIAS), (OUT_INITIAL, INITIAL)):
            core = scan.channels * (scan.state if out in (OUT_A, OUT_INITIAL) else 1)
            length = prod(specs[given].shape)
            each.append((out, scan.batch * core // length, length))
        for out, parts, length in each:
            if parts > 1:
                spots[out] = self.room.add(parts * length * scan.size)
                name = f"{back.name}_sum{out}"
                info = write_sum(self.writer.module, name, parts, length, scan.type)
                found.append((info, (spots[out], out)))
        return found


class _Room:
    """Temporaries: their sizes, and the numbers of their buffers."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def add(self, size: int) -> int:
        self.sizes.append(size)
        return STARTS + len(self.sizes) - 1


def _geometry(op: Any, specs: Sequence[Spec], t: Type) -> Selective:
    u, _, A_, _, _, D_, _, bias, initial = (s.shape for s in specs)
    more = {"soft": op.soft, "gated": op.gated, "type": t}
    return Selective.of(u, (A_, D_, bias, initial), **more)
