"""What a call looks like: its data, and the key under which its program is kept.

`Reader` is on the way of every call and makes the key in one walk; `described` is for tracing,
and knows names and structures. Both meet the leaves in the order of `tree.flatten`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DonatedError
from retrograd.core.frozen import Freezing, Plan
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.core.value import exact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = [
    "ABSENT",
    "Call",
    "Dead",
    "Leaf",
    "Reader",
    "described",
    "differs",
    "interned",
    "rebuilt",
    "remember",
]

ABSENT = object()  # in place of an argument that is left to its default
NUMBERS = {int: dt.int64, float: dt.float64, complex: dt.complex128}
FLAT = "_flat"  # in a frozen record: its leaves and structure, once somebody asked
_structures: dict[tree.Structure, tree.Structure] = {}  # equal ones are one, and compare fast


class Leaf(NamedTuple):
    """A leaf of the arguments: data, whose spec is the signature, or a static value."""

    path: str
    spec: Spec | None  # None: static
    weak: type | None  # the type of a Python number
    donated: bool
    static: Any = None


class Call(NamedTuple):
    """The arguments of a call that is traced."""

    key: tuple[Any, ...]
    structure: tuple[tuple[str, Any], ...]
    leaves: tuple[Leaf, ...]

    @property
    def data(self) -> list[Leaf]:
        """The leaves that are data."""
        return [x for x in self.leaves if x.spec is not None]


class Dead:
    """In place of a cell: the tensor's memory was given away."""

    __slots__ = ("by",)

    def __init__(self, by: str) -> None:
        self.by = by

    @property
    def array(self) -> np.ndarray:
        """Refused."""
        raise DonatedError(
            f"this tensor was donated to {self.by}, which wrote its result into its memory; "
            f"use what {self.by} returned, or do not donate it"
        )


# -- the way of every call ---------------------------------------------------------------------


class Reader:
    """One walk through arguments: the key, the data, and whether the tape is concerned."""

    __slots__ = ("arrays", "boxed", "data", "key", "name", "tracked", "who")

    def __init__(self, who: str) -> None:
        self.who, self.name = who, ""  # of the function, and of the argument that is read
        self.key: list[Any] = []
        self.data: list[Any] = []  # as it was given
        self.arrays: list[Any] = []  # its arrays
        self.tracked = False  # a tensor requires a gradient
        self.boxed = False  # a tensor of a transform that is under way

    def option(self, value: Any) -> None:
        """A static argument."""
        hashable(self.who, self.name, value)
        self.key.append((type(value), exact(value)))

    def argument(self, x: Any) -> None:
        """An argument that is data, or a tree of it."""
        kind = type(x)
        if kind is Tensor:
            self._tensor(x)
        elif kind in NUMBERS:
            self._number(kind, x)
        elif kind is tuple or kind is list:
            self.key += (kind, len(x))
            for child in x:
                self.argument(child)
        elif kind is dict:
            keys = tuple(tree._sorted(x))
            self.key += (kind, keys)
            for name in keys:
                self.argument(x[name])
        elif isinstance(x, np.ndarray | np.generic):
            self._array(x)
        elif isinstance(kind, Freezing):
            self._record(x)
        else:
            self._other(x)

    def _tensor(self, x: Tensor) -> None:
        array = x._data
        if array is None:
            array = x.array
        self.key += (array.shape, array.dtype)
        self.data.append(x)
        self.arrays.append(array)
        if x._node is not None:
            self.tracked = True

    def _number(self, kind: type, x: Any) -> None:
        self.key.append(kind)
        self.data.append(x)
        try:
            self.arrays.append(np.array(x, NUMBERS[kind]))
        except OverflowError as error:
            raise ArgumentError(
                f"{self.who}: {self.name} is {x}, which is more than int64 holds",
                hint="a float, a tensor of another dtype, or an argument listed in static=",
            ) from error

    def _array(self, x: Any) -> None:
        dtype = x.dtype
        if not dtype.isnative:
            x = x.astype(dt.as_dtype(self.who, dtype))
            dtype = x.dtype
        self.key += (x.shape, dtype)
        self.data.append(x)
        self.arrays.append(np.asarray(x))

    def _record(self, x: Any) -> None:
        flat = x.__dict__.get(FLAT) or remember(x)
        self.key.append(flat[1])
        for leaf in flat[0]:
            if type(leaf) is Tensor:
                self._tensor(leaf)
            else:
                self.argument(leaf)

    def _other(self, x: Any) -> None:
        if isinstance(x, Tensor):
            self.boxed = True
            self.key += (x.shape, x.dtype)
            return
        parts = tree.children(x)
        if parts is None:
            hashable(self.who, self.name, x)
            self.key += (type(x), exact(x))
            return
        children = list(parts[0])
        hashable(self.who, f"a static part of {self.name}", parts[1])
        self.key += (type(x), exact(parts[1]), len(children))
        for child in children:
            self.argument(child)


