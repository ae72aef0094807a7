"""IEEE arithmetic without NumPy's warnings: infinities and NaNs are values, not events.

`np.errstate` costs a microsecond, more than a small op. NumPy keeps its error state in a
context variable since 2.0; setting that directly costs a tenth. Where a NumPy hides it, the
documented way is used. `rg.debug.nans()` is how a user finds the first NaN.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np


def _fast() -> tuple[Any, Any]:
    umath = np._core.umath  # type: ignore[attr-defined]
    state = umath._make_extobj(all="ignore")
    variable = umath._extobj_contextvar
    return partial(variable.set, state), variable.reset


def _documented() -> tuple[Any, Any]:
    def enter() -> Any:
        context = np.errstate(all="ignore")
        context.__enter__()
        return context

    return enter, lambda context: context.__exit__(None, None, None)


try:
    quiet, loud = _fast()
except (AttributeError, TypeError):
    quiet, loud = _documented()
