"""einsum: sums of products by the names of axes, as matrix products in a good order."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.op import function
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, cast, diagonal, linalg, reduce, shape

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["einsum"]

Shape = tuple[int, ...]
Labels = tuple[str, ...]  # a letter for each axis; "...0" is the last axis of an ellipsis
Operand = tuple[int, Labels]  # a place in the program, and the labels of its axes
Pairs = tuple[tuple[int, int], ...]
EXACT = 8  # so many operands get the best order; more get a good one


@function
def einsum(subscripts: str, /, *operands: Any) -> Tensor:
    """The sum of products over axes with equal names: einsum("bij,bjk->bik", x, y).

    Axes that the result does not name are summed over. A name that an operand has twice
    means its diagonal. `...` stands for axes that broadcast; lengths 1 broadcast too.
    Without `->` the result has the names that occur once, in alphabetical order.
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(
            f"einsum: the subscripts come first, as text; got {type(subscripts).__name__}",
            hint='rg.einsum("ij,jk->ik", x, y)',
        )
    xs = [lift(x) for x in operands]
    steps = plan(subscripts, tuple(x.shape for x in xs))
    common = dt.promote("einsum", *(x.dtype for x in xs))
    values: list[Any] = [cast.astype(x, common) for x in xs]
    for f, places in steps:
        given = [values[place] for place in places]
        for place in places:  # each value is used once; what is used up is let go
            values[place] = None
        values.append(f(*given))
    return values[-1]


