"""Decompositions of float32 and complex64 in their own width.

`np.linalg` widens all of them to float64, which takes LAPACK up to twice the time. NumPy has
LAPACK's routines for float32 too, under names of its own: where a NumPy does not have them by
these names, or they do not converge, its public functions do it. Small matrices, where width
is not what takes time, keep the digits of float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["eigh", "eigvalsh", "svd", "svdvals"]

LARGE = 32  # rows and columns
SINGLE = {np.dtype(np.float32): "f", np.dtype(np.complex64): "F"}


def _found(name: str, x: np.ndarray, outputs: str) -> Any:
    """What LAPACK's routine of this name finds in x's own width; None where it cannot."""
    kind = SINGLE.get(x.dtype)
    if kind is None or min(x.shape[-2:]) < LARGE:
        return None
    routine = getattr(getattr(np.linalg, "_umath_linalg", None), name, None)
    signature = f"{kind}->{outputs.replace('x', kind)}"
    if signature not in getattr(routine, "types", ()):
        return None
    found = routine(x, signature=signature)  # type: ignore[misc]
    values = found[outputs.index("f")] if isinstance(found, tuple) else found
    return found if np.isfinite(values).all() else None  # nan where it did not converge


def svd(x: np.ndarray) -> Any:
    """u, s, vh of matrices, with as many columns as singular values."""
    found = _found("svd_s", x, "xfx")
    return np.linalg.svd(x, full_matrices=False) if found is None else found


def svdvals(x: np.ndarray) -> Any:
    """The singular values."""
    found = _found("svd", x, "f")
    return np.linalg.svd(x, compute_uv=False) if found is None else found


def eigh(x: np.ndarray) -> Any:
    """The eigenvalues and vectors of Hermitian matrices."""
    found = _found("eigh_lo", x, "fx")
    return np.linalg.eigh(x) if found is None else found


def eigvalsh(x: np.ndarray) -> Any:
    """The eigenvalues of Hermitian matrices."""
    found = _found("eigvalsh_lo", x, "f")
    return np.linalg.eigvalsh(x) if found is None else found
