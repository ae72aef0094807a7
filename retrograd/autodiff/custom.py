"""Functions with their own derivative: custom_vjp and custom_jvp.

The function is one op to every interpreter, so that its derivative is its own in a scan's
body as well. The other mode follows by transposition, second order from the rule itself,
since rules are written in ops.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import Forward
from retrograd.autodiff.reverse import Tape
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DerivativeError, ShapeError
from retrograd.core.interpret import (
    EVAL,
    PURE,
    RAW,
    Eval,
    EvalTape,
    Interpreter,
    apply,
    current,
    lift,
    using,
)
from retrograd.core.op import FUNCTIONS, Composite, Op, function, prepare
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.ir.trace import Trace, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["custom_jvp", "custom_vjp"]


class Custom(Composite):
    """A flat function with a derivative of its own; equal only to itself."""

    f: Callable[..., list[Any]]
    forward_rule: Callable[..., tuple[list[Any], Any]] | None = None
    backward_rule: Callable[..., list[Any]] | None = None
    jvp_rule: Callable[..., list[Any]] | None = None
    label: str = "function"
    outputs = ("*results",)
    bodied = True

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Only itself."""
        return self is other

    @property
    def saves(self) -> bool:  # type: ignore[override]
        """Whether the forward rule says what is kept."""
        return self.forward_rule is not None

    def shape(self, *specs: Spec) -> tuple[Spec, ...]:
        """What the function returns, found by tracing it."""
        return trace(self.f, specs)[0].output_specs

    def expand(self, *args: Any) -> tuple[Any, ...]:
        """The function itself."""
        return tuple(self.f(*args))

    def forward(self, *arrays: Any) -> tuple[Any, ...]:
        """The function on tensors, out as arrays."""
        with using(PURE):
            return tuple(lift(o).array for o in self.f(*map(Tensor, arrays)))

    def save(self, *args: Any) -> tuple[list[Any], Any]:
        """What the forward rule returns: results and residuals.

        Where the results may be differentiated once more, it is by the rule as well: they
        come from this op, not from the forward rule's ops.
        """
        assert self.forward_rule is not None
        outs, residuals = self.forward_rule(*args)
        return list(apply(self, *args)) if _differentiable(current.get()) else outs, residuals

    def reverse(self, mask: int) -> Any:  # type: ignore[override]
        """The backward rule, or None where only a jvp is given."""
        return CustomPull(mask) if self.saves else None

    def ahead(self, mask: int) -> Any:  # type: ignore[override]
        """The jvp rule, or None where only a vjp is given."""
        return None if self.saves else CustomPush()

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
        """The same custom function, mapped: rules and all."""
        axes = tuple(0 if m else None for m in mapped)
        total = FUNCTIONS["sum"]

        def backward_rule(residuals: Any, gs: Any) -> list[Any]:
            found = vmap(self.backward_rule)(residuals, gs)  # type: ignore[arg-type]
            return [
                c if m or c is None else total(c, axis=0)
                for c, m in zip(found, mapped, strict=True)
            ]

        def jvp_rule(primals: Any, tangents: Any) -> Any:
            along = list(axes)
            return vmap(self.jvp_rule, in_axes=(along, along))(primals, tangents)  # type: ignore[arg-type]

        f = vmap(self.f, in_axes=axes)
        forward_rule = vmap(self.forward_rule, in_axes=axes) if self.forward_rule else None
        op = Custom(
            f, forward_rule, backward_rule, jvp_rule if self.jvp_rule else None, self.label
        )
        return apply(op, *args)


def _differentiable(level: Interpreter | None) -> bool:
    """Whether a derivative is taken at this level or below it, or may be later."""
    while level is not None:
        if isinstance(level, (Forward, Tape, Trace, EvalTape)):
            return True
        level = level.outer
    return False


prepare(Custom)


class CustomPull:
    """Calls the user's backward rule on tensors, whatever the pass works on."""

    keeps = ()

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def pull(self, op: Custom, g: Any, kept: Any, count: int) -> list[Any]:
        """The cotangents of the inputs."""
        raw = current.get() is RAW
        assert op.backward_rule is not None
        with using(PURE if raw else current.get()):
            found = op.backward_rule(kept, [None if c is None else lift(c) for c in g])
        if len(found) != count:
            raise DerivativeError(
                f"{op.label}: the backward rule returned {len(found)} cotangents for {count} "
                f"arguments; it must return one for each"
            )
        found = [c if c is None else lift(c) for c in found]
        return [c.array if raw and c is not None else c for c in found]


class CustomPush:
    """Calls the user's jvp rule."""

    keeps = None

    def keep(self, values: Any) -> tuple[Any, ...]:
        """All values."""
        return tuple(values)

    def push(self, op: Custom, tangents: Sequence[Any], kept: Any) -> list[Any]:
        """The tangents of the results."""
        primals = list(kept[0])
        assert op.jvp_rule is not None
        zeros = FUNCTIONS["zeros_like"]
        filled = [zeros(p) if t is None else t for t, p in zip(tangents, primals, strict=True)]
        return op.jvp_rule(primals, filled)[1]


