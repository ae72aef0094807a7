"""What the array API standard asks a namespace to say of itself: constants, dtypes, devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.spec import check_device

__array_api_version__ = "2024.12"
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None


class Info:
    """The answers of `rg.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """What works: boolean indexing and data-dependent shapes do, in eager code."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of new tensors."""
        return "cpu"

    def devices(self) -> list[str]:
        """All devices."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of new tensors, by kind."""
        check_device("__array_namespace_info__", device)
        return {
            "real floating": dt.float32,
            "complex floating": dt.complex64,
            "integral": dt.int64,
            "indexing": dt.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """All dtypes, or those of a kind."""
        check_device("__array_namespace_info__", device)
        standard = [d for d in dt.ALL if d not in dt.HALF]
        return {d.name: d for d in standard if kind is None or dt.isdtype(d, kind)}


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """What this namespace offers, by the array API standard."""
    return Info()
