"""The seam: apply(op, *tensors) asks the current interpreter what applying an op means.

Eval computes, and records on the tape when an operand requires a gradient. Raw computes on
bare arrays: first-order backward passes run their rules under it. Forward, Tape, Batch and
Trace (autodiff, ir) box their values and hand the op to the interpreter below them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import operators, replay, tree
from retrograd.core.executor import LIGHT, HeavyRecipe, heavy, slot, taken
from retrograd.core.op import FUNCTIONS, Composite, Op, function
from retrograd.core.quiet import loud, quiet
from retrograd.core.record import no_recipe, packed, record, several, track
from retrograd.core.refusals import escaped, refuse
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tape import next_order
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_F32, _F64 = dt.float32, dt.float64
_LARGEST = 3e38  # fits in float32; what is beyond takes the slow way
SMALL = 64  # elements of a constant that is written into a traced program
_ndarray, _region = np.ndarray, replay.region_now.get


class Interpreter(ABC):
    """What applying an op means. `outer` is the level below, None at the bottom."""

    outer: Interpreter | None = None
    writes: bool = False  # it writes a program down: nothing has a value yet
    witness: Any = None  # debug.aliasing: checks kept values before a rule uses them

    def pure(self) -> Interpreter:
        """The same level, without the tape face."""
        return self

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """Apply an op to whatever the caller gave: numbers and arrays are lifted first."""
        return self.apply(op, op.coerce(args))

    @abstractmethod
    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Apply an op to tensors that fit it."""


