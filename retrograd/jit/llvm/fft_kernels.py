"""The kernels of Fourier transforms: one for each axis."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.llvm.fft import (
    Axis,
    Leg,
    Side,
    beside,
    inline,
    lanes_of,
    parted_by,
    write_axes,
)
from retrograd.jit.llvm.fft_plan import smooth
from retrograd.jit.llvm.launches import PARTS, Kernels
from retrograd.ops.fft.transforms import DoubledRealFourier, InverseRealFourier, RealFourier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type, Val

__all__ = ["FourierKernels"]

LONG = 1 << 12  # numbers of a line: two buffers of them for each lane are to stay near
LONGEST = 1 << 16  # the same, of a line that has all lanes for itself
FEW, SHORT = 8, 64  # lines: fewer leave most lanes empty, unless they are short
MEDIUM, FILLED = 512, 0.6  # of longer lines, how many lanes are to be used
NEAR, MANY = 1 << 20, 8  # bytes of a part that is to stay near, and how many parts are enough
LANES = 16  # that machines may have


class FourierKernels(Kernels):
    """Fourier, RealFourier, which may be doubled, and InverseRealFourier."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Lengths with small factors; lines that are not too long, nor few."""
        (x,) = specs
        if x.dtype.name not in PARTS or not op.axes or not x.size:
            return False
        if isinstance(op, DoubledRealFourier) and (len(op.axes) > 1 or x.shape[op.axes[0]] % 2):
            return False
        return all(map(_fits, _axes(op, x, PARTS[x.dtype.name])))

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """All axes of one part of the array after the other if that is small, else of all."""
        self.tables: list[np.ndarray] = []
        (x,), axes = specs, _axes(op, specs[0], t)
        back = isinstance(op, InverseRealFourier)
        if back and len(axes) > 1:
            self.temporaries = (2 * x.size * (t.bits // 8),)
        here, legs = 0, []
        for k, a in enumerate(axes):
            there = 1 if k == len(axes) - 1 or not back else 2
            legs.append(Leg(a, (here, there)))
            here = there
        parts = prod(x.shape[: min(op.axes)])
        if self._near(legs, parts):
            self._launch(f"{name}_all", legs, parts)
            return
        for k, leg in enumerate(legs):
            self._launch(f"{name}_{k}", [Leg(leg.axis, (0, 1))], ends=leg.ends)

    def _near(self, legs: Sequence[Leg], parts: int) -> bool:
        """Whether parts are small, and enough to be shared by threads."""
        lanes = lanes_of(self.writer.module, legs[0].axis)
        small = all(leg.axis.bytes <= parts * NEAR for leg in legs)
        even = all(parted_by(leg.axis, parts, lanes) for leg in legs)
        return len(legs) > 1 and parts >= MANY and small and even

    def _launch(
        self,
        name: str,
        legs: Sequence[Leg],
        parts: int = 1,
        ends: Sequence[int] | None = None,
    ) -> None:
        """A kernel on the buffers `ends`, or on all, and the table that it reads."""
        info, factors = write_axes(self.writer.module, name, legs, parts)
        info = info._replace(name=self.writer.share(name))
        first = 2 + len(self.temporaries)
        self.launches.append((info, (*(ends or range(first)), first + len(self.tables))))
        self.tables.append(factors)

    def write(
        self,
        given: list[Val],
        outs: list[Val],
        arena: Val,
        offset: int,
        more: Sequence[Val] = (),
    ) -> None:
        """Call them; tables are the program's constants."""
        tables = [self._held(one) for one in self.tables]
        super().write(given, outs, arena, offset, [*tables, *more])

    def _held(self, array: np.ndarray) -> Val:
        """A table that the program keeps; once, if it has it already."""
        w = self.writer
        for k, known in enumerate(w.constants):
            if known.dtype == array.dtype and np.array_equal(known, array):
                return w.pointer(w.constants_at + k)
        return w.constant(array)


def _axes(op: Any, x: Spec, t: Type) -> list[Axis]:
    """The axes in their order: that of real numbers last on the way back, else first."""
    out, back = op.shape(x), isinstance(op, InverseRealFourier)
    shape, kind, found = list(x.shape), "complex" if x.dtype.kind == "c" else "real", []
    for axis in op.axes if back else reversed(op.axes):
        found.append(_axis(op, shape, axis, kind, t))
        shape[axis], kind = out.shape[axis], "complex"
    return found


def _axis(op: Any, shape: Sequence[int], axis: int, kind: str, t: Type) -> Axis:
    """One axis of what has `shape`, in numbers of a kind."""
    n = length = shape[axis]
    source, target, before, after = Side(kind, n), Side("complex", n), "", ""
    inverse = getattr(op, "inverse", False)
    doubled = isinstance(op, DoubledRealFourier)
    if (doubled or isinstance(op, RealFourier)) and axis == op.axes[-1]:
        target, after = Side("complex", n // 2 + 1), "first"
        if n % 2 == 0:
            after = "doubled" if doubled else "apart"
            length, source = n // 2, Side("pairs", n)
    elif isinstance(op, InverseRealFourier):
        inverse = True
        if axis == op.axes[-1]:
            n = length = op.length
            target, before = Side("real", n), "mirror"
            if n % 2 == 0:
                length, target, before = n // 2, Side("pairs", n), "together"
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    scale = _scale(op.norm, n, inverse=inverse)
    return Axis(outer, inner, length, t, source, target, before, after, inverse, scale)


def _fits(a: Axis) -> bool:
    """Whether an axis is one for these kernels; the same on all machines."""
    if not smooth(a.length):
        return False
    if a.length <= LONGEST and inline(a, LANES):
        return True
    if a.after == "doubled":  # in groups it is no quicker than what it expands to
        return False
    if a.length <= MEDIUM:
        return a.lines >= FEW or a.length <= SHORT
    near = a.inner == 1 or beside(a, LANES)
    wide = a.inner if a.inner > 1 else a.lines
    return a.length <= LONG and near and FILLED * -(-wide // LANES) * LANES <= wide


def _scale(norm: str, n: int, *, inverse: bool) -> float:
    """What a transform is multiplied by."""
    if norm == "ortho":
        return float(n) ** -0.5
    return 1 / n if (norm == "backward") == inverse else 1.0
