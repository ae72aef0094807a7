"""The Tape interpreter and vjp: reverse mode on functions, at any level of nesting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.pull import Pass
from retrograd.autodiff.shown import face
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import DerivativeError, ShapeError
from retrograd.core.interpret import (
    EVAL,
    PURE,
    EvalTape,
    Interpreter,
    below,
    current,
    expanded,
    using,
)
from retrograd.core.op import FUNCTIONS, Composite, Op, function
from retrograd.core.record import no_recipe, several, track
from retrograd.core.replay import region_now
from retrograd.core.tape import Node, Primal
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["vjp"]


class Recorded(Box):
    """A tensor on a functional tape: a value of the level below, and its node."""

    __slots__ = ()
    fields = ("value", "_node")

    def __init__(self, owner: Any, value: Any, node: Node | None) -> None:
        super().__init__(owner, value)
        self._node = node

    def remake(self, f: Any) -> Recorded:
        """The same box around f of what it holds."""
        return Recorded(self.owner, f(self.value), self._node)


class Tape(Interpreter):
    """Record what runs on its boxes; compute at the level below."""

    def __init__(self, outer: Interpreter) -> None:
        self.outer: Interpreter = outer

    def own(self, t: Tensor) -> Recorded:
        """`t` as a box of this tape."""
        if isinstance(t, Recorded) and t.owner is self:
            return t
        return Recorded(self, t, None)

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Run below, and record if an argument is tracked here."""
        mine = [isinstance(a, Recorded) and a.owner is self for a in args]
        values = [a.value if m else a for a, m in zip(args, mine, strict=True)]
        boxes = [a if m else Recorded(self, a, None) for a, m in zip(args, mine, strict=True)]
        if not any(b._node is not None for b in boxes):
            return self.outer.apply(op, values)
        parents, mask = track(op, boxes)
        if not mask:
            return self.outer.apply(op, values)
        recipe = op.reverse(mask)
        if recipe is None and isinstance(op, Composite) and op.ahead(mask) is None:
            return expanded(self, op, args)
        if op.saves:
            return self._saved(op, values, parents, recipe)
        out = self.outer.apply(op, values)
        return self._record(op, values, out, parents, recipe or no_recipe(op, mask))

    def _record(self, op: Op, values: list[Any], out: Any, parents: Any, recipe: Any) -> Any:
        outs = out if isinstance(out, tuple) else (out,)
        kept = recipe.keep((tuple(values), *outs) if op.variadic else (*values, *outs))
        kept = tuple(_shell(k) for k in kept)
        region = region_now.get()
        if isinstance(out, tuple):
            results = [Recorded(self, o, None) for o in outs]
            several(op, parents, recipe, kept, results, region)
            return tuple(results)
        spec = out.spec
        if not dt.is_inexact(spec.dtype):
            return out
        return Recorded(
            self, out, Node(op, parents, recipe, kept, spec.shape, spec.dtype, region)
        )

    def _saved(self, op: Any, values: list[Any], parents: Any, recipe: Any) -> Any:
        with using(self.outer):
            outs, residuals = op.save(*values)
        results = [Recorded(self, o, None) for o in outs]
        region = region_now.get()
        if region is not None:
            residuals = tree.map(lambda t: t.shell(), residuals)
        several(op, parents, recipe, (None, residuals), results, region)
        return tuple(results)


def _shell(kept: Any) -> Any:
    if isinstance(kept, tuple):
        return tuple(_shell(k) for k in kept)
    return kept.shell() if isinstance(kept, Tensor) else kept


def recorded(
    f: Callable[..., Any], primals: Sequence[Tensor], tape: Any
) -> tuple[Any, list[Node]]:
    """Run f on boxes of a tape: its result, and the nodes of the primals."""
    nodes = [Primal(p.shape, p.dtype) for p in primals]
    boxes = [
        _boxed(tape, p, n if dt.is_inexact(p.dtype) else None)
        for p, n in zip(primals, nodes, strict=True)
    ]
    with using(tape):
        out = f(*boxes)
    return out, list(nodes)


def _boxed(tape: Any, p: Tensor, node: Node | None) -> Tensor:
    if isinstance(tape, EvalTape):
        return Tensor(p._data, node, p._cell)
    return Recorded(tape, p.handle(), node)