class Eval(Interpreter):
    """Compute now; record on the tape when an operand requires a gradient."""

    def __init__(self, *, recording: bool) -> None:
        self.recording = recording

    def pure(self) -> Interpreter:
        """The Eval that does not record."""
        return PURE

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """The hot path: one or two float tensors of one dtype go straight to NumPy."""
        try:
            if len(args) == 2:
                a, b = args
                x, y = a._data, b._data
                fits = x.dtype is y.dtype or not op.uniform
                tracked = a._node is not None or b._node is not None
            else:
                (a,) = args
                x, y, fits, tracked = a._data, None, True, a._node is not None
            dtype = x.dtype
            if not fits or not op.hot or (dtype is not _F32 and dtype is not _F64):
                return self.apply(op, op.coerce(args))
        except (AttributeError, ValueError):  # numbers, boxes, shells, more or no operands
            return self.apply(op, weak(op, args) or op.coerce(args))
        if x.size >= LIGHT or (y is not None and y.size >= LIGHT) or _region() is not None:
            return self.apply(op, args)
        token = quiet()
        try:
            out = op.forward(x) if y is None else op.forward(x, y)
        except Exception as error:
            refuse(op, [a._data for a in args], error)
            raise
        finally:
            loud(token)
        if type(out) is not _ndarray:
            return self._finish(op, args, [a._data for a in args], out)
        result = Tensor(out)
        if tracked and self.recording:
            result._node = record(op, args, (x, out) if y is None else (x, y, out), out)
        return result

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Apply an op to tensors that fit it."""
        for a in args:
            if isinstance(a, Box):
                raise escaped(op, a)
        if self.recording and not op.hot and any(a._node is not None for a in args):
            if op.saves:
                return self._saved(op, args)
            if isinstance(op, Composite) and not _has_rule(op, args):
                return self.whole(op, args)
        arrays = [a.array for a in args]
        region = _region()
        if region is not None:
            region.reserve(op, arrays)
        token = quiet()
        try:
            out = run(op, arrays)
        except Exception as error:
            refuse(op, arrays, error)
            raise
        finally:
            loud(token)
        return self._finish(op, args, arrays, out)

    def whole(self, op: Op, args: Sequence[Any]) -> Any:
        """A composition as one op, if kernels take it; op by op otherwise."""
        arrays = [a.array for a in args]
        out = taken(op, arrays, _region())
        done = out is not None
        return self._finish(op, args, arrays, out) if done else expanded(self, op, args)

    def _finish(self, op: Op, args: Sequence[Any], arrays: Any, out: Any) -> Any:
        """Wrap and record what was computed: one output or several, in a region or not."""
        if type(out) is tuple or len(op.outputs) > 1:
            return self._several(op, args, arrays, out)
        out = np.asarray(out)
        result = Tensor(out)
        region = _region()
        if region is not None and not op.effect:
            (result._cell,) = replay.enter(op, list(args), [out], region)
        if self.recording and any(a._node is not None for a in args):
            values = packed(op, args, arrays, [out], [result], region)
            result._node = node = record(op, args, values, out, region)
            if node is not None and heavy(op, arrays):
                node.recipe = HeavyRecipe(node.recipe, node.parents)
        return result if region is None else region.shell(result)

    def _several(self, op: Op, args: Sequence[Any], arrays: Any, out: Any) -> Any:
        outs = [np.asarray(o) for o in out]
        results = [Tensor(o) for o in outs]
        region = _region()
        if region is not None and not op.effect:
            for r, c in zip(results, replay.enter(op, list(args), outs, region), strict=True):
                r._cell = c
        if self.recording and any(a._node is not None for a in args):
            parents, mask = track(op, args)
            if mask:
                recipe = op.reverse(mask) or no_recipe(op, mask)
                values = packed(op, args, arrays, outs, results, region)
                kept = recipe.keep(values)
                if heavy(op, arrays):
                    recipe = HeavyRecipe(recipe, parents)
                several(op, parents, recipe, kept, results, region)
        return tuple(results if region is None else map(region.shell, results))

    def _saved(self, op: Op, args: Sequence[Any]) -> Any:
        """An op that says itself what it keeps (a function with its own derivative)."""
        with using(PURE):
            outs, residuals = op.save(*(Tensor(a._data, None, a._cell) for a in args))  # type: ignore[attr-defined]
        parents, mask = track(op, args)
        region = _region()
        if region is not None:
            residuals = tree.map(lambda t: t.shell(), residuals)
        kept = ([a.shell() if region else a.handle() for a in args], residuals)
        results = [Tensor(o.array, None, o._cell) for o in outs]
        several(op, parents, op.reverse(mask), kept, results, region)
        return tuple(results)


class EvalTape(Eval):
    """A functional tape on concrete values: plain tensors, recorded as the tape face does.

    Nodes are numbered downwards, so what was recorded before this tape began has a higher
    order: to this tape such tensors are constants.
    """

    def __init__(self) -> None:
        super().__init__(recording=True)
        self.start = next_order()

    def pure(self) -> Interpreter:
        """Itself: transforms inside it are recorded."""
        return self

    def mine(self, t: Any) -> bool:
        """Whether this tape tracks a tensor."""
        return t._node is not None and t._node.order < self.start

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """As Eval, with what was recorded outside as constants."""
        for a in args:
            if type(a) is Tensor and a._node is not None and a._node.order > self.start:
                args = [Tensor(a._data, None, a._cell) if self.foreign(a) else a for a in args]
                break
        return super().call(op, args)

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """As Eval, with what was recorded outside as constants."""
        args = [Tensor(a._data, None, a._cell) if self.foreign(a) else a for a in args]
        return super().apply(op, args)

    def foreign(self, a: Any) -> bool:
        """Whether a tensor was recorded before this tape began."""
        return type(a) is Tensor and a._node is not None and not self.mine(a)


def compute(op: Op, arrays: Sequence[Any]) -> Any:
    """Run an op on arrays; half precision is stored, float32 is what computes."""
    if op.bodied or not any(a.dtype in dt.HALF for a in arrays):
        return op.forward(*arrays)
    specs = op.shape(*(spec_of(a) for a in arrays))
    out = op.forward(*(a.astype(_F32) if a.dtype in dt.HALF else a for a in arrays))
    if isinstance(specs, Spec):
        return np.asarray(out).astype(specs.dtype)
    return tuple(np.asarray(o).astype(s.dtype) for o, s in zip(out, specs, strict=True))


def run(op: Op, arrays: Sequence[Any]) -> Any:
    """Run an op on arrays, by kernels where it is heavy and they take it."""
    if heavy(op, arrays):
        found = slot.forward(op, arrays)
        if found is not None:
            return found
    return compute(op, arrays)


replay.Step.compute = staticmethod(run)


class Raw(Interpreter):
    """Compute on bare arrays: no tensors, no tape, no lifting."""

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """Straight to NumPy, unless it is heavy, or half precision: widened as everywhere."""
        for a in args:
            dtype = getattr(a, "dtype", _F32)
            if dtype is not _F32 and dtype is not _F64 and dtype in dt.HALF:
                given = [x if hasattr(x, "dtype") else np.asarray(x, dtype) for x in args]
                return compute(op, given)
            if getattr(a, "size", 0) >= LIGHT:
                found = slot.forward(op, args)
                if found is not None:
                    return found
        return op.forward(*args)

    apply = call


class Watcher(Interpreter):
    """Looks on while the level below computes: changes nothing, may raise."""

    compiles: ClassVar[bool] = False  # whether it has a `looker`

    def __init__(self, outer: Interpreter) -> None:
        self.outer: Interpreter = outer

    def pure(self) -> Interpreter:
        """The same watcher above the level that does not record."""
        return self.above(self.outer.pure())

    def looker(self, op: Op, operands: int) -> Op:
        """The op that looks on in compiled programs after `op`, on its operands and results."""
        raise TypeError(f"{type(self).__name__} does not look into compiled programs")

    @abstractmethod
    def above(self, outer: Interpreter) -> Watcher:
        """This watcher, standing on another level."""

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """Apply below, then look."""
        out = self.outer.call(op, args)
        self.look(op, args, out)
        return out

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Apply below, then look."""
        out = self.outer.apply(op, args)
        self.look(op, args, out)
        return out

    @abstractmethod
    def look(self, op: Op, args: Sequence[Any], out: Any) -> None:
        """See what went in and what came out."""


