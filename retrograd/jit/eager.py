"""Kernels for heavy eager ops: one op, or one derivative rule, as a program of its own.

A program is found by the op and its operands' shapes, dtypes and strides, and by nothing else:
the same call takes the same way each time. What kernels cannot do better than NumPy is left
to it, by rule (`eager_choice`): nothing is timed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, BoundsError
from retrograd.core.interpret import PURE, current, using
from retrograd.core.op import FUNCTIONS
from retrograd.core.replay import region_now
from retrograd.core.rules import Recipe
from retrograd.core.spec import Spec
from retrograd.core.value import exact
from retrograd.ir.trace import trace
from retrograd.jit.eager_choice import pays
from retrograd.jit.eager_layout import Layout, layout
from retrograd.jit.eager_run import Runner
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import Writer as Programmer
from retrograd.jit.passes import optimized
from retrograd.jit.passes.rewrite import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.op import Op
    from retrograd.ir.graph import Graph

__all__ = ["EagerKernels"]

LONG = 1 << 21  # characters of code
MANY = 1024  # programs that are kept; one that was dropped comes from the disk again


class _LeaveError(Exception):
    """NumPy shall run it."""


class EagerKernels:
    """The executor: programs for ops and rules, by what they are applied to."""

    def __init__(self) -> None:
        self.programs: OrderedDict[Any, Program | None] = OrderedDict()
        self.left: dict[str, str] = {}  # why something is left to NumPy, to look at
        self._lock = threading.RLock()

    def forward(self, op: Op, arrays: Sequence[Any]) -> Any:
        """The results of an op; None if NumPy shall run it."""
        try:
            key = (op, *[(a.shape, a.strides, a.dtype) for a in arrays])
            program = self.programs[key]
        except KeyError:
            program = self._new(key, op.name, arrays, lambda *boxes: _applied(op, boxes), op)
        except (TypeError, AttributeError):  # a field without a hash, an operand of Python's
            return None
        if program is None:
            return None
        try:
            found = program(arrays)
        except (ArgumentError, BoundsError):  # NumPy refuses it in the words of eager errors
            return None
        return tuple(found) if program.several else found[0]

    def pull(
        self, recipe: Any, op: Op, g: Any, kept: Any, targets: tuple[Any, ...]
    ) -> list[Any] | None:
        """The cotangents of an op's inputs by its recipe; None if NumPy shall find them."""
        arrays: list[Any] = []
        key: list[Any] = [op, targets]
        try:
            key.append(_named(recipe))
            _read((g, kept), arrays, key)
            program = self.programs[tuple(key)]
        except KeyError:
            rule = _rule(recipe, op, (g, kept), targets)
            program = self._new(tuple(key), f"{op.name} backward", arrays, rule)
        except (_LeaveError, TypeError):
            return None
        if program is None:
            return None
        try:
            made = iter(program(arrays))
        except (ArgumentError, BoundsError):
            return None
        return [next(made) if there else None for there in program.there]

    def _new(
        self, key: Any, name: str, arrays: Sequence[Any], f: Callable[..., Any], op: Any = None
    ) -> Program | None:
        with self._lock:
            if key not in self.programs:
                try:
                    self.programs[key] = Program(name, arrays, f, op)
                except Exception as error:  # noqa: BLE001  NumPy raises it again, or can do it
                    self.programs[key] = None
                    self.left[name] = f"{type(error).__name__}: {error}"
                while len(self.programs) > MANY:
                    self.programs.popitem(last=False)
            return self.programs[key]


def _applied(op: Any, boxes: Sequence[Any]) -> Any:
    return op.expand(*boxes) if getattr(op, "whole", False) else current.get().apply(op, boxes)


def _named(recipe: Any) -> Any:
    """A recipe as a key: one of a class is the same object always, a derived one its mask."""
    if isinstance(recipe, Recipe):
        return recipe
    mask = getattr(recipe, "mask", None)
    if mask is None:
        raise _LeaveError  # a rule of the user's: it may do more than compute
    return type(recipe), mask


