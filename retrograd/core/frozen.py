"""Frozen: records that do not change once made, and that are trees.

The fields of a class are its annotated names. Tensors and frozen records in them, also inside
of tuples and dicts, are the children of the tree; all else (numbers, texts, functions, None) is
static: part of the structure, compared and hashed with it, never traced. Which is which was
decided when the record was made, and is kept beside the fields as its plan.
"""

from __future__ import annotations

from enum import Enum
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, FrozenError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.core.value import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

_REQUIRED = object()
T = TypeVar("T")


# -- plans: where in the fields the children are ---------------------------------------------


class Static:
    """A value that belongs to the structure."""

    __slots__ = ("key", "value")

    def __init__(self, who: str, value: Any) -> None:
        self.value, self.key = value, exact(value)
        try:
            hash(self.key)
        except TypeError as error:
            raise ArgumentError(
                f"{who} is {value!r}, a {type(value).__name__}; a field holds tensors, or what "
                f"can be hashed, because structures are compared",
                hint="a tuple in place of a set, a frozen class in place of one that changes",
            ) from error

    def __eq__(self, other: object) -> bool:
        """Equal values of one type."""
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        """Of the value."""
        return hash(self.key)


class Child(Enum):
    """A place that holds a child: a tensor, a record, a tree of them."""

    FREE = 0
    FIXED = 1


class Plan:
    """The places of a record, or of a tuple or dict in it: keys, and what lies at each."""

    __slots__ = ("_hash", "kind", "rows", "still")

    def __init__(
        self,
        kind: type,
        rows: tuple[tuple[Any, Any], ...],
        still: bool = False,  # noqa: FBT001, FBT002 - for copies, which go by position
    ) -> None:
        self.kind, self.rows, self.still = kind, rows, still
        self._hash = hash((kind, rows, still))

    def __eq__(self, other: object) -> bool:
        """Equal keys, with equal things at each."""
        if self is other:
            return True
        same = isinstance(other, Plan) and self._hash == other._hash
        return same and self._parts() == other._parts()  # type: ignore[attr-defined]

    def _parts(self) -> tuple[Any, ...]:
        return self.kind, self.rows, self.still

    def __hash__(self) -> int:
        """Of the keys and what lies there."""
        return self._hash

    def __reduce__(self) -> Any:
        """For copies: hashes differ from process to process."""
        return Plan, self._parts()

    def take(self, held: Any, into: list[Any]) -> None:
        """The children of what this is the plan of, in order."""
        for key, place in self.rows:
            if place is Child.FREE:
                into.append(held[key])
            elif place is Child.FIXED:
                into.append(tree.Fixed(held[key]))
            elif type(place) is Plan:
                place.take(held[key], into)

    def put(self, children: Iterator[Any]) -> dict[Any, Any]:
        """Keys and values again, with the next children in place of those that were."""
        found: dict[Any, Any] = {}
        for key, place in self.rows:
            if place is Child.FREE:
                found[key] = next(children)
            elif place is Child.FIXED:
                found[key] = next(children).value
            elif type(place) is Plan:
                inner = place.put(children)
                found[key] = tuple(inner.values()) if place.kind is tuple else place.kind(inner)
            else:
                found[key] = place.value
        return found


class FrozenDict(dict):
    """A dict inside of a frozen record: it does not change either."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise FrozenError(
            "a dict inside of a module or optimizer cannot be changed",
            hint="module.replace(field={**module.field, key: value})",
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        """Of the items, in sorted order of their keys."""
        return hash(tuple((k, exact(self[k])) for k in tree._sorted(self)))

    def __reduce__(self) -> Any:
        """For copies: dict's own way writes item by item."""
        return FrozenDict, (dict(self),)


tree.register(
    FrozenDict,
    lambda d: ([d[k] for k in tree._sorted(d)], tuple(tree._sorted(d))),
    lambda keys, children: FrozenDict(zip(keys, children, strict=True)),
)


# -- records ---------------------------------------------------------------------------------


