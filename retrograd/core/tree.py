"""Trees: nested dicts, lists, tuples, named tuples, dataclasses and None, with leaves.

None is a tree without leaves, a Spec is a leaf. Dicts are read in sorted key order, so that
equal trees have equal structures whatever order they were built in. User types join by
`register`.

`Fixed(tree)` is a tree whose leaves are data like others, and which gradients and optimizers
leave as they are: statistics, counters, weights that are not to be trained.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrograd.core.errors import ArgumentError
from retrograd.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Flatten = "Callable[[Any], tuple[Iterable[Any], Any]]"
Unflatten = "Callable[[Any, Iterable[Any]], Any]"
_registered: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {}


@dataclass(frozen=True, slots=True)
class Structure:
    """A tree without its leaves: node type, static data, children; a leaf has no type."""

    type: type | None
    static: Any = None
    children: tuple[Structure, ...] = ()

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.type is None else sum(c.leaves for c in self.children)

    def __str__(self) -> str:
        """The shape of the tree with `*` for leaves."""
        if self.type is None:
            return "*"
        if self.type is type(None):
            return "None"
        inner = ", ".join(str(c) for c in self.children)  # `map` is ours in this module
        return f"{self.type.__name__}({inner})"


LEAF = Structure(None)


def register(
    kind: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, Iterable[Any]], Any],
) -> None:
    """Make `kind` a tree: flatten(x) -> (children, static); unflatten(static, children) -> x.

    `static` must be hashable: it is part of what makes two trees the same structure.
    """
    if not isinstance(kind, type):
        raise ArgumentError(f"tree.register: kind must be a class; got {kind!r}")
    _registered[kind] = (flatten, unflatten)


class Fixed:
    """A tree that `grad` takes as a constant and optimizers leave as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        """As it would be written."""
        return f"Fixed({self.value!r})"


register(Fixed, lambda node: ((node.value,), None), lambda _, children: Fixed(*children))


def fixed(structure: Structure, *, inside: bool = False) -> list[bool]:
    """For each leaf whether it lies within a Fixed."""
    if structure.type is None:
        return [inside]
    inside = inside or structure.type is Fixed
    return [f for c in structure.children for f in fixed(c, inside=inside)]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves in order, and the structure that puts them together again."""
    leaves: list[Any] = []
    structure = _flatten(tree, leaves)
    return leaves, structure


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    parts = children(tree)
    if parts is None:
        leaves.append(tree)
        return LEAF
    inner, static = parts
    return Structure(type(tree), static, tuple(_flatten(c, leaves) for c in inner))


def children(tree: Any) -> tuple[Iterable[Any], Any] | None:
    """The children and static data of one node, or None for a leaf."""
    kind = type(tree)
    if kind in _registered:
        return _registered[kind][0](tree)
    if tree is None:
        return (), None
    if kind is dict:
        keys = _sorted(tree)
        return [tree[k] for k in keys], tuple(keys)
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return tree, None
    if dataclasses.is_dataclass(tree) and not isinstance(tree, (type, Spec)):
        return _dataclass_parts(tree)
    return None


def _dataclass_parts(tree: Any) -> tuple[list[Any], Any]:
    """Fields marked `metadata={"static": True}` are static; the others are children."""
    fields = dataclasses.fields(tree)
    moving = [f.name for f in fields if not f.metadata.get("static")]
    fixed = tuple((f.name, getattr(tree, f.name)) for f in fields if f.metadata.get("static"))
    return [getattr(tree, name) for name in moving], (tuple(moving), fixed)


def _sorted(tree: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(tree)
    except TypeError:  # keys of several types: by type, then by text
        return sorted(tree, key=lambda k: (type(k).__name__, repr(k)))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves."""
    found = list(leaves)
    if len(found) != structure.leaves:
        raise ArgumentError(
            f"tree.unflatten: the structure {structure} has {structure.leaves} leaves; "
            f"got {len(found)}"
        )
    return _unflatten(structure, iter(found))


def _unflatten(structure: Structure, leaves: Any) -> Any:
    kind = structure.type
    if kind is None:
        return next(leaves)
    return node(structure, [_unflatten(c, leaves) for c in structure.children])


def node(structure: Structure, children: list[Any]) -> Any:
    """One node of a tree, of this structure's type, from its children."""
    kind: Any = structure.type
    if kind in _registered:
        return _registered[kind][1](structure.static, children)
    if kind is type(None):
        return None
    if kind is dict:
        return dict(zip(structure.static, children, strict=True))
    if kind in (tuple, list):
        return kind(children)
    if hasattr(kind, "_fields"):
        return kind(*children)
    return _undataclass(kind, structure.static, children)


def _undataclass(kind: type, static: Any, children: list[Any]) -> Any:
    # not kind(...): __init__ may take other arguments or check values that are traced now
    moving, fixed = static
    tree: Any = object.__new__(kind)
    for name, value in (*zip(moving, children, strict=True), *fixed):
        object.__setattr__(tree, name, value)
    return tree


def leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    return flatten(tree)[0]


def structure(tree: Any) -> Structure:
    """The tree without its leaves."""
    return flatten(tree)[1]


def map(f: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """f of the leaves, tree by tree; all trees must have one structure."""
    first, shape = flatten(tree)
    columns = [first]
    for other in others:
        more, shape_of_other = flatten(other)
        if shape_of_other != shape:
            raise ArgumentError(
                f"tree.map: the trees differ: {shape} and {shape_of_other}; "
                f"they must have one structure"
            )
        columns.append(more)
    return unflatten(shape, [f(*row) for row in zip(*columns, strict=True)])