# -- rules ------------------------------------------------------------------------------------


def _read(value: Any, arrays: list[Any], key: list[Any]) -> None:
    """The arrays in what a rule is given, and a key of the rest."""
    kind = type(value)
    if kind is np.ndarray:
        arrays.append(value)
        key.append((value.shape, value.strides, value.dtype))
    elif kind is tuple or kind is list:
        key.append(("(", len(value)))
        for v in value:
            _read(v, arrays, key)
    elif value is None or kind is Spec:
        key.append(value)
    elif isinstance(value, np.generic):
        arrays.append(np.asarray(value))
        key.append(((), (), value.dtype))
    elif kind in (int, float, bool, complex):
        key.append(exact(value))
    else:
        raise _LeaveError


def _boxed(value: Any, boxes: Any) -> Any:
    """What a rule is given, with boxes for its arrays."""
    if isinstance(value, (np.ndarray, np.generic)):
        return next(boxes)
    if type(value) in (tuple, list):
        return type(value)(_boxed(v, boxes) for v in value)
    return value


def _rule(recipe: Any, op: Op, given: Any, targets: Sequence[Any]) -> Callable[..., list[Any]]:
    """A rule as a function of boxes: cotangents in the shapes of the inputs."""

    def rule(*boxes: Any) -> list[Any]:
        g, kept = _boxed(given, iter(boxes))
        found = recipe.pull(op, g, kept, len(targets))
        return [_fitted(c, t) for c, t in zip(found, targets, strict=True)]

    return rule


def _fitted(c: Any, target: Any) -> Any:
    """A cotangent as `Pass` would make it fit: summed where its input was broadcast."""
    if c is None or target is None:
        return None
    shape, dtype = target
    if c.shape != shape:
        c = FUNCTIONS["sum_to"](c, shape)
    return c if c.dtype == dtype else FUNCTIONS["restore"](c, dtype)


# -- programs ---------------------------------------------------------------------------------


class _Careful(Programmer):
    """Leaves what would call NumPy anyway, and what would take long to compile."""

    def written(self) -> Any:
        """The module, if it is worth compiling."""
        routine = super().written()
        if self.hosts or len(self.module.text()) > LONG:
            raise _LeaveError
        return routine


class Program:
    """One op or rule for operands of one kind."""

    def __init__(self, name: str, arrays: Sequence[Any], f: Any, op: Any = None) -> None:
        self.layouts: list[Layout] = [layout(a) for a in arrays]
        graph = self._traced(arrays, f)
        if not pays(graph, op):
            raise _LeaveError
        program = _Careful(optimized(graph, kernels_of), chosen()).program()
        self.name, self.run = name, Runner(program, self.order)
        self.moves = any(x.base is not None for x in self.layouts)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, in new memory; what passes through is itself."""
        if self.moves:
            arrays = [
                x.base(a) if x.base else a for x, a in zip(self.layouts, arrays, strict=True)
            ]
        return self.run(arrays)

    def _traced(self, arrays: Sequence[Any], f: Any) -> Graph:
        def whole(*boxes: Any) -> list[Any]:
            seen = [
                x.view(b) if x.view else b for x, b in zip(self.layouts, boxes, strict=True)
            ]
            found = f(*seen)
            self.several = isinstance(found, (tuple, list))
            found = found if self.several else [found]
            self.there = [o is not None for o in found]
            return [o for o in found if o is not None]

        specs = [Spec(x.shape, a.dtype) for x, a in zip(self.layouts, arrays, strict=True)]
        token = region_now.set(None)
        try:
            with using(PURE):
                graph, captured = trace(whole, specs)
        finally:
            region_now.reset(token)
        writer = Writer(specs)
        hidden = [writer.literal(t.array) for t in captured]
        outs = writer.inline(graph, [*range(len(specs)), *hidden])
        distinct = list(dict.fromkeys(outs))
        self.order = [distinct.index(v) for v in outs]  # each is computed, and returned, once
        return writer.graph(distinct)
