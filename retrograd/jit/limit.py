"""The bytes that calls of one compiled function may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrograd.core.errors import BudgetError
from retrograd.jit.threads import get_threads
from retrograd.memory.sizes import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

__all__ = ["Limit"]


@dataclass(frozen=True)
class Limit:
    """A budget, for whom it is, and the threads that are reckoned with."""

    who: str
    nbytes: int
    threads: int
    spill: str | None = None  # the directory for values that are put aside

    @staticmethod
    def of(f: Any) -> Limit | None:
        """The limit of a jitted function that has a budget."""
        if f.budget is None:
            return None
        return Limit(f.who, f.budget, f.threads or get_threads(), f.spill)

    def check(self, taken: int, copies: Sequence[tuple[str, np.ndarray]]) -> None:
        """Refuse a call whose arguments must be copied, if that is more than the budget."""
        more = sum(a.nbytes for _, a in copies)
        if copies and taken + more > self.nbytes:
            names = ", ".join(f"{path} ({shown(a.nbytes)})" for path, a in copies)
            raise BudgetError(
                f"{self.who}: the program takes {taken:,} of {self.nbytes:,} bytes, and "
                f"{names} must be copied first: kernels read rows in order, and only memory "
                f"that nobody else sees can be donated",
                minimum=taken + more,
                hint="rg.asarray(x, copy=True)    once, before the first call",
            )
