"""Numbers of bytes, as people write and read them."""

from __future__ import annotations

import math
import re
from contextvars import ContextVar
from typing import Any

from retrograd.core.errors import ArgumentError

__all__ = ["bytes_of", "room_for_loops", "shown"]

room_for_loops: ContextVar[int | None] = ContextVar("room_for_loops", default=None)
_UNITS = {
    "": 1,
    "B": 1,
    **{f"{p}B": 1000**k for k, p in enumerate("KMGT", 1)},
    **{f"{p}iB": 1024**k for k, p in enumerate("KMGT", 1)},
}
_FOLDED = {u.lower(): n for u, n in _UNITS.items()}
_TEXT = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def bytes_of(who: str, budget: Any) -> int:
    """A budget as a number of bytes: an int, or text such as "256 MiB" or "1.5 GB".

    >>> bytes_of("plan", "1.5 KiB")
    1536
    """
    if isinstance(budget, str):
        found = _TEXT.fullmatch(budget)
        unit = _FOLDED.get(found[2].lower()) if found else None
        if found is None or unit is None:
            raise ArgumentError(
                f"{who}: {budget!r} is no number of bytes; write an int, or text with one of "
                f"{', '.join(u for u in _UNITS if u)}",
                hint='budget="256 MiB"',
            )
        return int(float(found[1].replace(",", "").replace("_", "")) * unit)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        try:
            budget = budget.__index__()
        except AttributeError:
            raise ArgumentError(
                f"{who}: a budget is an int or text; got a {type(budget).__name__}",
                hint='budget="256 MiB"',
            ) from None
    if not math.isfinite(budget) or budget < 0 or budget != int(budget):
        raise ArgumentError(
            f"{who}: a budget is a whole number of bytes, 0 or more; got {budget}",
            hint='budget="256 MiB"',
        )
    return int(budget)


def shown(nbytes: float) -> str:
    """A number of bytes for people.

    >>> shown(3 * 2**20)
    '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
