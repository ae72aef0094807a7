"""The second call: arguments that look like those of a known program are read in one go.

For the signature of a program straight-line Python is written: it looks at each node and leaf
where it was before, and gives up at the first difference. Where there is much to look at it is
more than one function: Python takes memory for all of a text at once to compile it.
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
_LONG = 48  # lines of a function: what comes then has one of its own


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

    def __init__(self, count: int = 0) -> None:
        self.lines: list[str] = []
        self.place, more = address_text()
        self.scope = Scope(Tensor=Tensor, array=np.array, **more)
        self.data: list[str] = []
        self.arrays: list[str] = []
        self.places: list[str] = []
        self.count = count

    def function(self, names: Sequence[str]) -> Callable[..., Read | None]:
        """What was written, ready to be called."""
        found = (", ".join(some) for some in (self.data, self.arrays, self.places))
        body = [*self.lines, "return [{}], [{}], [{}]".format(*found)]
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
            self._children(name, dict(enumerate(x)), depth)
        elif kind is dict:
            self._unless(f"type({name}) is dict and len({name}) == {len(x)}")
            if not _texts(x):
                raise _OtherError
            self._children(name, {k: x[k] for k in sorted(x)}, depth)
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
        flat, held = self._name(), self._name()
        self._unless(f"type({name}) is {self.scope.name(type(x))}")
        self.lines.append(f"{flat} = {name}.__dict__.get({self.scope.name(FLAT)})")
        self._unless(f"{flat} is not None and {flat}[1] is {self.scope.name(structure)}")
        self.lines.append(f"{held} = {flat}[0]")
        self._children(held, dict(enumerate(leaves)), depth)

    def _children(self, name: str, children: dict[Any, Any], depth: int) -> None:
        """What is in `name` by its keys; in functions of it where this one is long."""
        part = self
        for key, x in children.items():
            if len(part.lines) >= _LONG:
                self._call(part, name)
                part = _Writer(self.count)
            at = len(part.lines)
            child = part.argument(x, depth + 1)
            place = key if type(key) is int else part.scope.name(key)
            part.lines.insert(at, f"{child} = {name}[{place}]")
        self._call(part, name)

    def _call(self, part: _Writer, name: str) -> None:
        """What another function reads, as if it was read here."""
        if part is self:
            return
        found = self._name()
        self.lines.append(f"{found} = {self.scope.name(part.function([name]))}({name})")
        self._unless(f"{found} is not None")
        self.data.append(f"*{found}[0]")
        self.arrays.append(f"*{found}[1]")
        self.places.append(f"*{found}[2]")

    def _leaf(self, name: str, held: str) -> None:
        self.data.append(name)
        self.arrays.append(held)
        self.places.append(self.place.format(held))

    def _unless(self, holds: str) -> None:
        self.lines.append(f"if not ({holds}): return None")

    def _name(self) -> str:
        self.count += 1
        return f"x{self.count}"


def _texts(keys: dict[Any, Any]) -> bool:
    return all(type(k) is str for k in keys)
