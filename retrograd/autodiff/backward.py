"""The tape face: backward into `.grad`, no_grad, stop_gradient, hooks over a whole pass."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.pull import Pass, consumed, outside
from retrograd.autodiff.shown import Shown, public, seeded
from retrograd.core.errors import DerivativeError, DtypeError, ShapeError, TraceError
from retrograd.core.interpret import EVAL, PURE, Eval, Interpreter, Watcher, current, using
from retrograd.core.op import FUNCTIONS, Op, function
from retrograd.core.tape import Leaf, Node, Primal
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["backward", "leaf_hook", "no_grad"]

_leaf_hooks: ContextVar[tuple[Callable[..., Any], ...]] = ContextVar("leaf_hooks", default=())


@function
def backward(
    tensor: Tensor,
    gradient: Any = None,
    *,
    accumulate: bool = True,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Leave the gradient of `tensor` in the `.grad` of every leaf that it depends on.

    `gradient` is the cotangent of `tensor`; it may be left out for a single number.
    `accumulate=False` replaces what `.grad` held. What the tape kept is freed on the way,
    unless `retain_graph`; with `create_graph` the gradients can be differentiated again.
    """
    level = current.get()
    node = _root(tensor, level)
    seed = _seed(tensor, gradient)
    raw = not create_graph and isinstance(level, Eval)
    finish = _Finish(accumulate=accumulate, early=_leaf_hooks.get())
    walk = Pass(
        raw=raw,
        consume=not (retain_graph or create_graph),
        leaf_done=finish.done if finish.early else None,
    )
    with using(_recording(level) if create_graph else level.pure()):
        found = walk.run([(node, seeded(node, seed, raw=raw))])
    if any(isinstance(leaf, Primal) for leaf in found):
        raise TraceError(
            "backward: this tensor depends on one of grad or vjp that is used after that "
            "transform has ended; return it from the transformed function instead"
        )
    if not finish.early:
        for leaf, g in found.items():
            finish.done(leaf, g)


def _root(tensor: Tensor, level: Interpreter) -> Node:
    """The node to start from, or an error that says why there is none."""
    if not isinstance(tensor, Tensor):
        raise DtypeError(f"backward: needs a tensor; got {type(tensor).__name__}")
    if isinstance(tensor, Box) or not (level in (EVAL, PURE) or isinstance(level, Watcher)):
        raise TraceError(
            "backward: the tape face does not work inside grad, jvp, vmap and jit",
            hint="rg.grad(f)(x) inside transforms",
        )
    node = tensor._node
    if node is None:
        raise DerivativeError(
            "backward: this tensor does not depend on any tensor that requires a gradient",
            hint="x = rg.tensor(values, requires_grad=True) before computing with it",
        )
    if node.consumed:
        raise consumed(node)
    return node


def _recording(level: Interpreter) -> Interpreter:
    return EVAL if level is PURE else level


class _Finish:
    """Store a complete leaf gradient, then call the backward-wide hooks."""

    def __init__(self, *, accumulate: bool, early: tuple[Callable[..., Any], ...]) -> None:
        self.accumulate = accumulate
        self.early = early

    def done(self, leaf: Node, g: Any) -> None:
        assert isinstance(leaf, Leaf)
        g = g if isinstance(g, (Tensor, Shown)) else Tensor(np.asarray(g))
        with using(PURE if g._node is None else EVAL):
            g = public(g)
            if self.accumulate and leaf.grad is not None:
                g = leaf.grad + g
        leaf.grad = g
        for hook in self.early:
            outside(hook, leaf, g)


def _seed(tensor: Tensor, gradient: Any) -> Tensor:
    if gradient is None:
        if tensor.size != 1:
            raise ShapeError(
                f"backward: a tensor of shape {tensor.shape} needs a gradient to start from",
                hint="y.backward(rg.ones_like(y)), or rg.sum(y).backward()",
            )
        return Tensor(np.ones(tensor.shape, tensor.dtype))
    g = FUNCTIONS["lift"](gradient)
    if g.shape != tensor.shape:
        raise ShapeError(
            f"backward: the gradient of {tensor.spec} must have that shape; got {g.spec}"
        )
    return g if g.dtype == tensor.dtype else FUNCTIONS["astype"](g, tensor.dtype)


@contextmanager
def leaf_hook(hook: Callable[[Any, Tensor], Any]) -> Iterator[None]:
    """Call hook(leaf, gradient) once for each leaf, the moment its gradient is complete.

    This is what an overlapped all-reduce needs: the gradients of late layers are complete,
    and their hooks called, while earlier layers are still being differentiated. `leaf` is
    what `parameter.leaf` gives.
    """
    token = _leaf_hooks.set((*_leaf_hooks.get(), hook))
    try:
        yield
    finally:
        _leaf_hooks.reset(token)


class Stopped(Interpreter):
    """no_grad inside a transform: results are constants to every level."""

    def __init__(self, outer: Interpreter) -> None:
        self.outer: Interpreter = outer

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Run below, then cut."""
        assert self.outer is not None
        out = self.outer.apply(op, args)
        with using(self.outer):
            if isinstance(out, tuple):
                return tuple(FUNCTIONS["stop_gradient"](o) for o in out)
            return FUNCTIONS["stop_gradient"](out)


@contextmanager
def no_grad() -> Iterator[None]:
    """Nothing computed in this block is recorded: its results are constants."""
    level = current.get()
    with using(PURE if isinstance(level, Eval) else Stopped(level)):
        yield
