"""Products of complex matrices as products of their real and imaginary parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.ops.complex import imag, make_complex, real
from retrograd.ops.linalg import Matmul

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec

__all__ = ["Parts", "by_parts"]

SMALL = 1 << 12  # multiplications of complex numbers: fewer are not worth the copies


class Parts:
    """What stands for a product: four real ones, which have tiles in registers."""

    @staticmethod
    def expand(x1: Any, x2: Any) -> Any:
        """(a + bi)(c + di) = (ac - bd) + (ad + bc)i."""
        a, b, c, d = real(x1), imag(x1), real(x2), imag(x2)
        return make_complex(a @ c - b @ d, a @ d + b @ c)


def by_parts(op: Op, specs: Sequence[Spec]) -> bool:
    """Whether an op is a product of complex matrices that are not tiny."""
    if not isinstance(op, Matmul) or specs[0].dtype.kind != "c":
        return False
    rows, columns = specs[0].shape[-2], specs[1].shape[-1]
    return rows * columns * specs[0].shape[-1] >= SMALL
