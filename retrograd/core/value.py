"""Value: a frozen record with named fields, compared by class and contents.

What `dataclasses` would give, without compiling an `__init__` for each of some hundred op
classes when the package is imported: that alone would cost more time than NumPy's import.
"""

from __future__ import annotations

import sys
from inspect import get_annotations
from typing import Any, ClassVar

from retrograd.core.errors import OpError

_REQUIRED = object()
_IDENTITY = "_identity"


class Value:
    """Fields are the annotated names of a class; positional or by keyword, with defaults."""

    fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, *args: Any, **named: Any) -> None:
        if named or len(args) != len(self.fields):
            args = self._bind(args, named)
        self.__dict__.update(zip(self.fields, args, strict=True))

    def _bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        found = dict(zip(self.fields, self.defaults, strict=True))
        given = dict(zip(self.fields, args, strict=False))
        wrong = [n for n in named if n not in found or n in given]
        found |= given | named
        missing = [n for n, v in found.items() if v is _REQUIRED]
        if wrong or missing or len(args) > len(self.fields):
            what = (
                f"has no value for {', '.join(missing)}" if missing else "does not take these"
            )
            raise OpError(
                f"{type(self).__name__}{args}{named or ''}: it {what}; its fields are "
                f"({', '.join(self.fields)})"
            )
        return tuple(found[n] for n in self.fields)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refused: values do not change."""
        raise OpError(
            f"{type(self).__name__}.{name} cannot be set: an op is a value",
            hint=f"op.replace({name}=...) for a changed copy",
        )

    def __delattr__(self, name: str) -> None:
        """Refused: values do not change."""
        self.__setattr__(name, None)

    def replace(self, **changes: Any) -> Any:
        """A copy with other values in some fields."""
        return type(self)(**{n: getattr(self, n) for n in self.fields} | changes)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Class and fields, with types and signs told apart: 1, 1.0, True; 0.0, -0.0."""
        held = self.__dict__
        if _IDENTITY not in held:  # read by each hash and comparison: made once
            held[_IDENTITY] = (type(self), *[exact(getattr(self, n)) for n in self.fields])
        return held[_IDENTITY]

    def __eq__(self, other: object) -> bool:
        """Equal class and fields."""
        return self is other or (isinstance(other, Value) and self.identity == other.identity)

    def __hash__(self) -> int:
        """Of class and fields."""
        return hash(self.identity)

    def __repr__(self) -> str:
        """As it would be written."""
        inner = ", ".join(f"{n}={getattr(self, n)!r}" for n in self.fields)
        return f"{type(self).__name__}({inner})"


def read_fields(cls: Any) -> None:
    """Find the fields of a Value class among its annotations; defaults stay on the class."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, kind in get_annotations(base).items():
            if "ClassVar" in str(kind) or not issubclass(base, Value):
                continue
            found[sys.intern(name)] = base.__dict__.get(name, _REQUIRED)
    cls.fields, cls.defaults = tuple(found), tuple(found.values())


def exact(value: Any) -> Any:
    """A value as a key: equal only where types and signs are equal too."""
    if type(value) is int:  # most are
        return ("int", value)
    if isinstance(value, tuple):
        return tuple([exact(v) for v in value])
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, complex):
        return ("complex", value.real.hex(), value.imag.hex())
    return (type(value).__name__, value) if isinstance(value, int) else value
