"""print and check: ops that act while a program runs, eager or compiled, in program order."""

from __future__ import annotations

import builtins
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, CheckError
from retrograd.core.interpret import apply
from retrograd.core.op import Op, op

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.core.spec import Spec

__all__ = ["check", "print"]


@op
class Print(Op):
    """Print a line for the values, where the program is when it runs; it has no result."""

    format: str
    maps: tuple[tuple[int, tuple[bool, ...]], ...] = ()  # the axes of vmap, outermost first
    outputs = ()
    effect = "ordered"
    host = "it prints"
    no_derivative = "it has no result"

    def shape(self, *values: Spec) -> tuple[Spec, ...]:
        return ()

    def forward(self, *values: Any) -> tuple[Any, ...]:
        for row in _rows(self.maps, values):
            builtins.print(self.format.format(*map(Shown, row)), flush=True)  # noqa: T201
        return ()

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
        return apply(self.replace(maps=((size, tuple(mapped)), *self.maps)), *args)

    @staticmethod
    def samples(rng: Any) -> Iterator[tuple[Any, ...]]:
        yield (Print("here"),)
        yield Print("{} and {:.2f}"), rng.normal(size=3), rng.normal(size=(2, 2))
        yield Print("{1} {0}", ((2, (True, False)),)), rng.normal(size=(2, 3)), 1.5


@op
class Check(Op):
    """Raise CheckError unless every element of the condition is true; it has no result."""

    message: str
    outputs = ()
    effect = "ordered"
    host = "it raises"
    no_derivative = "it has no result"

    def shape(self, condition: Spec) -> tuple[Spec, ...]:
        return ()

    def forward(self, condition: Any) -> tuple[Any, ...]:
        false = np.argwhere(np.logical_not(condition))
        if len(false):
            raise CheckError(f"check: {self.message}{_places(false, np.shape(condition))}")
        return ()

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
        return apply(self, *args)

    @staticmethod
    def samples(rng: Any) -> Iterator[tuple[Any, ...]]:
        yield Check("it is true"), np.ones((2, 3), bool)
        yield Check("numbers count as in Python"), rng.uniform(1, 2, size=3)
        yield Check("nothing is false in nothing"), np.zeros((0, 3), bool)


class Shown:
    """An array that takes the format of a number: it is that of its elements."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __format__(self, spec: str) -> str:
        if not self.array.ndim:
            return format(self.array[()], spec)
        how = {"all": lambda x: format(x, spec)} if spec else None
        return np.array2string(self.array, formatter=how)  # type: ignore[arg-type]

    __str__ = __repr__ = lambda self: format(self, "")


def _rows(maps: Sequence[Any], values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values for each element of the mapped axes."""
    if not maps:
        yield values
        return
    size, mapped = maps[0]
    for i in range(size):
        row = [v[i] if m else v for v, m in zip(values, mapped, strict=True)]
        yield from _rows(maps[1:], row)


def _places(false: np.ndarray, shape: Sequence[int]) -> str:
    if not shape:
        return ""
    first = ", ".join(map(str, false[0]))
    return f"; false in {len(false)} of {int(np.prod(shape))} elements, first at [{first}]"


def print(format: str, *tensors: Any) -> None:
    """Print a line of values: now, and each time a compiled program comes to this place.

    `format` is as for str.format; the format of a number holds for each element of a tensor.
    Lines keep the order of the program, and none is left out, doubled or replayed. Under
    vmap there is a line for each element; derivatives print nothing of their own.

    >>> rg.debug.print("x is {}, its sum {:.2f}", rg.asarray([1, 2]), rg.asarray(3.0))
    x is [1 2], its sum 3.00
    """
    _fits(format, len(tensors))
    apply(Print(format), *tensors)


def _fits(text: str, count: int) -> None:
    """Refuse a format that does not name each tensor."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ArgumentError(f"print: {text!r} is not a format: {error}") from error
    heads = [f.partition(".")[0].partition("[")[0] for f in fields]
    if bad := [h for h in heads if h and not h.isdecimal()]:
        raise ArgumentError(
            f"print: {{{bad[0]}}} is a name; tensors have places: {{}} or {{0}}"
        )
    named = {int(h) if h else i for i, h in enumerate(heads)}
    if named != set(range(count)):
        raise ArgumentError(
            f"print: {text!r} names {len(named)} of the values by {{}}, and there are {count}",
            hint=f'rg.debug.print("{" ".join(["{}"] * count) or "here"}", ...)',
        )


def check(condition: Any, message: str) -> None:
    """Raise CheckError with `message` unless all of `condition` is true, when it is known.

    A compiled program raises when it comes to this place, with this line; what it was given
    stays as it was. No derivative is affected.

    >>> rg.debug.check(rg.ones(3) > 0, "x must be positive")
    """
    apply(Check(message), condition)