def remember(record: Any) -> tuple[Any, Any]:
    """Leaves and structure of a frozen record; kept in it, if nothing in it can change."""
    leaves, structure = tree.flatten(record)
    flat = tuple(leaves), interned(structure)
    if still(flat[1]):
        record.__dict__[FLAT] = flat
    return flat


def interned(structure: tree.Structure) -> tree.Structure:
    """The one of all equal structures: comparing it with itself takes no time."""
    return _structures.setdefault(structure, structure)


def still(structure: tree.Structure) -> bool:
    """Whether all nodes of a tree are of types that do not change once made."""
    kind = structure.type
    if kind not in (None, tuple, type(None), tree.Fixed) and not isinstance(kind, Freezing):
        return False
    return all(still(c) for c in structure.children)


def hashable(who: str, name: str, value: Any) -> None:
    """Refuse what can be neither data nor an option."""
    try:
        hash(value)
    except TypeError as error:
        raise ArgumentError(
            f"{who}: {name} is a {type(value).__name__}, which is neither data nor hashable; "
            f"pass tensors, numbers, trees of them, or hashable options",
            hint="rg.tree.register(kind, flatten, unflatten), or a frozen dataclass or "
            "rg.nn.Module, makes a class of your own a tree",
        ) from error


# -- for tracing -------------------------------------------------------------------------------


def described(
    key: Sequence[Any],
    given: Sequence[tuple[str, Any]],
    static: Collection[str],
    donate: Collection[str],
) -> Call:
    """Names, structures and leaves of arguments."""
    leaves: list[Leaf] = []
    structures: list[tuple[str, Any]] = []
    for name, value in given:
        if value is ABSENT:
            continue
        if name in static:
            structures.append((name, value))
            continue
        found, structure = tree.flatten(value)
        structures.append((name, structure))
        for path, leaf in zip(paths(name, structure), found, strict=True):
            leaves.append(_leaf(path, leaf, donated=name in donate))
    return Call(tuple(key), tuple(structures), tuple(leaves))


def _leaf(path: str, leaf: Any, *, donated: bool) -> Leaf:
    kind = type(leaf)
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        dtype = dt.as_dtype(path, leaf.dtype)
        return Leaf(path, Spec(tuple(leaf.shape), dtype), None, donated)
    if kind in NUMBERS:
        return Leaf(path, Spec((), NUMBERS[kind]), kind, donated=False)
    return Leaf(path, None, None, donated=False, static=leaf)


def paths(path: str, structure: tree.Structure) -> Iterator[str]:
    """A name for each leaf: `model.layers[0].weight`."""
    if structure.type is None:
        yield path
        return
    names = _names(structure)
    for name, child in zip(names, structure.children, strict=True):
        yield from paths(path + name, child)


def _names(structure: tree.Structure) -> list[str]:
    kind, static = structure.type, structure.static
    if isinstance(static, Plan):
        return list(_places(static, record=True))
    if kind is tree.Fixed:
        return [""]
    if hasattr(kind, "_fields"):
        return [f".{name}" for name in kind._fields]  # type: ignore[union-attr]
    if hasattr(kind, "__dataclass_fields__"):
        return [f".{name}" for name in static[0]]
    if kind is dict:
        return [f"[{name!r}]" for name in static]
    return [f"[{i}]" for i in range(len(structure.children))]


def _places(plan: Plan, *, record: bool) -> Iterator[str]:
    for name, place in plan.rows:
        here = f".{name}" if record else f"[{name!r}]"
        if type(place) is Plan:
            yield from (here + inner for inner in _places(place, record=False))
        elif type(place).__name__ == "Child":
            yield here


def differs(a: Call, b: Call) -> str:
    """The first thing in which two signatures differ."""
    for x, y in zip(a.leaves, b.leaves, strict=False):
        if (x.spec, x.weak, x.path) != (y.spec, y.weak, y.path):
            return f"{x.path} is {_shown(x)} in one and {y.path} is {_shown(y)} in the other"
        if x.static != y.static or type(x.static) is not type(y.static):
            return f"{x.path} is {x.static!r} in one and {y.static!r} in the other"
    for (name, one), (_, other) in zip(a.structure, b.structure, strict=False):
        if isinstance(one, tree.Structure):
            if one != other:
                return f"{name} is {one} in one and {other} in the other"
        elif exact(one) != exact(other) or type(one) is not type(other):
            return f"{name} is {one!r} in one and {other!r} in the other"
    return "their structures differ"


def _shown(leaf: Leaf) -> str:
    if leaf.weak is not None:
        return f"a Python {leaf.weak.__name__}"
    return str(leaf.spec) if leaf.spec is not None else repr(leaf.static)


def rebuilt(call: Call, boxes: Sequence[Any]) -> dict[str, Any]:
    """The arguments by name, with traced boxes in place of the data."""
    given, at = iter(boxes), 0
    out: dict[str, Any] = {}
    for name, structure in call.structure:
        if not isinstance(structure, tree.Structure):
            out[name] = structure
            continue
        here = call.leaves[at : at + structure.leaves]
        at += structure.leaves
        items = [next(given) if x.spec is not None else x.static for x in here]
        out[name] = tree.unflatten(structure, items)
    return out
