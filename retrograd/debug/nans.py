"""nans(): the first op that makes a NaN or an infinity, forward or backward."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import NonFiniteError
from retrograd.core.interpret import Interpreter, Watcher, apply, current, using
from retrograd.core.op import Op, op
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.core.spec import Spec


class NanWatch(Watcher):
    """Raises when finite operands give a result that is not finite."""

    compiles = True

    def above(self, outer: Interpreter) -> NanWatch:
        """This watcher, standing on another level."""
        return NanWatch(outer)

    def look(self, op: Op, args: Sequence[Any], out: Any) -> None:
        """Compare what went in with what came out."""
        made = out if isinstance(out, tuple) else (out,)
        _compare(op.name, _names(op, len(args)), args, made)

    def looker(self, op: Op, operands: int) -> Op:
        """The same look, as an op of a program."""
        return Finite(op.name, _names(op, operands))


@op
class Finite(Op):
    """Raise if the results among the values are not finite and the operands are."""

    who: str
    names: tuple[str, ...]  # of the operands, which come first
    outputs = ()
    effect = "ordered"
    host = "it looks for NaN"
    no_derivative = "it has no result"

    def shape(self, *values: Spec) -> tuple[Spec, ...]:
        return ()

    def forward(self, *values: Any) -> tuple[Any, ...]:
        count = len(self.names)
        _compare(self.who, self.names, values[:count], values[count:])
        return ()

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
        return apply(self, *args)  # of all rows at once

    @staticmethod
    def samples(rng: Any) -> Iterator[tuple[Any, ...]]:
        yield Finite("log", ("x",)), rng.uniform(1, 2, 3), rng.normal(size=3)
        yield Finite("log", ("x",)), np.array([np.inf]), np.array([np.inf])

    @staticmethod
    def refuses(rng: Any) -> Iterator[tuple[Any, ...]]:
        yield Finite("log", ("x",)), np.array([-1.0]), np.array([np.nan]), "log: made NaN in 1"


def _compare(who: str, names: Sequence[str], args: Sequence[Any], made: Sequence[Any]) -> None:
    arrays = [_values(o) for o in made]
    if all(a is None or np.isfinite(a).all() for a in arrays):
        return
    given = [_values(a) for a in args]
    if any(a is not None and not np.isfinite(a).all() for a in given):
        return  # it came in: the op that made it was the first, or it was meant
    bad = next(a for a in arrays if a is not None and not np.isfinite(a).all())
    kind = "NaN" if np.isnan(bad).any() else "an infinity"
    count = int((~np.isfinite(bad)).sum())
    operands = "; ".join(f"{name} {_range(a)}" for name, a in zip(names, args, strict=True))
    raise NonFiniteError(
        f"{who}: made {kind} in {count} of {bad.size} elements; its operands were "
        f"finite: {operands}"
    )


def _names(op: Op, count: int) -> tuple[str, ...]:
    if op.variadic:
        return tuple(f"{op.inputs[0]}[{i}]" for i in range(count))
    return tuple(op.inputs)


def _values(x: Any) -> np.ndarray | None:
    """The float values of an operand, None where there are none to look at."""
    if isinstance(x, Box):
        return None
    array = x.array if isinstance(x, Tensor) else np.asarray(x)
    if not dt.is_inexact(array.dtype):
        return None
    return array.astype(np.float32) if array.dtype in dt.HALF else array


def _range(x: Any) -> str:
    array = x.array if isinstance(x, Tensor) else np.asarray(x)
    shown = f"{array.dtype}{list(array.shape)}"
    if not array.size:
        return f"{shown} (empty)"
    if array.dtype.kind == "c":
        size = np.abs(array)
        return f"{shown} with magnitudes from {size.min():.4g} to {size.max():.4g}"
    return f"{shown} from {array.min():.4g} to {array.max():.4g}"


@contextmanager
def nans() -> Iterator[None]:
    """While the block runs, the first op that makes a NaN or an infinity raises.

    The error names the op, the user's line (of the forward op, when it happens in its
    backward rule), and the range of its operands. Values that come in from outside, such as
    -inf in a mask, are not reported. Every op is looked at, so this is slow.
    """
    with using(NanWatch(current.get())):
        yield
