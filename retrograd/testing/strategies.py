"""Random programs for hypothesis: whole graphs of ops, which shrink to the smallest that fails.

    @given(programs())
    def test_modes_agree(program):
        x = program.samples(rng)[0]
        ...

Needs hypothesis; `import retrograd.testing` alone does not bring it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from retrograd.autodiff.checkpoint import checkpoint
from retrograd.control.loops import While
from retrograd.core.exact import Exact
from retrograd.core.interpret import SMALL, compute
from retrograd.core.op import REGISTRY
from retrograd.core.quiet import loud, quiet
from retrograd.core.spec import spec_of
from retrograd.core.tensor import Tensor
from retrograd.ir.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec

Shape = tuple[int, ...]
Block = tuple[int, int]

# All are smooth and tame for arguments of any size, so programs may be long.
UNARY: dict[str, Callable[[Any], Any]] = {
    "tanh(a)": lambda a: a.tanh(),
    "sigmoid(a)": lambda a: a.sigmoid(),
    "exp(-a * a)": lambda a: (-(a * a)).exp(),
    "a - 1 / 2": lambda a: a - 0.5,
    "a * 3": lambda a: a * 3,
    "-a": lambda a: -a,
    "sum(a)": lambda a: a.sum(),
    "mean(a, axis=-1)": lambda a: a.mean(axis=-1, keepdims=True) if a.ndim else a,
    "a as a column": lambda a: a.reshape(-1, 1) if a.ndim == 1 else a,
    "transpose(a)": lambda a: a.mT if a.ndim == 2 else a,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * tanh(b)": lambda a, b: a * b.tanh(),
    "a / (1 + b * b)": lambda a, b: a / (1 + b * b),
    "tanh(a) @ tanh(b)": lambda a, b: a.tanh() @ b.tanh() if _meet(a, b) else a * b,
}


def _meet(a: Any, b: Any) -> bool:
    return a.ndim > 0 < b.ndim and a.shape[-1] == b.shape[-2:][0]


@dataclass(frozen=True)
class Program:
    """Steps on numbered values: the inputs first, then the result of each step."""

    shapes: tuple[Shape, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]

    def __call__(self, *xs: Any, blocks: Sequence[Block] = ()) -> Any:
        """One number: the sum of all values that no step uses.

        `blocks` are ranges of steps (start, stop), nested or apart, to run in a checkpoint.
        """
        values = self._run(list(xs), 0, len(self.steps), sorted(blocks, key=_outermost))
        used = {i for _, operands in self.steps for i in operands}
        total: Any = 0.0
        for i, value in enumerate(values):
            if i not in used:
                total = total + (value * value).sum()
        return total

    def _run(self, values: list[Any], start: int, stop: int, blocks: list[Block]) -> list[Any]:
        at = start
        while at < stop:
            block = next((b for b in blocks if b[0] == at and b[1] <= stop), None)
            if block is None:
                values = [*values, self._step(at, values)]
                at += 1
                continue
            inner = blocks[blocks.index(block) + 1 :]
            run = checkpoint(lambda vs, b=block, i=inner: self._run(vs, b[0], b[1], i))
            values, at = run(values), block[1]
        return values

    def _step(self, at: int, values: Sequence[Any]) -> Any:
        name, operands = self.steps[at]
        return (UNARY | BINARY)[name](*(values[i] for i in operands))

    def samples(self, rng: np.random.Generator, *lead: int) -> list[Tensor]:
        """Inputs in float64; `lead` axes are put in front, for vmap."""
        return [Tensor(rng.normal(size=(*lead, *s))) for s in self.shapes]

    def __repr__(self) -> str:
        """The program as one would write it."""
        n = len(self.shapes)
        lines = [f"v{i}: {s}" for i, s in enumerate(self.shapes)]
        for i, (name, operands) in enumerate(self.steps):
            given = ", ".join(f"{x} = v{j}" for x, j in zip("ab", operands, strict=False))
            lines.append(f"v{n + i} = {name} where {given}")
        return "\n".join(lines)


def _outermost(block: Block) -> tuple[int, int]:
    return block[0], -block[1]


@st.composite
def programs(draw: Any, *, max_steps: int = 12) -> Program:
    """A program of up to `max_steps` ops on one to three inputs, to one number."""
    n = draw(st.integers(1, 3))
    shapes = draw(st.lists(st.sampled_from([(), (n,), (n, n)]), min_size=1, max_size=3))
    steps: list[Any] = []
    for at in range(draw(st.integers(1, max_steps))):
        value = st.integers(0, len(shapes) + at - 1)
        name = draw(st.sampled_from([*UNARY, *BINARY]))
        steps.append((name, draw(st.tuples(*[value] * (1 if name in UNARY else 2)))))
    return Program(tuple(shapes), tuple(steps))


@st.composite
def checkpointed(draw: Any, *, max_steps: int = 12) -> tuple[Program, list[Block]]:
    """A program, and ranges of its steps to run in a checkpoint, nested or apart."""
    program = draw(programs(max_steps=max_steps))
    return program, _blocks(draw, 0, len(program.steps), depth=3)


def _blocks(draw: Any, start: int, stop: int, depth: int) -> list[Block]:
    found: list[Block] = []
    while depth and start < stop and draw(st.booleans()):
        low = draw(st.integers(start, stop - 1))
        high = draw(st.integers(low + 1, stop))
        found += [(low, high), *_blocks(draw, low, high, depth - 1)]
        start = high
    return found


# -- graphs of registered ops ----------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A graph of registered ops, and arrays that it can be run on."""

    graph: Graph
    arrays: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        """The graph as text."""
        return str(self.graph)