EVAL, PURE, RAW = Eval(recording=True), Eval(recording=False), Raw()
current: ContextVar[Interpreter] = ContextVar("interpreter", default=EVAL)
_get = operators.level = current.get
HeavyRecipe.raw = staticmethod(lambda: _get() is RAW)


def apply(op: Op, *args: Any) -> Any:
    """Apply an op, under whatever interpreter is current."""
    return _get().call(op, args)


Op.apply = staticmethod(apply)


def weak(op: Op, args: Sequence[Any]) -> Sequence[Any] | None:
    """A float tensor and a Python number, which takes its dtype: what people write most."""
    if len(args) != 2 or not op.uniform or op.fixed:
        return None
    for i, (t, number) in enumerate((args, args[::-1])):
        if type(t) is Tensor and type(number) in (float, int) and t._data is not None:
            dtype = t._data.dtype
            if (dtype is _F32 or dtype is _F64) and -_LARGEST < number < _LARGEST:
                other = Tensor(np.asarray(number, dtype))
                return (other, t) if i else (t, other)
    return None


def _has_rule(op: Op, args: Sequence[Any]) -> bool:
    """Whether an op has a derivative of its own, and not only what it expands to."""
    _, mask = track(op, args)
    return op.reverse(mask) is not None or op.ahead(mask) is not None


def tracing() -> bool:
    """Whether a program is being written down, at this level or one below it."""
    level: Interpreter | None = _get()
    while level is not None:
        if level.writes:
            return True
        level = level.outer
    return False


def fresh(array: Any) -> Any:
    """A tensor of a new array; a number of the program, where one is traced and it is small."""
    if array.size <= SMALL and tracing():
        return FUNCTIONS["literal"](array)
    region = _region()
    if region is not None:
        region.made(array)
    return Tensor(array)


@function
def constant(array: Any) -> Any:
    """A new array, whose owner nobody else is, as what ops take here."""
    return array if _get() is RAW else fresh(array)


@function
def lift(value: Any) -> Any:
    """`value` as what ops take here: a tensor, or under Raw a bare array."""
    if isinstance(value, Tensor):
        return value if value.weak is None else value.strong()
    if _get() is RAW:
        return value if isinstance(value, _ndarray) else np.asarray(value)
    return FUNCTIONS["asarray"](value)


def unchanged(x: Any) -> Any:
    """x where there is nothing to do: another handle, so that writing to it leaves x alone."""
    return x.handle() if isinstance(x, Tensor) else x


@contextmanager
def using(interpreter: Interpreter) -> Iterator[None]:
    """Make `interpreter` the current one."""
    token = current.set(interpreter)
    try:
        yield
    finally:
        current.reset(token)


def below() -> Interpreter:
    """What a functional transform stands on: the current level, without the tape face.

    Inside transforms, tensors of the outside that require gradients are constants.
    """
    return _get().pure()


def expanded(interpreter: Interpreter, op: Op, args: Sequence[Any]) -> Any:
    """Run a composite's expansion under `interpreter`."""
    assert isinstance(op, Composite)
    with using(interpreter):
        return op.expand(*args)


def _forward(self: Composite, *arrays: Any) -> Any:
    with using(RAW):
        return self.expand(*arrays)


Composite.forward = _forward  # type: ignore[method-assign]
