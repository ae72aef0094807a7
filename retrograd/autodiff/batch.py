"""The Batch interpreter: vmap. A mapped value carries its mapped axis in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import tree
from retrograd.core.errors import ArgumentError, TraceError
from retrograd.core.interpret import Interpreter, current, expanded, using
from retrograd.core.op import FUNCTIONS, Composite, Op, function
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["vmap"]


class Batched(Box):
    """Many tensors as one: `value` of the level below has the mapped axis in front."""

    __slots__ = ()

    @property
    def spec(self) -> Spec:
        """The spec of one of them."""
        spec = self.value.spec
        return spec.with_shape(spec.shape[1:])

    @property
    def array(self) -> Any:
        """There is no one array: user code asked for a value inside vmap."""
        raise TraceError(
            f"vmap: the value of a mapped tensor {self.spec} was asked for, but it stands for "
            f"{self.value.shape[0]} values at once",
            hint="rg.where(condition, a, b) in place of `if`; return it and look outside",
        )


class Batch(Interpreter):
    """Apply each op to all elements of a mapped axis at once."""

    def __init__(self, outer: Interpreter, size: int) -> None:
        self.outer: Interpreter = outer
        self.size = size

    def own(self, t: Tensor) -> Batched:
        """`t` as a box of this interpreter."""
        if isinstance(t, Batched) and t.owner is self:
            return t
        with using(self.outer):
            return Batched(self, FUNCTIONS["broadcast_to"](t, (self.size, *t.shape)))

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """The op's batch rule, one level below; without one, element by element."""
        mapped = [isinstance(a, Batched) and a.owner is self for a in args]
        values = [a.value if m else a for a, m in zip(args, mapped, strict=True)]
        if not any(mapped) and not op.effect:
            return self.outer.apply(op, values)
        if isinstance(op, Composite) and not hasattr(op, "batch"):
            return expanded(self, op, args)
        with using(self.outer):
            rule = getattr(op, "batch", None)
            out = rule(self.size, values, mapped) if rule else self._each(op, values, mapped)
        if isinstance(out, tuple):
            return tuple(Batched(self, o) for o in out)
        return Batched(self, out)

    def _each(self, op: Op, values: list[Any], mapped: list[bool]) -> Any:
        """One by one: right for every op, and as slow as it sounds."""
        if not self.size:
            raise ArgumentError(f"vmap: {op.name} has no batch rule, and the axis has length 0")
        rows = [
            self.outer.call(op, [v[i] if m else v for v, m in zip(values, mapped, strict=True)])
            for i in range(self.size)
        ]
        stack = FUNCTIONS["stack"]
        if isinstance(rows[0], tuple):
            return tuple(stack(list(column)) for column in zip(*rows, strict=True))
        return stack(rows)


@function
def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """f mapped over an axis of its arguments, as one program rather than a loop.

    `in_axes` is an axis for all arguments, or a tuple with one for each: an integer, a tree
    of them, or None for arguments that are not mapped. `out_axes` says where the mapped
    axis goes in the results.
    """

    def mapped(*args: Any, **options: Any) -> Any:
        axes = _spread("in_axes", in_axes, args)
        leaves, structure = tree.flatten(args)
        leaves = [
            x if a is None and not isinstance(x, Tensor) else FUNCTIONS["lift"](x)
            for x, a in zip(leaves, axes, strict=True)
        ]
        size = _size(leaves, axes)
        front = [_front(x, a) for x, a in zip(leaves, axes, strict=True)]
        batch = Batch(current.get(), size)  # not below: what vmap computes is still recorded
        boxes = [
            x if a is None else Batched(batch, x.handle())
            for x, a in zip(front, axes, strict=True)
        ]
        with using(batch):
            out = f(*tree.unflatten(structure, boxes), **options)
        return _collect(batch, out, out_axes)

    return mapped


def _collect(batch: Batch, out: Any, out_axes: Any) -> Any:
    leaves, shape = tree.flatten(out)
    axes = _spread("out_axes", out_axes, out)
    results = []
    for o, a in zip(leaves, axes, strict=True):
        t = FUNCTIONS["lift"](o)
        if a is None:
            if isinstance(t, Batched) and t.owner is batch:
                raise ArgumentError("vmap: out_axes is None for a result that is mapped")
            results.append(t)
            continue
        value = batch.own(t).value
        to = axis_index("vmap", a, value.ndim, name="out_axes")
        results.append(FUNCTIONS["moveaxis"](value, 0, to) if to else value.handle())
    return tree.unflatten(shape, results)


def _spread(name: str, axes: Any, args: Any) -> list[Any]:
    """One axis for each leaf of args, from a number, None, or a prefix of the tree."""
    if axes is None or isinstance(axes, (int, np.integer)):
        return [axes] * len(tree.leaves(args))
    children, chosen = _named(args), _named(axes)
    if children is None or chosen is None or children.keys() != chosen.keys():
        raise ArgumentError(
            f"vmap: {name} {axes!r} does not fit {tree.structure(args)}; it must be an "
            f"integer, None, or these in a tree that is the beginning of that one"
        )
    return [a for key, x in children.items() for a in _spread(name, chosen[key], x)]


def _named(node: Any) -> dict[Any, Any] | None:
    """The children of a node of a tree by key or number; None for a leaf."""
    parts = tree.children(node)
    if parts is None:
        return None
    found, static = list(parts[0]), parts[1]
    keys = static if isinstance(node, dict) else range(len(found))
    return dict(zip(keys, found, strict=True))


def _size(leaves: list[Any], axes: list[Any]) -> int:
    sizes = {
        x.shape[axis_index("vmap", a, x.ndim, name="in_axes")]
        for x, a in zip(leaves, axes, strict=True)
        if a is not None
    }
    if len(sizes) != 1:
        raise ArgumentError(
            "vmap: no argument is mapped; in_axes is None for all"
            if not sizes
            else f"vmap: mapped axes have lengths {sorted(sizes)}; they must be equal"
        )
    return sizes.pop()


def _front(x: Any, axis: Any) -> Any:
    if axis is None:
        return x
    i = axis_index("vmap", axis, x.ndim, name="in_axes")
    return FUNCTIONS["moveaxis"](x, i, 0) if i else x