class CustomFunction:
    """A function whose derivative is given by `defvjp` or `defjvp`."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.label = getattr(f, "__name__", "function")
        self.rules: dict[str, Any] = {}
        update_wrapper(self, f)

    def defvjp(
        self, forward: Callable[..., Any], backward: Callable[..., Any]
    ) -> CustomFunction:
        """forward(*args) -> (result, residuals); backward(residuals, g) -> one for each arg.

        Residuals are a tree of tensors. A cotangent may be None for zero.
        """
        self.rules = {"forward": forward, "backward": backward}
        return self

    def defjvp(self, rule: Callable[..., Any]) -> CustomFunction:
        """rule(primals, tangents) -> (result, tangent of the result)."""
        self.rules = {"jvp": rule}
        return self

    def __call__(self, *args: Any) -> Any:
        """The function, with its own derivative."""
        if not self.rules:
            raise ArgumentError(
                f"{self.label}: no derivative was given",
                hint=f"{self.label}.defvjp(forward, backward)      or defjvp(rule)",
            )
        leaves, structure = tree.flatten(args)
        call = _Call(self, structure)
        jvp = "jvp" in self.rules
        op = Custom(
            call.plain,
            None if jvp else call.forward,
            None if jvp else call.backward,
            call.jvp if jvp else None,
            self.label,
        )
        outs = apply(op, *(lift(x) for x in leaves))
        return tree.unflatten(call.shape_of_out, outs)


class Sealed(Eval):
    """Compute, and refuse what is differentiated outside but is no argument of the function.

    Its gradient would be lost: the function's own rule speaks of the arguments alone.
    """

    def __init__(self, label: str, tapes: list[Any]) -> None:
        super().__init__(recording=False)
        self.label = label
        self.tapes = tapes

    def pure(self) -> Interpreter:
        """Itself: transforms inside are sealed as well."""
        return self

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """As Eval, on arguments and constants."""
        self._check(args)
        return super().call(op, args)

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """As Eval, on arguments and constants."""
        self._check(args)
        return super().apply(op, args)

    def _check(self, args: Sequence[Any]) -> None:
        for a in args:
            if isinstance(a, Box) or (
                type(a) is Tensor
                and a._node is not None
                and any(t is EVAL or t.mine(a) for t in self.tapes)
            ):
                raise DerivativeError(
                    f"{self.label}: it captures a tensor {a.spec} that is differentiated, "
                    f"mapped or traced around it; its gradient would be lost",
                    hint=f"make it an argument of {self.label}, or capture x.detach()",
                )


def _tapes(level: Interpreter | None) -> list[Any]:
    """The tapes of concrete values that stand at a level or below it."""
    found: list[Any] = []
    while level is not None:
        if isinstance(level, Sealed):
            found += level.tapes
        elif level is EVAL or isinstance(level, EvalTape):
            found.append(level)
        level = level.outer
    return found


class _Call:
    """One call: between the user's trees and the flat tensors of the op."""

    def __init__(self, owner: CustomFunction, structure: Any) -> None:
        self.owner = owner
        self.structure = structure
        self.shape_of_out: Any = None
        self.tapes = _tapes(current.get())

    def _flat(self, out: Any) -> list[Any]:
        leaves, self.shape_of_out = tree.flatten(out)
        return [lift(o) for o in leaves]

    def _run(self, f: Callable[..., Any], xs: Sequence[Any]) -> Any:
        level = current.get()
        with using(Sealed(self.owner.label, self.tapes) if level is PURE else level):
            return f(*tree.unflatten(self.structure, xs))

    def plain(self, *xs: Any) -> list[Any]:
        return self._flat(self._run(self.owner.f, xs))

    def forward(self, *xs: Any) -> tuple[list[Any], Any]:
        found = self._run(self.owner.rules["forward"], xs)
        if not isinstance(found, tuple) or len(found) != 2:
            raise DerivativeError(
                f"{self.owner.label}: the forward rule must return (result, residuals)"
            )
        return self._flat(found[0]), tree.map(lift, found[1])

    def backward(self, residuals: Any, gs: Sequence[Any]) -> list[Any]:
        g = tree.unflatten(self.shape_of_out, gs)
        found = self.owner.rules["backward"](residuals, g)
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(self.structure.children):
            raise DerivativeError(
                f"{self.owner.label}: the backward rule returned {len(found)} cotangents for "
                f"{len(self.structure.children)} arguments"
            )
        out: list[Any] = []
        for c, shape in zip(found, self.structure.children, strict=True):
            out += self._cotangents(c, shape)
        return out

    def _cotangents(self, c: Any, shape: tree.Structure) -> list[Any]:
        """The leaves of one argument's cotangent; None stands for all below it."""
        if c is None:
            return [None] * shape.leaves
        if shape.type is None and tree.children(c) is None:
            return [c]
        children, static = tree.children(c) or ((), None)
        children = list(children)
        fits = static == shape.static or shape.type is not dict
        if shape.type is None or len(children) != len(shape.children) or not fits:
            raise DerivativeError(
                f"{self.owner.label}: the backward rule returned {tree.structure(c)} as the "
                f"cotangent of an argument {shape}"
            )
        pairs = zip(children, shape.children, strict=True)
        return [leaf for child, inner in pairs for leaf in self._cotangents(child, inner)]

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        given = (
            tree.unflatten(self.structure, primals),
            tree.unflatten(self.structure, tangents),
        )
        out, pushed = self.owner.rules["jvp"](*given)
        leaves, shape = tree.flatten(pushed)
        found = self._flat(out)
        if shape != self.shape_of_out:
            raise ShapeError(
                f"{self.owner.label}: the tangent has structure {shape}; the result has "
                f"{self.shape_of_out}"
            )
        return found, [lift(t) for t in leaves]


@function
def custom_vjp(f: Callable[..., Any]) -> CustomFunction:
    """Give f its own reverse rule: `f.defvjp(forward, backward)`. Forward mode follows.

    What is differentiated must be an argument of f: what f captures is a constant to it.
    """
    return CustomFunction(f)


@function
def custom_jvp(f: Callable[..., Any]) -> CustomFunction:
    """Give f its own forward rule: `f.defjvp(rule)`. Reverse mode follows.

    What is differentiated must be an argument of f: what f captures is a constant to it.
    """
    return CustomFunction(f)