def unboxed(tape: Any, out: Any) -> tuple[Tensor, Node | None]:
    """A leaf of a result: its value below the tape, and its node if it has one."""
    out = FUNCTIONS["lift"](out)
    if isinstance(tape, EvalTape):
        return (
            (Tensor(out._data, None, out._cell), out._node) if tape.mine(out) else (out, None)
        )
    if isinstance(out, Recorded) and out.owner is tape:
        return out.value.handle(), out._node
    return out, None


def flat_vjp(
    f: Callable[..., Any], primals: Sequence[Tensor], outer: Interpreter | None = None
) -> tuple[list[Tensor], Any]:
    """f of flat tensors to flat results; and the map from cotangents to cotangents.

    `outer` is the level to compute on: by default the current one without the tape face.
    """
    level = outer or below()
    concrete = level is PURE
    tape = EvalTape() if concrete else Tape(level)
    outs, nodes = recorded(f, primals, tape)
    pairs = [unboxed(tape, o) for o in outs]
    roots = [n for _, n in pairs]

    def pull(cotangents: Sequence[Any], *, consume: bool = False) -> list[Any]:
        seeds = [(n, g) for n, g in zip(roots, cotangents, strict=True) if n and g is not None]
        raw = (
            concrete
            and current.get() in (EVAL, PURE)
            and all(type(g) is Tensor and g._node is None for _, g in seeds)
        )
        if raw:
            seeds = [(n, g.array) for n, g in seeds]
        found = Pass(raw=raw, consume=consume, constant=concrete).run(seeds)
        grads = [found.get(n) for n in nodes]
        return [
            g if g is None or isinstance(g, Tensor) else Tensor(np.asarray(g)) for g in grads
        ]

    return [v for v, _ in pairs], pull


@function
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """f(*primals), and the function that pulls cotangents of the result back to the primals.

    With `has_aux`, f returns (result, aux), and so do we: (result, pull, aux).
    """
    leaves, structure = tree.flatten(primals)
    leaves = [FUNCTIONS["lift"](x) for x in leaves]
    shape_of_out: list[Any] = []

    def flat(*xs: Any) -> list[Any]:
        out = f(*tree.unflatten(structure, xs))
        out, aux = split_aux("vjp", out) if has_aux else (out, None)
        found, shape = tree.flatten(out)
        more, shape_of_aux = tree.flatten(aux)
        shape_of_out[:] = [shape, shape_of_aux, len(found)]
        return [*found, *more]

    outs, pull_flat = flat_vjp(flat, leaves)
    shape, shape_of_aux, count = shape_of_out
    specs = [o.spec for o in outs[:count]]

    def pull(cotangent: Any) -> Any:
        """Cotangents of the primals, a tuple with one tree for each."""
        gs, given = tree.flatten(cotangent)
        if given != shape:
            raise ShapeError(
                f"vjp: the result has structure {shape}; the cotangent has {given}"
            )
        gs = [face(_cotangent("vjp", g, s)) for g, s in zip(gs, specs, strict=True)]
        found = pull_flat([*gs, *[None] * (len(outs) - count)])
        return tree.unflatten(structure, gradients(leaves, found))

    result = tree.unflatten(shape, outs[:count])
    if has_aux:
        return result, pull, tree.unflatten(shape_of_aux, outs[count:])
    return result, pull


def gradients(primals: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Gradients as the faces show them: zeros where none arrived, complex conjugated."""
    return [
        FUNCTIONS["zeros_like"](p) if g is None else face(g)
        for p, g in zip(primals, found, strict=True)
    ]


def _cotangent(who: str, g: Any, spec: Any) -> Tensor:
    g = FUNCTIONS["lift"](g)
    if g.shape != spec.shape:
        raise ShapeError(f"{who}: the cotangent of {spec} must have that shape; got {g.spec}")
    return g if g.dtype == spec.dtype else FUNCTIONS["astype"](g, spec.dtype)


def split_aux(who: str, out: Any) -> tuple[Any, Any]:
    """What a function with aux returned, as (result, aux)."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise DerivativeError(f"{who}: with has_aux the function must return (result, aux)")
    return out
