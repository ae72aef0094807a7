"""Closeness: one tolerance for each dtype, none for each op."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import tree
from retrograd.core.tensor import Tensor

TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 1e-5,
    "float64": 1e-11,
    "complex64": 1e-5,
    "complex128": 1e-11,
}
DIFFERENCE = 1e-7  # what a central difference in float64 can be trusted for


def values(x: Any) -> np.ndarray:
    """The NumPy values of a tensor or array."""
    return np.asarray(x.array if isinstance(x, Tensor) else x)


def assert_close(
    got: Any, wanted: Any, *, tolerance: float | None = None, what: str = ""
) -> None:
    """Trees of tensors or arrays agree: same structure, shapes, and values to rounding.

    The error allowed is `tolerance` (by dtype unless given) times the largest magnitude of
    the wanted values, or the same absolute number where they are small.
    """
    a, sa = tree.flatten(got)
    b, sb = tree.flatten(wanted)
    if sa != sb:
        raise AssertionError(f"{what}: structures differ: got {sa}, wanted {sb}")
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        _close(values(x), values(y), tolerance, f"{what} leaf {i}" if len(a) > 1 else what)


def _close(x: np.ndarray, y: np.ndarray, tolerance: float | None, what: str) -> None:
    if x.shape != y.shape:
        raise AssertionError(f"{what}: shapes differ: got {x.shape}, wanted {y.shape}")
    if x.size == 0:
        return
    if tolerance is None:
        tolerance = max(TOLERANCE.get(str(v.dtype), 0.0) for v in (x, y))
    if x.dtype.name == "bfloat16" or y.dtype.name == "bfloat16":
        x, y = x.astype(np.float32), y.astype(np.float32)
    same = (x == y) | ((x != x) & (y != y))
    if same.all():
        return
    with np.errstate(all="ignore"):
        finite = np.isfinite(y)
        scale = max(1.0, float(np.max(np.abs(y[finite])))) if finite.any() else 1.0
        off = np.where(same, 0, np.abs(x - y))
        bad = ~(off <= tolerance * scale)
    if bad.any():
        at = tuple(np.argwhere(bad)[0].tolist())
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {x.size} differ by more than {tolerance:g} of "
            f"{scale:.3g}; the first at {at}: got {x[at]}, wanted {y[at]}"
        )
