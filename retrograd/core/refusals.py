"""Why an op could not run, in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.errors import RetrogradError, TraceError
from retrograd.core.spec import spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.tensor import Box

__all__ = ["escaped", "refuse"]


def refuse(op: Op, arrays: Sequence[Any], cause: Exception) -> None:
    """Say in our words why an op could not run; returns if the shape rule finds nothing."""
    if isinstance(cause, RetrogradError) or op.bodied:
        return
    try:
        op.shape(*map(spec_of, arrays))
    except RetrogradError as error:
        raise error from cause


def escaped(op: Op, box: Box) -> TraceError:
    """A boxed tensor met an interpreter that it does not belong to."""
    return TraceError(
        f"{op.name}: a tensor {box.spec} of {type(box.owner).__name__.lower()} is used after "
        f"that transform has ended, or is captured by a function with its own derivative; "
        f"return it from the transformed function, or make it an argument"
    )
