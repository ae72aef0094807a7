"""From one dtype to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift, unchanged
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, check_device
from retrograd.core.tensor import Tensor

__all__ = ["astype"]


@op
class Astype(Linear):
    """The same numbers in another dtype; a complex number loses its imaginary part."""

    dtype: np.dtype

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(self.dtype)

    def forward(self, x):
        if x.dtype.kind == "c" and self.dtype.kind not in "cb":
            x = x.real
        return x.astype(self.dtype)

    def transpose(self, g, x: Spec):
        return astype(g, x.dtype) if dt.is_inexact(x.dtype) else None

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, x):
        return k.cast(x, self.dtype)

    @staticmethod
    def samples(rng):
        yield Astype(dt.float64), rng.normal(size=(2, 3))
        yield Astype(dt.complex128), rng.normal(size=(2, 3))
        yield Astype(dt.float64), rng.normal(size=3) + 1j * rng.normal(size=3)


@function
def astype(
    x: Any,
    dtype: Any,
    /,
    *,
    copy: bool = True,  # noqa: ARG001 - the standard's; tensors do not share what is written
    device: Any = None,
) -> Tensor:
    """x in another dtype; with the dtype it has, another handle on the same values."""
    check_device("astype", device)
    x = lift(x)
    wanted = dt.as_dtype("astype", dtype)
    return unchanged(x) if x.dtype == wanted else apply(Astype(wanted), x)


@function
def restore(g: Any, dtype: np.dtype) -> Any:
    """A cotangent in the dtype of its input."""
    return apply(Astype(dtype), g)
