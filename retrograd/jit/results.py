"""What a traced function returned: which leaves are data, and how to build the tree again."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import tree
from retrograd.core.frozen import Child, Freezing, Plan
from retrograd.core.tensor import Tensor
from retrograd.ir.trace import Traced
from retrograd.jit.signature import FLAT, interned, still
from retrograd.jit.straight import Scope, function

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Results", "builder"]

Build = Callable[[Any], Any]  # from all leaves of a tree to one node of it
_DISPLAYS = (tuple, list, dict)
_DEEP = 24


class Results:
    """The leaves that a program computes, and the tree that they go into."""

    def __init__(self, found: Any) -> None:
        leaves, structure = tree.flatten(found)
        self.data = [x for x in leaves if _is_data(x)]
        self.numbers = [_is_number(x) for x in self.data]
        self.static = [None if _is_data(x) else (x,) for x in leaves]
        self.plain = not any(self.numbers) and not any(self.static)
        self.data = [
            x.bare() if number else x for x, number in zip(self.data, self.numbers, strict=True)
        ]
        self.build = builder(interned(structure))

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """The tree, with tensors that were computed; none of them stands for a number."""
        made = iter(tensors)
        return self.build([next(made) if s is None else s[0] for s in self.static])

    def tree(self, arrays: Sequence[np.ndarray]) -> Any:
        """The tree, with what a call computed."""
        if self.plain:
            return self.build([Tensor(a) for a in arrays])
        pairs = zip(arrays, self.numbers, strict=True)
        made = iter([a.item() if number else Tensor(a) for a, number in pairs])
        return self.build([next(made) if s is None else s[0] for s in self.static])


def _is_data(x: Any) -> bool:
    return isinstance(x, (Tensor, np.ndarray, np.generic))


def _is_number(x: Any) -> bool:
    """Whether it is a Python number that was given, or was made of such alone.

    It comes back as a number: as an argument of the next call it needs no other signature.
    """
    return isinstance(x, Traced) and x.weak is not None


def builder(structure: tree.Structure) -> Build:
    """A function from all leaves to the tree: what can be worked out before a call, is."""
    return _builder(structure, 0, remembers=True)


def _builder(structure: tree.Structure, start: int, *, remembers: bool) -> Build:
    if structure.type is None:
        return itemgetter(start)
    if structure.type not in _DISPLAYS:
        return _other(structure, start, remembers=remembers)
    return _Text(remembers=remembers).function(structure, start)


class _Text:
    """Tuples, lists and dicts as one expression."""

    def __init__(self, *, remembers: bool) -> None:
        self.remembers = remembers
        self.scope = Scope()

    def function(self, structure: tree.Structure, start: int) -> Build:
        """The expression as a function of all leaves."""
        text = self.node(structure, start, 0)
        return function(["leaves"], [f"return {text}"], self.scope)

    def node(self, structure: tree.Structure, start: int, depth: int) -> str:
        """One node; Python reads nested brackets to some depth, so deep ones are called."""
        kind = structure.type
        if kind is None:
            return f"leaves[{start}]"
        if kind not in _DISPLAYS or depth > _DEEP:
            inner = _builder(structure, start, remembers=self.remembers)
            return f"{self.scope.name(inner)}(leaves)"
        parts = []
        for child in structure.children:
            parts.append(self.node(child, start, depth + 1))
            start += child.leaves
        if kind is dict:
            pairs = zip(map(self.scope.name, structure.static), parts, strict=True)
            return f"{{{', '.join(f'{key}: {part}' for key, part in pairs)}}}"
        held = "".join(f"{part}, " for part in parts)
        return f"[{held}]" if kind is list else f"({held})"


def _other(structure: tree.Structure, start: int, *, remembers: bool) -> Build:
    """What is neither tuple nor list nor dict: a frozen record, or a class of the user's."""
    record = isinstance(structure.type, Freezing)
    inner: list[Build] = []
    stop = start
    for child in structure.children:
        inner.append(_builder(child, stop, remembers=remembers and not record))
        stop += child.leaves
    if record:
        mine = slice(start, stop) if remembers and still(structure) else None
        return _record(structure, inner, mine)
    return lambda leaves: tree.node(structure, [make(leaves) for make in inner])


def _record(structure: tree.Structure, inner: list[Build], mine: slice | None) -> Build:
    """A frozen record; one that knows its leaves, for it is an argument of the next call."""
    plan, kind = structure.static, structure.type
    moving, static = _fields(plan, iter(inner))
    static["_plan"] = plan
    if mine is not None:
        structure = interned(structure)

    def build(leaves: Sequence[Any]) -> Any:
        made: Any = object.__new__(kind)  # type: ignore[arg-type]
        held = made.__dict__
        held.update(static)
        for name, make in moving:
            held[name] = make(leaves)
        if mine is not None:
            held[FLAT] = (tuple(leaves[mine]), structure)
        return made

    return build


def _fields(
    plan: Plan, inner: Iterator[Build]
) -> tuple[list[tuple[Any, Build]], dict[Any, Any]]:
    """Names with what makes them, and names with values that do not change."""
    moving: list[tuple[Any, Build]] = []
    static: dict[Any, Any] = {}
    for name, place in plan.rows:
        if place is Child.FREE:
            moving.append((name, next(inner)))
        elif place is Child.FIXED:
            moving.append((name, _unwrapped(next(inner))))
        elif type(place) is Plan:
            moving.append((name, _container(place, inner)))
        else:
            static[name] = place.value
    return moving, static


def _unwrapped(make: Build) -> Build:
    return lambda leaves: make(leaves).value


def _container(plan: Plan, inner: Iterator[Build]) -> Build:
    """A tuple or a dict inside of a record."""
    moving, static = _fields(plan, inner)
    order = [name for name, _ in plan.rows]

    def build(leaves: Sequence[Any]) -> Any:
        found = {**static, **{name: make(leaves) for name, make in moving}}
        values = [found[name] for name in order]
        return (
            tuple(values) if plan.kind is tuple else plan.kind(zip(order, values, strict=True))
        )

    if plan.kind is tuple and not static:
        makers = [make for _, make in moving]
        return lambda leaves: tuple([make(leaves) for make in makers])
    return build
