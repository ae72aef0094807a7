"""The Forward interpreter: jvp, and linearize by replaying a tape forwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.autodiff.reverse import Tape, recorded, split_aux
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import (
    Interpreter,
    below,
    expanded,
    using,
)
from retrograd.core.op import FUNCTIONS, Composite, Op, function
from retrograd.core.record import DERIVED, no_derivative
from retrograd.core.replay import move
from retrograd.core.tape import Joint, Node, Pick
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["jvp", "linearize"]


class Dual(Box):
    """A value and its tangent, both of the level below; the tangent None means zero."""

    __slots__ = ("tangent",)
    fields = ("value", "tangent")

    def __init__(self, owner: Any, value: Any, tangent: Any) -> None:
        super().__init__(owner, value)
        self.tangent = tangent

    def remake(self, f: Any) -> Dual:
        """The same box around f of what it holds."""
        return Dual(
            self.owner, f(self.value), None if self.tangent is None else f(self.tangent)
        )


class Forward(Interpreter):
    """Carry tangents along: each op also pushes its inputs' tangents through its jvp."""

    def __init__(self, outer: Interpreter) -> None:
        self.outer: Interpreter = outer

    def own(self, t: Tensor) -> Dual:
        """`t` as a box of this interpreter."""
        return t if isinstance(t, Dual) and t.owner is self else Dual(self, t, None)

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Run below, then push the tangents, also below."""
        duals = [self.own(a) for a in args]
        values = [d.value for d in duals]
        moving = op.moving(len(args))
        tangents = [d.tangent if i in moving else None for i, d in enumerate(duals)]
        mask = sum(1 << i for i, t in enumerate(tangents) if t is not None)
        if not mask:
            return self.outer.apply(op, values)
        recipe = op.ahead(mask)
        if recipe is None and isinstance(op, Composite) and op.reverse(mask) is None:
            return expanded(self, op, args)
        out = self.outer.apply(op, values)
        outs = out if isinstance(out, tuple) else (out,)
        if not any(dt.is_inexact(o.dtype) for o in outs):
            return out
        with using(self.outer):
            recipe = recipe or derived_push(op, mask)
            kept = recipe.keep((tuple(values), *outs) if op.variadic else (*values, *outs))
            found = recipe.push(op, fill(op, tangents, [v.spec for v in values]), kept)
            return self._results(op, out, found)

    def _results(self, op: Op, out: Any, found: Any) -> Any:
        if not isinstance(out, tuple):
            return Dual(self, out, _fitted(found, out.spec))
        found = found if isinstance(found, (tuple, list)) else (found,)
        found = [*found, *[None] * (len(out) - len(found))]
        return tuple(Dual(self, o, _fitted(t, o.spec)) for o, t in zip(out, found, strict=True))


def derived_push(op: Op, mask: int) -> Any:
    """A jvp made from the vjp, where an op has only that."""
    if op.no_derivative or op.reverse(mask) is None:
        raise no_derivative(op)
    return DERIVED["jvp"](mask)


def fill(op: Op, tangents: Sequence[Any], specs: Sequence[Any]) -> list[Any]:
    """Zeros for the tangents that are not there, unless the jvp takes None."""
    out = list(tangents)
    rule = op.rule.get("jvp")
    for name, may in zip(rule.lead, rule.optional, strict=True) if rule else ():
        i = op.inputs.index(name[1:])
        if out[i] is None and not may and dt.is_inexact(specs[i].dtype):
            out[i] = op.zeros(specs[i])
    return out


def _fitted(tangent: Any, spec: Any) -> Any:
    """A tangent in the shape and dtype of its value: slopes may be smaller or wider."""
    if tangent is None or not dt.is_inexact(spec.dtype):
        return None
    if tangent.shape != spec.shape:
        tangent = FUNCTIONS["broadcast_to"](tangent, spec.shape)
    return tangent if tangent.dtype == spec.dtype else FUNCTIONS["restore"](tangent, spec.dtype)


@function
def jvp(f: Callable[..., Any], primals: Any, tangents: Any, *, has_aux: bool = False) -> Any:
    """f(*primals) and its directional derivative along `tangents`; with has_aux, aux third."""
    xs, structure = tree.flatten(several("jvp", "primals", primals))
    ts, given = tree.flatten(several("jvp", "tangents", tangents))
    if structure != given:
        raise ShapeError(f"jvp: primals have structure {structure}; tangents have {given}")
    xs = [FUNCTIONS["lift"](x) for x in xs]
    ts = [_tangent(t, x) for t, x in zip(ts, xs, strict=True)]
    forward = Forward(below())
    duals = [Dual(forward, x.handle(), t) for x, t in zip(xs, ts, strict=True)]
    with using(forward):
        out = f(*tree.unflatten(structure, duals))
    out, aux = split_aux("jvp", out) if has_aux else (out, None)
    leaves, shape = tree.flatten(out)
    leaves = [forward.own(FUNCTIONS["lift"](o)) for o in leaves]
    values = tree.unflatten(shape, [d.value.handle() for d in leaves])
    pushed = tree.unflatten(shape, [_or_zeros(d) for d in leaves])
    if has_aux:
        return values, pushed, tree.map(lambda a: _below(forward, a), aux)
    return values, pushed


def several(who: str, name: str, values: Any) -> tuple[Any, ...]:
    """`values` as a tuple with one entry for each argument of the function."""
    if not isinstance(values, (tuple, list)):
        raise ArgumentError(
            f"{who}: {name} must be a tuple with one entry for each argument; got "
            f"{type(values).__name__}",
            hint=f"rg.{who}(f, (x,), (t,))",
        )
    return tuple(values)


def _below(forward: Forward, a: Any) -> Any:
    return a.value if isinstance(a, Dual) and a.owner is forward else a


def _or_zeros(d: Dual) -> Any:
    return FUNCTIONS["zeros_like"](d.value) if d.tangent is None else d.tangent.handle()


def _tangent(t: Any, x: Tensor) -> Tensor | None:
    if not dt.is_inexact(x.dtype):
        return None
    t = FUNCTIONS["lift"](t)
    if t.shape != x.shape:
        raise ShapeError(f"jvp: a tangent of {x.spec} must have that shape; got {t.spec}")
    return t if t.dtype == x.dtype else FUNCTIONS["astype"](t, x.dtype)


class LinearTape(Tape):
    """A tape that keeps what the jvps need, to be replayed forwards."""

    def __init__(self, outer: Interpreter) -> None:
        super().__init__(outer)
        self.nodes: list[tuple[Node, int, list[Any]]] = []

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Run below; keep by the jvp's signature."""
        boxes = [self.own(a) for a in args]
        moving = op.moving(len(args))
        parents = [b._node if i in moving else None for i, b in enumerate(boxes)]
        mask = sum(1 << i for i, p in enumerate(parents) if p is not None)
        values = [b.value for b in boxes]
        if not mask:
            return self.outer.apply(op, values)
        recipe = op.ahead(mask)
        if recipe is None and isinstance(op, Composite) and op.reverse(mask) is None:
            return expanded(self, op, args)
        out = self.outer.apply(op, values)
        outs = out if isinstance(out, tuple) else (out,)
        if not any(dt.is_inexact(o.dtype) for o in outs):
            return out
        result = self._record(op, values, out, parents, recipe or derived_push(op, mask))
        boxed = result if isinstance(result, tuple) else (result,)
        node: Any = next(b._node for b in boxed if b._node is not None)
        node = node.parents[0] if isinstance(node, Pick) else node
        self.nodes.append((node, mask, [v.spec for v in values]))
        return result