@lru_cache(maxsize=1024)
def plan(subscripts: str, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
    """The functions to call one after another, and on which values."""
    terms, out = parse(subscripts, tuple(map(len, shapes)))
    sizes = _sizes(subscripts, terms, shapes)
    p = Program(shapes)
    held = [p.diagonals(p.squeezed((i, labels), sizes)) for i, labels in enumerate(terms)]
    for i, j in order(tuple(labels for _, labels in held), out, sizes):
        b, a = held.pop(j), held.pop(i)
        kept = {*out, *_all([labels for _, labels in held])}
        a, b = p.summed(a, {*kept, *b[1]}), p.summed(b, {*kept, *a[1]})
        held.append(p.pair(a, b, kept))
    place, labels = p.summed(held[0], set(out))
    p.permute(place, tuple(map(labels.index, out)))
    return tuple(p.steps)


# -- what the text says ----------------------------------------------------------------------


def parse(subscripts: str, ndims: Shape) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand's axes, and those of the result's."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    words = left.split(",")
    if len(words) != len(ndims):
        raise ArgumentError(
            f"einsum: {subscripts!r} is for {len(words)} operands; got {len(ndims)}"
        )
    named = list(enumerate(zip(words, ndims, strict=True)))
    terms = tuple(_labels(subscripts, word, i, ndim) for i, (word, ndim) in named)
    dotted = max((tuple(t for t in labels if t[0] == ".") for labels in terms), key=len)
    if arrow:
        return terms, _result(subscripts, right, terms, dotted)
    names = [t for t in _all(terms) if t[0] != "."]
    return terms, (*dotted, *sorted(n for n in set(names) if names.count(n) == 1))


def _all(terms: Sequence[Labels]) -> list[str]:
    return [label for labels in terms for label in labels]


def _labels(subscripts: str, word: str, i: int, ndim: int) -> Labels:
    """The labels of operand i, which has ndim axes."""
    before, dots, after = word.partition("...")
    if not all(c.isalpha() and c.isascii() for c in before + after):
        raise ArgumentError(
            f"einsum: {word!r} in {subscripts!r} must be letters, and at most one '...'"
        )
    more = ndim - len(before) - len(after)
    if more < 0 or (more and not dots):
        raise ShapeError(
            f"einsum: {word!r} in {subscripts!r} names {len(before) + len(after)} axes; "
            f"x{i} has {ndim}"
        )
    return (*before, *(f"...{n}" for n in range(more - 1, -1, -1)), *after)


def _result(subscripts: str, word: str, terms: Sequence[Labels], dotted: Labels) -> Labels:
    before, dots, after = word.partition("...")
    named = before + after
    if not set(named) <= set(_all(terms)) or len(set(named)) != len(named):
        raise ArgumentError(
            f"einsum: the result {word!r} in {subscripts!r} must name axes of the operands, "
            f"each once"
        )
    if dotted and not dots:
        raise ArgumentError(
            f"einsum: operands in {subscripts!r} have '...', the result {word!r} has not",
            hint=f'"{subscripts.partition("->")[0]}->...{word}", then rg.sum over the rest',
        )
    return (*before, *dotted, *after)


def _sizes(subscripts: str, terms: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """The length that each label stands for."""
    sizes: dict[str, int] = {}
    for labels, lengths in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for label, n in zip(labels, lengths, strict=True):
            known = sizes.get(label, 1)
            if (known != 1 and n not in (1, known)) or own.setdefault(label, n) != n:
                listed = ", ".join(f"x{i} {s}" for i, s in enumerate(shapes))
                raise ShapeError(
                    f"einsum: {label[:3]!r} in {subscripts!r} has lengths {own.get(label, n)} "
                    f"and {n if own.get(label) != n else known}; got {listed}"
                )
            sizes[label] = n if known == 1 else known
    return sizes


# -- in which order --------------------------------------------------------------------------


def order(terms: tuple[Labels, ...], out: Labels, length: dict[str, int]) -> Pairs:
    """Pairs i < j of places in a list to join; what they become goes to its end."""
    everyone = frozenset(range(len(terms)))
    if len(terms) > EXACT:
        return _greedy([frozenset(labels) for labels in terms], frozenset(out), length)

    @cache
    def labels(group: frozenset[int]) -> set[str]:  # of the product of a group
        inside = {label for i in group for label in terms[i]}
        return inside & {*out, *(label for i in everyone - group for label in terms[i])}

    @cache
    def best(group: frozenset[int]) -> tuple[int, Any]:  # the work, and the tree of pairs
        if len(group) == 1:
            return 0, min(group)
        choices = []
        others = sorted(group)[1:]  # the first goes left: each split is met once
        for count in range(1, len(group)):
            for right in map(frozenset, combinations(others, count)):
                left = group - right
                (cost_a, tree_a), (cost_b, tree_b) = best(left), best(right)
                work = prod(length[label] for label in labels(left) | labels(right))
                choices.append((cost_a + cost_b + work, (tree_a, tree_b)))
        return min(choices, key=lambda choice: choice[0])

    return _pairs(best(everyone)[1], list(everyone))


def _pairs(tree: Any, held: list[Any]) -> Pairs:
    """A tree of pairs as places in a list."""
    if not isinstance(tree, tuple):
        return ()
    before = _pairs(tree[0], held) + _pairs(tree[1], held)
    i, j = sorted(map(held.index, tree))
    del held[j], held[i]
    held.append(tree)
    return (*before, (i, j))


def _greedy(held: list[frozenset[str]], out: frozenset[str], length: dict[str, int]) -> Pairs:
    """Join the pair whose product is smallest beside what it replaces, again and again."""
    steps = []
    while len(held) > 1:
        choices = []
        for i, j in combinations(range(len(held)), 2):
            rest = out.union(*held[:i], *held[i + 1 : j], *held[j + 1 :])
            made = (held[i] | held[j]) & rest
            new, *old = (prod(length[x] for x in s) for s in (made, held[i], held[j]))
            choices.append((new - sum(old), i, j, made))
        _, i, j, made = min(choices, key=lambda choice: choice[:3])
        steps.append((i, j))
        del held[j], held[i]
        held.append(made)
    return tuple(steps)


# -- what is done to tensors -----------------------------------------------------------------


class Program:
    """Functions to call on numbered values, written down while their shapes are worked out."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = list(shapes)
        self.steps: list[tuple[Any, tuple[int, ...]]] = []

    def add(self, f: Any, result: Shape, *places: int) -> int:
        """The place of f of the values at `places`."""
        self.steps.append((f, places))
        self.shapes.append(result)
        return len(self.shapes) - 1

    def reshape(self, x: int, to: Shape) -> int:
        """The same elements in another shape."""
        if to == self.shapes[x]:
            return x
        return self.add(lambda v: shape.reshape(v, to), to, x)

    def permute(self, x: int, axes: tuple[int, ...]) -> int:
        """The axes in another order."""
        if axes == tuple(range(len(axes))):
            return x
        to = tuple(self.shapes[x][a] for a in axes)
        return self.add(lambda v: shape.permute_dims(v, axes), to, x)

    def squeezed(self, operand: Operand, sizes: dict[str, int]) -> Operand:
        """Without the axes of length 1 whose label is longer elsewhere: they broadcast."""
        x, labels = operand
        pairs = zip(self.shapes[x], labels, strict=True)
        kept = [(n, label) for n, label in pairs if n == sizes[label]]
        return self.reshape(x, tuple(n for n, _ in kept)), tuple(label for _, label in kept)

    def diagonals(self, operand: Operand) -> Operand:
        """The diagonal of axes that share a label."""
        x, labels = operand
        for label in labels:
            while labels.count(label) > 1:
                a = labels.index(label)
                b = labels.index(label, a + 1)
                n = self.shapes[x][a]
                rest = tuple(m for i, m in enumerate(self.shapes[x]) if i not in (a, b))
                take = partial(diagonal.diagonal, axis1=a, axis2=b)
                x = self.add(take, (*rest, n), x)
                labels = (*labels[:a], *labels[a + 1 : b], *labels[b + 1 :], label)
        return x, labels

    def summed(self, operand: Operand, kept: set[str]) -> Operand:
        """Without the axes that nobody needs any more."""
        x, labels = operand
        axes = tuple(i for i, label in enumerate(labels) if label not in kept)
        if not axes:
            return operand
        rest = tuple(n for i, n in enumerate(self.shapes[x]) if i not in axes)
        x = self.add(lambda v: reduce.sum(v, axis=axes, dtype=v.dtype), rest, x)
        return x, tuple(label for label in labels if label in kept)

    def pair(self, a: Operand, b: Operand, kept: set[str]) -> Operand:
        """Two operands as one: a matrix product, or a plain one where that would be thin."""
        (x, left), (y, right) = a, b
        batch = [t for t in left if t in right and t in kept]
        inner = [t for t in left if t in right and t not in kept]
        rows = [t for t in left if t not in right]
        columns = [t for t in right if t not in left]
        size = dict(zip((*left, *right), (*self.shapes[x], *self.shapes[y]), strict=True))
        out = (*batch, *rows, *columns)
        if not inner or (batch and not rows and not columns):
            full = (*out, *inner)
            x, y = self.laid(x, left, full), self.laid(y, right, full)
            product = self.add(arithmetic.multiply, tuple(size[t] for t in full), x, y)
            return self.summed((product, full), set(out))
        lead = tuple(size[t] for t in batch)
        m, k, n = (prod(size[t] for t in group) for group in (rows, inner, columns))
        x = self.reshape(self.laid(x, left, (*batch, *rows, *inner)), (*lead, m, k))
        y = self.reshape(self.laid(y, right, (*batch, *inner, *columns)), (*lead, k, n))
        product = self.add(linalg.matmul, (*lead, m, n), x, y)
        return self.reshape(product, tuple(size[t] for t in out)), out

    def laid(self, x: int, labels: Labels, wanted: Labels) -> int:
        """The axes in the order `wanted`, with length 1 for those that x has not."""
        x = self.permute(x, tuple(labels.index(t) for t in wanted if t in labels))
        lengths = iter(self.shapes[x])
        return self.reshape(x, tuple(next(lengths) if t in labels else 1 for t in wanted))
