"""The Trace interpreter: run Python once, get a Graph.

Tensors from outside that the function uses are not part of the code: each becomes a hidden
input of the graph, and trace returns them beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from retrograd.core.errors import TraceError
from retrograd.core.interpret import Interpreter, below, using
from retrograd.core.op import FUNCTIONS, Op
from retrograd.core.replay import region_now
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.core.where import here
from retrograd.ir.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Traced(Box):
    """A tensor that has a spec and no value yet."""

    __slots__ = ("_spec", "number")
    fields = ("_spec", "number")

    def __init__(self, owner: Trace, spec: Spec, number: int) -> None:
        super().__init__(owner, None)
        self._spec = spec
        self.number = number

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

    def remake(self, f: Any) -> Traced:
        """The same value of the program."""
        return Traced(self.owner, self._spec, self.number)

    def handle(self) -> Traced:
        """Another box of the same value of the program."""
        return self.remake(None)

    shell = handle


class Trace(Interpreter):
    """Write each op down instead of running it."""

    def __init__(self, inputs: Sequence[Spec], outer: Interpreter) -> None:
        self.outer: Interpreter = outer
        self.inputs = list(inputs)
        self.rows: list[tuple[Op, list[Any], tuple[Spec, ...], Any, tuple[Any, ...]]] = []
        self.captured: list[Tensor] = []
        self.known: dict[int, Traced] = {}
        self.held: list[Tensor] = []
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
            self.captured.append(t.handle())
            self.known[id(t)] = Traced(self, t.spec, -len(self.captured))
            self.held.append(t)  # so that its id stays taken
        return self.known[id(t)]

    def apply(self, op: Op, args: Sequence[Any]) -> Any:
        """Work out the specs and write a row."""
        boxes = [self.own(a) for a in args]
        specs = op.shape(*(b.spec for b in boxes))
        several = not isinstance(specs, Spec)
        found = tuple(specs) if several else (specs,)
        outs = tuple(self.fresh(s) for s in found)
        region = region_now.get()
        tags = () if region is None else (("checkpoint", region),)
        self.rows.append((op, [b.number for b in boxes], found, here(2), tags))
        return outs if several else outs[0]


def trace(f: Callable[..., Any], specs: Sequence[Spec]) -> tuple[Graph, list[Tensor]]:
    """f of flat tensors, as a graph; and the tensors from outside that are its last inputs."""
    tracer = Trace(specs, below())
    boxes = [tracer.fresh(s) for s in specs]
    with using(tracer):
        outs = [tracer.own(FUNCTIONS["lift"](o)) for o in f(*boxes)]
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
