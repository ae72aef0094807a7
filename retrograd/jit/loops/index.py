"""Where an element is: sums of loop axes, exact enough to see strides through any view.

An Ix is `const + sum(coefficient * atom)`. An atom is an Axis (a loop), a quotient or
remainder of another Ix, or an integer that is computed at run time. Division folds where
ranges allow, so that indexing through reshapes of matching axes comes out affine again.
"""

from __future__ import annotations

from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Axis", "Dynamic", "Ix", "Quotient", "Remainder", "flat", "unflat"]

_serial = count()


class Axis:
    """A loop over 0 ... extent - 1."""

    __slots__ = ("extent", "number")

    def __init__(self, extent: int) -> None:
        self.extent = extent
        self.number = next(_serial)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, max(self.extent - 1, 0)

    def __repr__(self) -> str:
        return f"i{self.number}<{self.extent}"


class Quotient(NamedTuple):
    """index // by, of an index that is never negative."""

    of: Ix
    by: int

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        low, high = self.of.range
        return low // self.by, high // self.by


class Remainder(NamedTuple):
    """index % by, of an index that is never negative."""

    of: Ix
    by: int
    what: str = "rest"  # so that it never equals a quotient

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, min(self.by - 1, self.of.range[1])


class Dynamic(NamedTuple):
    """An integer computed at run time, known to lie in 0 ... below - 1."""

    expr: Any
    below: int

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, max(self.below - 1, 0)


class Ix:
    """const + sum of coefficient * atom."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, const: int = 0, terms: dict[Any, int] | None = None) -> None:
        self.const = const
        self.terms = {a: c for a, c in (terms or {}).items() if c}
        self._hash = hash((const, frozenset(self.terms.items())))

    @staticmethod
    def of(atom: Any) -> Ix:
        """An axis or another atom as an index; an axis of one element is 0."""
        return Ix() if isinstance(atom, Axis) and atom.extent == 1 else Ix(0, {atom: 1})

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ix) and self.const == other.const and self.terms == other.terms

    def __add__(self, other: Ix | int) -> Ix:
        if isinstance(other, int):
            return Ix(self.const + other, self.terms)
        terms = dict(self.terms)
        for a, c in other.terms.items():
            terms[a] = terms.get(a, 0) + c
        return _rejoined(Ix(self.const + other.const, terms))

    def __mul__(self, by: int) -> Ix:
        return Ix(self.const * by, {a: c * by for a, c in self.terms.items()})

    def __sub__(self, other: Ix | int) -> Ix:
        return self + (other * -1 if isinstance(other, Ix) else -other)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        low = high = self.const
        for a, c in self.terms.items():
            first, last = a.range
            low += min(c * first, c * last)
            high += max(c * first, c * last)
        return low, high

    def __floordiv__(self, by: int) -> Ix:
        return self._divided(by)[0]

    def __mod__(self, by: int) -> Ix:
        return self._divided(by)[1]

    def _divided(self, by: int) -> tuple[Ix, Ix]:
        """Quotient and remainder; folded as far as ranges show."""
        if by == 1:
            return self, Ix()
        whole = Ix(self.const // by, {a: c // by for a, c in self.terms.items() if c % by == 0})
        rest = Ix(self.const % by, {a: c for a, c in self.terms.items() if c % by})
        low, high = rest.range
        if low >= 0 and high < by:
            return whole, rest
        if low < 0:  # borrow, so that what is divided is never negative
            lend = -(low // by)
            whole, rest = whole - lend, rest + lend * by
        return whole + Ix(0, {Quotient(rest, by): 1}), Ix(0, {Remainder(rest, by): 1})

    @property
    def affine(self) -> bool:
        """Whether it is a sum of axes alone."""
        return all(isinstance(a, Axis) for a in self.terms)

    def axes(self) -> set[Axis]:
        """All axes it depends on, through quotients and run-time integers too."""
        found: set[Axis] = set()
        for a in self.terms:
            if isinstance(a, Axis):
                found.add(a)
            elif isinstance(a, Dynamic):
                found |= a.expr.axes
            else:
                found |= a.of.axes()
        return found

    def substitute(self, atoms: Callable[[Any], Ix | None]) -> Ix:
        """The index with axes replaced; None leaves one as it is."""
        out = Ix(self.const)
        for a, c in self.terms.items():
            if isinstance(a, Quotient):
                new: Ix | None = a.of.substitute(atoms) // a.by
            elif isinstance(a, Remainder):
                new = a.of.substitute(atoms) % a.by
            else:
                new = atoms(a)
            out += (Ix(0, {a: 1}) if new is None else new) * c
        return out

    def __repr__(self) -> str:
        parts = [f"{c}*{a}" for a, c in self.terms.items()]
        return " + ".join([str(self.const), *parts])


def _rejoined(ix: Ix) -> Ix:
    """x // n * n + x % n is x: a view of a view is often the thing itself."""
    for a, c in ix.terms.items():
        if isinstance(a, Remainder):
            whole = Quotient(a.of, a.by)
            if ix.terms.get(whole) == c * a.by:
                rest = {b: d for b, d in ix.terms.items() if b not in (a, whole)}
                return Ix(ix.const, rest) + a.of * c
    return ix


def flat(index: Iterable[Ix], shape: Sequence[int]) -> Ix:
    """The row-major number of an element."""
    out = Ix()
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def unflat(number: Ix, shape: Sequence[int]) -> tuple[Ix, ...]:
    """The index of an element from its row-major number."""
    if not prod(shape):
        return tuple(Ix() for _ in shape)
    out: list[Ix] = []
    for n in reversed(shape[1:]):
        out.append(number % n)
        number = number // n
    return (number, *reversed(out)) if shape else ()