class Growing:
    """A graph that grows by ops that are run at once, so that only what they take is tried."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.nodes: list[tuple[Op, list[int], tuple[Spec, ...]]] = []
        self.values: list[tuple[int, np.ndarray]] = []  # inputs count down from -1
        self.made = 0

    def given(self, array: Any) -> int:
        """A new input."""
        self.arrays.append(np.asarray(array))
        self.values.append((-len(self.arrays), self.arrays[-1]))
        return len(self.values) - 1

    def add(self, op: Op, used: Sequence[int]) -> bool:
        """A new node on values, if the op takes them."""
        token = quiet()
        try:
            out = compute(op, [self.values[i][1] for i in used])
        except Exception:  # noqa: BLE001 - an op may refuse in any words
            return False
        finally:
            loud(token)
        outs = [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]
        specs = tuple(map(spec_of, outs))
        self.nodes.append((op, [self.values[i][0] for i in used], specs))
        self.values += [(self.made + i, o) for i, o in enumerate(outs)]
        self.made += len(outs)
        return True

    def case(self) -> Case:
        """The graph; its outputs are the results that nothing uses."""
        first = len(self.arrays)
        nodes = [
            Node(op, tuple(-1 - i if i < 0 else first + i for i in used), specs)
            for op, used, specs in self.nodes
        ]
        used = {i for node in nodes for i in node.inputs}
        outputs = [i for i in range(first, first + self.made) if i not in used]
        inputs = tuple(map(spec_of, self.arrays))
        return Case(Graph(inputs, tuple(nodes), tuple(outputs)), tuple(self.arrays))


@st.composite
def graphs(draw: Any, *, max_nodes: int = 8, keep: Callable[[Any], bool] = bool) -> Case:
    """A graph of samples of the registered ops that `keep` chooses by their class.

    Each op works on values made before where they have the spec that its sample has and the
    op takes them; otherwise on the sample's arrays, as new inputs or as literals. A while loop
    works on its sample's arrays alone: on others it might never end.
    """
    rows, growing = _rows(keep), Growing()
    for _ in range(draw(st.integers(1, max_nodes))):
        op, *arrays = rows[draw(st.integers(0, len(rows) - 1))]
        if isinstance(op, While):
            growing.add(op, [growing.given(a) for a in arrays])
            continue
        used = [_operand(draw, growing, np.asarray(a)) for a in arrays]
        if not growing.add(op, used):
            growing.add(op, [growing.given(a) for a in arrays])
    return growing.case()


def _operand(draw: Any, growing: Growing, array: np.ndarray) -> int:
    fits = [i for i, (_, v) in enumerate(growing.values) if spec_of(v) == spec_of(array)]
    choice = draw(st.sampled_from([*fits, "input", "literal"]))
    if choice == "literal" and array.size <= SMALL:
        growing.add(REGISTRY["Literal"](Exact(array)), [])
        return len(growing.values) - 1
    return choice if isinstance(choice, int) else growing.given(array)


@cache
def _rows(keep: Callable[[Any], bool]) -> list[Any]:
    kinds = [c for c in REGISTRY.values() if c.__module__.startswith("retrograd.") and keep(c)]
    return [row for kind in kinds for row in kind.samples(np.random.default_rng(7))]