@dataclass_transform()
class Freezing(type):
    """Makes classes of frozen records: reads their fields, and freezes what they make."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            if not isinstance(base, Freezing):
                continue
            for field, kind in get_annotations(base).items():
                if "ClassVar" not in str(kind):
                    found[field] = base.__dict__.get(field, found.get(field, _REQUIRED))
        cls.fields, cls.defaults = tuple(found), tuple(found.values())
        tree.register(cls, _flatten, _unflatten)

    def __call__(cls: type[T], *args: Any, **named: Any) -> T:
        """A record, frozen after the outermost __init__."""
        made = super().__call__(*args, **named)  # type: ignore[misc]
        made._settle()
        return made

    fields: tuple[str, ...]
    defaults: tuple[Any, ...]


def _flatten(record: Frozen) -> tuple[list[Any], Any]:
    children: list[Any] = []
    plan = record.__dict__["_plan"]
    plan.take(record.__dict__, children)
    return children, plan


def _unflatten(plan: Plan, children: Any) -> Any:
    # not through __init__: a structure may hold anything in place of tensors
    record: Any = object.__new__(plan.kind)
    record.__dict__.update(plan.put(iter(children)), _plan=plan)
    return record


class Frozen(metaclass=Freezing):
    """Fields are the annotated names of a class. Once made, it does not change.

    A class without an `__init__` has one that takes its fields, by position or keyword, with
    the defaults that the class body gives. A class with one assigns each field in it. Lists
    become tuples and NumPy arrays tensors.
    """

    fields: ClassVar[tuple[str, ...]]
    defaults: ClassVar[tuple[Any, ...]]
    fixed: ClassVar[tuple[str, ...]] = ()  # fields that are data, and not to be trained
    numbers: ClassVar[bool] = False  # whether floats but 0 are children, as tensors are

    def __init__(self, *args: Any, **named: Any) -> None:
        found = dict(zip(self.fields, self.defaults, strict=True))
        given = dict(zip(self.fields, args, strict=False))
        wrong = [n for n in named if n not in found or n in given]
        found |= given | {n: v for n, v in named.items() if n in found}
        missing = [n for n, v in found.items() if v is _REQUIRED]
        if wrong or missing or len(args) > len(self.fields):
            what = f"it has no value for {', '.join(missing)}"
            if not missing:
                twice = [n for n in wrong if n in given]
                what = f"{', '.join(twice)} was given twice" if twice else ""
                what = what or f"it takes no {', '.join(wrong)}" if wrong else "too many values"
            raise ArgumentError(
                f"{type(self).__name__}: {what}; its fields are ({', '.join(self.fields)})"
            )
        self.__dict__.update(found)

    def __setattr__(self, name: str, value: Any) -> None:
        """Allowed in __init__, for fields; refused afterwards."""
        who = f"{type(self).__name__}.{name}"
        if "_plan" in self.__dict__:
            raise FrozenError(
                f"{who} cannot be set: what was made does not change",
                hint=f"changed = it.replace({name}=...)",
            )
        if name not in self.fields:
            raise FrozenError(
                f"{who} is no field; the fields are ({', '.join(self.fields)})",
                hint=f"{name}: Any      in the body of the class {type(self).__name__}",
            )
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> NoReturn:
        """Refused: a record has all its fields."""
        raise FrozenError(f"{type(self).__name__}.{name} cannot be deleted")

    def replace(self, **changes: Any) -> Self:
        """A copy with other values in some fields."""
        return remade(self, changes, still=self.__dict__["_plan"].still)

    def _settle(self, *, still: bool = False) -> None:
        """Work out where the children are; from now on nothing changes."""
        name = type(self).__name__
        missing = [f for f in self.fields if f not in self.__dict__]
        if missing:
            raise ArgumentError(
                f"{name}: __init__ has not set {', '.join(missing)}; every field needs a value"
            )
        rows = []
        for field in self.fields:
            value = _settled(self.__dict__[field])
            self.__dict__[field] = value
            fixed = still or field in self.fixed
            place = _place(f"{name}.{field}", value, fixed=fixed, numbers=self.numbers)
            rows.append((field, place))
        self.__dict__["_plan"] = Plan(type(self), tuple(rows), still=still)

    def __repr__(self) -> str:
        """As it would be written."""
        inner = ", ".join(f"{n}={self.__dict__[n]!r}" for n in self.fields)
        return f"{type(self).__name__}({inner})"


def remade(record: Any, changes: dict[str, Any], *, still: bool) -> Any:
    """A record with other values in some fields; `still`: as a whole not to be trained."""
    unknown = [n for n in changes if n not in record.fields]
    if unknown:
        raise ArgumentError(
            f"{type(record).__name__}.replace: it has no field {', '.join(unknown)}; its "
            f"fields are ({', '.join(record.fields)})"
        )
    made = object.__new__(type(record))
    made.__dict__.update({n: record.__dict__[n] for n in record.fields} | changes)
    made._settle(still=still)
    return made


def _settled(value: Any) -> Any:
    """The value in a form that does not change."""
    if isinstance(value, np.ndarray):
        return lift(value)
    if type(value) in (list, tuple):
        return tuple(_settled(v) for v in value)
    if type(value) in (dict, FrozenDict):
        return FrozenDict({k: _settled(v) for k, v in value.items()})
    return value


def _place(who: str, value: Any, *, fixed: bool, numbers: bool) -> Any:
    """What lies in a field: a child, a plan of children in a container, something static."""
    child = Child.FIXED if fixed else Child.FREE
    if isinstance(value, Tensor):
        return child if dt.is_inexact(value.dtype) else Child.FIXED
    if isinstance(value, Frozen) or (numbers and type(value) is float and value):
        return child
    if type(value) in (tuple, FrozenDict):
        keys = range(len(value)) if type(value) is tuple else value
        inner = [
            (k, _place(f"{who}[{k!r}]", value[k], fixed=fixed, numbers=numbers)) for k in keys
        ]
        if any(type(place) is not Static for _, place in inner):
            return Plan(type(value), tuple(inner))
    elif any(isinstance(x, Tensor) for x in tree.leaves(value)):  # a dataclass, a named tuple
        return child
    return Static(who, value)
