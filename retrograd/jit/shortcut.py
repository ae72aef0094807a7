"""The second call: arguments that look like those of a known program are read in one go.

For the signature of a program straight-line Python is written: it looks at each node and leaf
where it was before, and gives up at the first difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.frozen import Freezing
from retrograd.core.tensor import Tensor
from retrograd.jit.buffers import PLAIN, address_text
from retrograd.jit.signature import FLAT, NUMBERS
from retrograd.jit.straight import Scope, function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["shortcut"]

Read = tuple[list[Any], list[np.ndarray], list[int]]  # data as given, arrays, their addresses
_DEEP = 24  # nodes inside of nodes; deeper trees take the long way


def shortcut(args: Sequence[Any]) -> Callable[..., Read | None] | None:
    """A function of arguments like these to what a program is run with; None for others.

    None at once, where arguments hold what needs a closer look: options, classes of others.
    """
    writer = _Writer()
    try:
        names = [writer.argument(a, 0) for a in args]
    except _OtherError:
        return None
    return writer.function(names)


class _OtherError(Exception):
    """Something that only the long way reads."""


class _Writer:
    """Lines that check, and what they refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope = Scope(Tensor=Tensor, array=np.array)
        self.data: list[str] = []
        self.arrays: list[str] = []
        self.count = 0

    def function(self, names: Sequence[str]) -> Callable[..., Read | None]:
        """What was written, ready to be called."""
        text, more = address_text()
        self.scope.update(more)
        places = ", ".join(text.format(a) for a in self.arrays)
        arrays, data = ", ".join(self.arrays), ", ".join(self.data)
        body = [*self.lines, f"return [{data}], [{arrays}], [{places}]"]
        lines = ["try:", *(f" {line}" for line in body)]
        lines += ["except (KeyError, OverflowError):", " return None"]
        return function(names, lines, self.scope)

    def argument(self, x: Any, depth: int) -> str:
        """The name under which a value like this is known, once it was checked."""
        name, kind = self._name(), type(x)
        if depth > _DEEP:
            raise _OtherError
        if kind is Tensor:
            self._tensor(name, x)
        elif kind in NUMBERS:
            self._number(name, kind)
        elif kind is tuple or kind is list:
            self._unless(f"type({name}) is {self.scope.name(kind)} and len({name}) == {len(x)}")
            self._children(name, x, [f"{name}[{i}]" for i in range(len(x))], depth)
        elif kind is dict:
            self._unless(f"type({name}) is dict and len({name}) == {len(x)}")
            keys = [f"{name}[{self.scope.name(k)}]" for k in sorted(x)] if _texts(x) else None
            self._children(name, [x[k] for k in sorted(x)] if keys else (), keys, depth)
        elif x is None or kind is bool:
            self._unless(f"{name} is {x}")
        elif kind is str:
            self._unless(f"type({name}) is str and {name} == {self.scope.name(x)}")
        elif isinstance(kind, Freezing) and FLAT in x.__dict__:
            self._record(name, x, depth)
        else:
            raise _OtherError
        return name

    def _tensor(self, name: str, x: Tensor) -> None:
        held, a = self._name(), x._data
        if a is None:
            raise _OtherError
        shape, dtype = self.scope.name(a.shape), self.scope.name(a.dtype)
        self._unless(f"type({name}) is Tensor and {name}._node is None")
        self.lines.append(f"{held} = {name}._data")
        self._unless(
            f"{held} is not None and {held}.shape == {shape} and {held}.dtype is {dtype} "
            f"and {held}.flags.num & {PLAIN} == {PLAIN}"
        )
        self._leaf(name, held)

    def _number(self, name: str, kind: type) -> None:
        held = self._name()
        self._unless(f"type({name}) is {kind.__name__}")
        self.lines.append(f"{held} = array({name}, {self.scope.name(NUMBERS[kind])})")
        self._leaf(name, held)

    def _record(self, name: str, x: Any, depth: int) -> None:
        leaves, structure = x.__dict__[FLAT]
        flat = self._name()
        self._unless(f"type({name}) is {self.scope.name(type(x))}")
        self.lines.append(f"{flat} = {name}.__dict__.get({self.scope.name(FLAT)})")
        self._unless(f"{flat} is not None and {flat}[1] is {self.scope.name(structure)}")
        self._children(name, leaves, [f"{flat}[0][{i}]" for i in range(len(leaves))], depth)

    def _children(
        self, name: str, children: Sequence[Any], places: Sequence[str] | None, depth: int
    ) -> None:
        if places is None:
            raise _OtherError
        for x, place in zip(children, places, strict=True):
            at = len(self.lines)
            child = self.argument(x, depth + 1)
            self.lines.insert(at, f"{child} = {place}")

    def _leaf(self, name: str, held: str) -> None:
        self.data.append(name)
        self.arrays.append(held)

    def _unless(self, holds: str) -> None:
        self.lines.append(f"if not ({holds}): return None")

    def _name(self) -> str:
        self.count += 1
        return f"x{self.count}"


def _texts(keys: dict[Any, Any]) -> bool:
    return all(type(k) is str for k in keys)
