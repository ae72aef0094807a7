"""The Trace interpreter: run Python once, get a Graph.

Tensors from outside that the function uses are not part of the code: each becomes a hidden
input of the graph, and trace returns them beside it. Numbers that the function makes are part
of it: small constants are nodes without inputs, each written once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from retrograd.core import dtype as dt
from retrograd.core.errors import TraceError
from retrograd.core.interpret import Interpreter, below, using
from retrograd.core.op import FUNCTIONS, Op, function, weak_type
from retrograd.core.replay import region_now
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.core.where import here, retold
from retrograd.ir.asked import asked
from retrograd.ir.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Traced(Box):
    """A tensor that has a spec and no value yet."""

    __slots__ = ("_spec", "number", "weak")
    fields = ("_spec", "number", "weak")

    def __init__(self, owner: Trace, spec: Spec, number: int, weak: Any = None) -> None:
        super().__init__(owner, None)
        self._spec = spec
        self.number = number
        self.weak = weak

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device."""
        return self._spec

    @property
    def array(self) -> NoReturn:
        """Refused: there is no value while a program is traced."""
        raise TraceError(
            f"the value of a tensor was asked for while tracing; it has only a spec: "
            f"{self._spec}",
            hint="rg.where(condition, a, b) in place of `if`; return it and look outside",
        )

    def _scalar(self, who: str) -> NoReturn:
        raise asked(who, self._spec)

    def __index__(self) -> NoReturn:
        raise asked("index", self._spec)

    def item(self) -> NoReturn:
        """Refused, as all that needs a value is."""
        raise asked("item", self._spec)

    def tolist(self) -> NoReturn:
        """Refused, as all that needs a value is."""
        raise asked("tolist", self._spec)

    def numpy(self) -> NoReturn:
        """Refused, as all that needs a value is."""
        raise asked("numpy", self._spec)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise asked("numpy", self._spec)

    def remake(self, f: Any) -> Traced:
        """The same value of the program."""
        return Traced(self.owner, self._spec, self.number, self.weak)

    def handle(self) -> Traced:
        """Another box of the same value of the program."""
        return self.remake(None)

    def bare(self) -> Traced:
        """A number of the program in the double precision that it has, as a tensor."""
        return Traced(self.owner, self._spec, self.number)

    def strong(self, dtype: Any = None) -> Tensor:
        """A number of the program as a tensor of this or the default dtype, as eagerly."""
        wanted = self.weak if dtype is None else dtype
        return self if self.weak is None else FUNCTIONS["astype"](self.bare(), wanted)

    shell = handle


_RANK = [bool, int, float, complex]
_WIDE = {bool: dt.bool, int: dt.int64, float: dt.float64, complex: dt.complex128}


def _is_traced(a: Any) -> bool:
    return isinstance(a, Traced)


class Trace(Interpreter):
    """Write each op down instead of running it."""

    writes = True

    def __init__(self, inputs: Sequence[Spec], outer: Interpreter) -> None:
        self.outer: Interpreter = outer
        self.inputs = list(inputs)
        self.rows: list[tuple[Op, list[Any], tuple[Spec, ...], Any, tuple[Any, ...]]] = []
        self.captured: list[Tensor] = []
        self.known: dict[int, Traced] = {}
        self.held: list[Tensor] = []
        self.constants: dict[Any, Any] = {}
        self.count = 0

    def fresh(self, spec: Spec) -> Traced:
        """A new value."""
        self.count += 1
        return Traced(self, spec, self.count - 1)

    def own(self, t: Tensor) -> Traced:
        """`t` as a value of this program: a tensor from outside becomes a hidden input."""
        if isinstance(t, Traced) and t.owner is self:
            return t
        if id(t) not in self.known:
            # what is written to a plain tensor later is seen by who runs the program later
            self.captured.append(t.handle() if isinstance(t, Box) else t)
            self.known[id(t)] = Traced(self, t.spec, -len(self.captured))
            self.held.append(t)  # so that its id stays taken
        return self.known[id(t)]

    def call(self, op: Op, args: Sequence[Any]) -> Any:
        """As everywhere; numbers among themselves stay numbers, in double precision."""
        kinds = [kind for kind in map(weak_type, args) if kind is not None]
        numbers = len(kinds) == len(args) and any(map(_is_traced, args))
        if not op.uniform or not numbers:
            return super().call(op, args)
        kind = _RANK[max(map(_RANK.index, kinds))]
        wide = _WIDE[kind]
        if op.takes in ("inexact", "floating") and kind in (bool, int):
            kind, wide = float, _WIDE[float]
        lift, astype = FUNCTIONS["lift"], FUNCTIONS["astype"]
        given = [a.bare() if _is_traced(a) else lift(a) for a in args]
        found = self.apply(op, [astype(a, wide) for a in given])
        if isinstance(found, Traced) and found.dtype == wide:
            found.weak = kind
        return found

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Work out the specs and write a row; what has no inputs is written once."""
        region = region_now.get()
        if not args and not op.effect:
            if (op, region) not in self.constants:
                self.constants[op, region] = self._write(op, args, region)
            known = self.constants[op, region]  # a handle of it, which the user may write to
            return tuple(t.handle() for t in known) if type(known) is tuple else known.handle()
        return self._write(op, args, region)

    def _write(self, op: Op, args: Sequence[Any], region: Any) -> Any:
        boxes = [self.own(a) for a in args]
        specs = op.shape(*(b.spec for b in boxes))
        several = not isinstance(specs, Spec)
        found = tuple(specs) if several else (specs,)
        outs = tuple(self.fresh(s) for s in found)
        tags = () if region is None else (("checkpoint", region),)
        self.rows.append((op, [b.number for b in boxes], found, retold.get() or here(3), tags))
        return outs if several else outs[0]


def trace(
    f: Callable[..., Any], specs: Sequence[Spec], weak: Sequence[Any] = ()
) -> tuple[Graph, list[Tensor]]:
    """f of flat tensors, as a graph; and the tensors from outside that are its last inputs.

    `weak` names for each input the type of the Python number that it stands for, or None.
    """
    tracer = Trace(specs, below())
    boxes = [tracer.fresh(s) for s in specs]
    for box, kind in zip(boxes, weak, strict=False):
        box.weak = kind
    with using(tracer):
        outs = [tracer.own(FUNCTIONS["lift"](o)) for o in f(*boxes)]
    tracer.constants.clear()
    tracer.known.clear()  # its boxes know the tracer: a cycle that would hold the captured
    given, hidden = len(specs), len(tracer.captured)
    inputs = (*specs, *(t.spec for t in tracer.captured))

    def renumber(n: int) -> int:
        # hidden inputs were counted down from -1; they stand between the inputs and the nodes
        return given - 1 - n if n < 0 else n if n < given else n + hidden

    nodes = tuple(
        Node(op, tuple(map(renumber, args)), found, where, tags)
        for op, args, found, where, tags in tracer.rows
    )
    return Graph(inputs, nodes, tuple(renumber(o.number) for o in outs)), tracer.captured


@function
@lru_cache(maxsize=1024)
def result_specs(op: Any, specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """The specs of what a composition gives, from those of its operands."""

    def flat(*xs: Any) -> Sequence[Any]:
        found = op.expand(*xs)
        return found if isinstance(found, (tuple, list)) else [found]

    return trace(flat, specs)[0].output_specs
