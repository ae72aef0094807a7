"""Functions of several ops that run as one where they are heavy: one kernel, one tape node.

Under Eval, where an operand is heavy and the executor takes it, such a function is one op:
its forward pass and its derivative are a program each. Everywhere else (small operands, jit,
vmap, nested derivatives, no executor) it is what it is written as.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from retrograd.core.executor import LIGHT
from retrograd.core.interpret import Eval, current
from retrograd.core.op import FUNCTIONS, Composite, prepare
from retrograd.core.tensor import Box, Tensor
from retrograd.core.value import exact

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Whole", "whole"]

F = TypeVar("F", bound="Callable[..., Any]")
_HERE = object()  # stands for a tensor among the arguments


class Whole(Composite):
    """A function on the tensors among its arguments; the other arguments are its options."""

    function: Any
    given: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    whole: ClassVar[bool] = True

    def expand(self, *xs: Any) -> Any:
        """The function itself."""
        tensors = iter(xs)
        args = [next(tensors) if a is _HERE else a for a in self.given]
        return self.function(
            *args, **{n: next(tensors) if a is _HERE else a for n, a in self.options}
        )


prepare(Whole)


def whole(f: F) -> F:
    """Let a function of tensors run as one op where it is heavy."""

    @wraps(f)
    def run(*args: Any, **options: Any) -> Any:
        level = current.get()
        if isinstance(level, Eval):
            given = [*args, *options.values()]
            tensors = [a for a in given if isinstance(a, (Tensor, np.ndarray))]
            if _heavy(tensors) and not any(isinstance(a, Box) for a in tensors):
                left = _options(given)
                if left is not None:
                    names = zip(options, left[len(args) :], strict=True)
                    op = Whole(f, tuple(left[: len(args)]), tuple(names))
                    return level.whole(op, [FUNCTIONS["lift"](t) for t in tensors])
        return f(*args, **options)

    return run  # type: ignore[return-value]


def _heavy(tensors: list[Any]) -> bool:
    return any(t.size >= LIGHT for t in tensors)


def _options(given: list[Any]) -> list[Any] | None:
    """The arguments with a mark for tensors; None if one of the others cannot be a key."""
    try:
        hash(tuple(exact(a) for a in given if not isinstance(a, (Tensor, np.ndarray))))
    except TypeError:
        return None
    return [_HERE if isinstance(a, (Tensor, np.ndarray)) else a for a in given]