@function
def linearize(f: Callable[..., Any], *primals: Any) -> Any:
    """f(*primals), and the linear map of tangents to tangents there; f runs once."""
    xs, structure = tree.flatten(primals)
    xs = [FUNCTIONS["lift"](x) for x in xs]
    shape: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        out, found = tree.flatten(f(*tree.unflatten(structure, leaves)))
        shape[:] = [found]
        return out

    tape = LinearTape(below())
    outs, roots = recorded(flat, xs, tape)
    boxes = [tape.own(FUNCTIONS["lift"](o)) for o in outs]

    def push(*tangents: Any) -> Any:
        """The tangent of the result."""
        ts, given = tree.flatten(tangents)
        if given != structure:
            raise ShapeError(f"linearize: the primals have {structure}; the tangents {given}")
        known: dict[Any, Any] = {
            n: _tangent(t, x) for n, t, x in zip(roots, ts, xs, strict=True)
        }
        _replay(tape, known)
        found = [known.get(b._node) for b in boxes]
        filled = [
            FUNCTIONS["zeros_like"](b.value) if t is None else t
            for t, b in zip(found, boxes, strict=True)
        ]
        return tree.unflatten(shape[0], filled)

    return tree.unflatten(shape[0], [b.value.handle() for b in boxes]), push


def _replay(tape: Any, known: dict[Any, Any]) -> None:
    """Push tangents through the nodes of a LinearTape, in program order."""
    region = None
    for node, _, specs in tape.nodes:
        tangents = [None if p is None else known.get(p) for p in node.parents]
        if all(t is None for t in tangents):
            continue
        region = move(region, node.region)
        filled = fill(node.op, tangents, specs)
        found = node.recipe.push(node.op, filled, node.kept)
        if isinstance(node, Joint):
            found = found if isinstance(found, (tuple, list)) else (found,)
            for i, t in enumerate(found):
                pick = node.picks[i] and node.picks[i]()
                if pick is not None:
                    known[pick] = _fitted(t, node.specs[i])
        else:
            known[node] = _fitted(found, node.spec)
    move(region, None)
