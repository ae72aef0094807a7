"""rg.jit: a Python function of tensors as one native call."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core import tree
from retrograd.core.errors import ArgumentError, BudgetError, TraceError
from retrograd.core.interpret import EVAL, PURE, EvalTape, Watcher, current, using
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.ir.trace import trace
from retrograd.jit import eager_slot
from retrograd.jit.calls import Bound, Compiled
from retrograd.jit.derivative import Derivatives
from retrograd.jit.passes.watch import watch
from retrograd.jit.results import Results
from retrograd.jit.signature import ABSENT, Call, Reader, described, differs, rebuilt
from retrograd.jit.threads import MAX_THREADS
from retrograd.memory.sizes import bytes_of, room_for_loops
from retrograd.memory.spill import directory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.explain import Explanation

__all__ = ["Bound", "Compiled", "Jitted", "Lowered", "jit"]

eager_slot.register()
SHARES = (2, 4, 8, 16, 64)  # of a budget, for the carries of loops: one part in so many
OFTEN = 8  # programs of one function: more are worth a warning
_NUMBERS = (int, float, complex)
_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def jit(
    f: Callable[..., Any] | None = None,
    *,
    donate: Sequence[str] | str = (),
    static: Sequence[str] | str = (),
    threads: int | None = None,
    budget: Any = None,
    spill: Any = False,
    fast_math: bool = False,
) -> Any:
    """Compile a function: traced once for each signature, then one native call.

    The signature is the structure of the arguments, shapes, dtypes and static values. Tensors
    and Python numbers are data; strings, bools, None and other hashable objects are static,
    and so are the arguments named in `static`. Tensors that the function closes over are
    hidden arguments. What is made of Python numbers alone is a Python number again.

    The memory of arguments named in `donate` is used for the results; their tensors cannot be
    used afterwards. `threads`: how many it runs on, else what `rg.set_threads` says.
    `budget`: the bytes that a call may take, an int or text such as "256 MiB": all that it
    makes, results too, but not the arguments. Values are then computed again where that
    saves memory, with the same bits; if nothing fits, `BudgetError` says what would. With
    `spill`, True or a directory, values may also go to a file and come back.
    `fast_math`: results may differ from eager ones in the last places (docs/compiler.md says
    how); otherwise every operation is rounded by itself, as IEEE 754 has it.

        @rg.jit(donate=("model", "state"))
        def step(model, state, batch): ...

    On a tape (in `rg.grad` and `rg.vjp`, or with an argument that requires a gradient) it is
    one op, whose forward and backward are compiled. Inside of jvp, vmap, second derivatives
    and other jitted functions it is the plain function, and they transform that: jit the
    outermost one. In `rg.debug.nans()` the program looks at each of its values.
    """
    if budget is not None:
        budget = bytes_of("jit", budget)
    place = directory_of("jit", spill)
    options = _Options(_names(donate), _names(static), threads, fast_math, budget, place)
    return functools.partial(Jitted, options=options) if f is None else Jitted(f, options)


class _Options(NamedTuple):
    donate: frozenset[str]
    static: frozenset[str]
    threads: int | None
    fast_math: bool
    budget: int | None = None
    spill: str | None = None


def _names(given: Sequence[str] | str) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


class Jitted:
    """A function that compiles itself when it is called."""

    def __init__(self, f: Callable[..., Any], options: _Options) -> None:
        self.donate, self.static, self.threads, self.fast_math, self.budget, self.spill = (
            options
        )
        if not callable(f):
            raise ArgumentError(
                f"jit: it takes a function; got a {type(f).__name__}",
                hint="rg.jit(f, static=('n',))      options go by keyword",
            )
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise ArgumentError(
                f"jit: threads must be from 1 to {MAX_THREADS}; got {self.threads}"
            )
        functools.update_wrapper(self, f)
        self.function = f
        self.who = getattr(f, "__name__", type(f).__name__)
        self.signature = inspect.signature(f)
        self.programs: dict[tuple[Any, ...], Compiled] = {}
        self.traces = 0
        self.derivatives = Derivatives(self)
        # what was called last is called next
        self._last: tuple[list[Any], Any] = ([None], None)
        self._again: tuple[Any, Any] = (None, None)
        self._lock = threading.RLock()
        self._check_names()
        found = self.signature.parameters.values()
        # A number that is not given is an option, such as an axis: the function's own.
        self._defaults = {
            p.name: ABSENT if type(p.default) in _NUMBERS else p.default for p in found
        }
        self._plain = all(p.kind in _PLAIN for p in found)
        only = inspect.Parameter.POSITIONAL_ONLY
        self._by_name = not any(p.kind is only for p in found)

    def _check_names(self) -> None:
        for name in sorted(self.donate | self.static):
            if name not in self.signature.parameters:
                raise ArgumentError(
                    f"jit: {self.who} has no argument {name!r}; "
                    f"it has {', '.join(self.signature.parameters) or 'none'}"
                )
        for name in sorted(self.donate & self.static):
            raise ArgumentError(f"jit: {name} is static, so it has no memory to donate")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: bound to its object, like any function."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; compile first where this signature is new."""
        level = current.get()
        if level is not EVAL and level is not PURE:
            return self._within(level, args, kwargs)
        usual = len(args) == len(self._defaults) and not kwargs
        read_again, program = self._again
        if read_again is not None and usual:
            known = read_again(*args)
            if known is not None:
                return program.fly(*known)
        given = self.arguments(args, kwargs)
        read = self.read(given)
        if read.boxed:
            return self.function(*args, **kwargs)
        if level is EVAL and read.tracked:
            return self._recorded(read, given, args, kwargs)
        program = self.find(read.key, given)
        if level is EVAL and program.tracked:
            return self._recorded(read, given, args, kwargs)
        if usual and self._plain and not self.static and not program.tracked:
            self._again = program.shortcut(args), program
        return program.run(read.data, read.arrays)

    def _within(self, level: Any, args: Any, kwargs: Any) -> Any:
        """The call at other levels: on a tape of values, watched, or the plain function."""
        tape = isinstance(level, EvalTape)
        watched = isinstance(level, Watcher) and level.compiles and level.outer in (EVAL, PURE)
        if not tape and not watched:
            return self.function(*args, **kwargs)
        given = self.arguments(args, kwargs)
        read = self.read(given)
        if tape and not read.boxed:
            return self._recorded(read, given, args, kwargs)
        if watched and not read.boxed:
            program = self.find([*read.key, type(level)], given, level)
            if level.outer is PURE or not (read.tracked or program.tracked):
                return program.run(read.data, read.arrays)
        return self.function(*args, **kwargs)

    def _recorded(self, read: Reader, given: Any, args: Any, kwargs: Any) -> Any:
        """The call as one op of a tape; the plain function where that cannot be."""
        found = self.derivatives.find(read, given)
        return found(read.data, read.arrays) if found else self.function(*args, **kwargs)

    # -- signatures --------------------------------------------------------------------------

    def arguments(self, args: Any, kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """All arguments with their names, in the order of the signature."""
        names = self._defaults
        if self._plain and len(args) == len(names) and not kwargs:
            return list(zip(names, args, strict=True))
        if self._plain and self._by_name and len(args) + len(kwargs) <= len(names):
            found = {**names, **dict(zip(names, args, strict=False)), **kwargs}
            twice = any(name in kwargs for name in list(names)[: len(args)])
            known = len(found) == len(names) and not twice
            if known and not any(v is inspect.Parameter.empty for v in found.values()):
                return list(found.items())
        bound = self.signature.bind(*args, **kwargs)
        named = set(bound.arguments)
        bound.apply_defaults()
        return [
            (n, ABSENT if n not in named and names[n] is ABSENT else v)
            for n, v in bound.arguments.items()
        ]

    def read(self, given: Sequence[tuple[str, Any]]) -> Reader:
        """The key and the data of arguments."""
        reader, static = Reader(self.who), self.static
        for name, value in given:
            reader.name = name
            if value is ABSENT:
                reader.key.append(ABSENT)
            elif name in static:
                reader.option(value)
            else:
                reader.argument(value)
        return reader

    def find(
        self, key: list[Any], given: Sequence[tuple[str, Any]], watcher: Any = None
    ) -> Compiled:
        """The program for a signature, compiled if there is none yet."""
        last, program = self._last
        if key == last:
            return program
        found = self.programs.get(tuple(key))
        if found is None:
            found = self._new(key, given, watcher)
        self._last = (key, found)
        return found

    def _new(self, key: list[Any], given: Sequence[tuple[str, Any]], watcher: Any) -> Compiled:
        with self._lock:
            known = tuple(key)
            if known not in self.programs:
                call = described(key, given, self.static, self.donate)
                self.programs[known] = self._fitting(call, watcher)
                self._warn()
            return self.programs[known]

    def _fitting(self, call: Call, watcher: Any) -> Compiled:
        """A program; where none fits the budget, one whose loops keep fewer carries."""
        try:
            return self.trace(call, watcher).compile()
        except BudgetError as error:
            assert self.budget is not None
            for part in SHARES:
                token = room_for_loops.set(self.budget // part)
                try:
                    lowered = self.trace(call, watcher)
                    if any(n.op.bodied for n in lowered.graph.nodes):
                        return lowered.compile()
                except BudgetError:
                    continue
                finally:
                    room_for_loops.reset(token)
            raise error from None

    def _warn(self) -> None:
        if len(self.programs) == OFTEN:
            *_, a, b = self.programs.values()
            warnings.warn(
                f"{self.who} was compiled for {OFTEN} signatures; of the last two "
                f"{differs(a.call, b.call)}. Fewer shapes, or tensors and numbers in place of "
                f"static values, would save time",
                stacklevel=5,
            )

    # -- ahead of time -----------------------------------------------------------------------

    def trace(self, call: Call, watcher: Any = None) -> Lowered:
        """The graph for arguments that were described; a watcher looks on after each op."""
        self.traces += 1
        results: list[Results] = []

        def flat(*boxes: Any) -> list[Any]:
            given = rebuilt(call, boxes)
            bound = inspect.BoundArguments(self.signature, given)  # type: ignore[arg-type]
            bound.apply_defaults()  # of numbers that nobody gave
            results.append(Results(self.function(*bound.args, **bound.kwargs)))
            return results[0].data

        specs = [x.spec for x in call.leaves if x.spec is not None]
        with using(PURE):
            graph, captured = trace(flat, specs, [x.weak for x in call.data])
        for t in captured:
            if isinstance(t, Box):
                raise TraceError(
                    f"{self.who}: it uses a tensor {t.spec} of another transform, which has "
                    f"ended; return it from there, and make it an argument here"
                )
        if watcher is not None:
            graph = watch(graph, watcher.looker)
        return Lowered(self, call, graph, captured, results[0])

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace for these arguments, or specs in their place; `.compile()` makes it runnable.

        >>> double = rg.jit(lambda x: 2 * x)
        >>> run = double.lower(rg.Spec((3,), rg.float32)).compile()
        >>> run(rg.ones(3))
        tensor([2., 2., 2.])
        """
        made = [tree.map(_stand_in, a) for a in args]
        named = {k: tree.map(_stand_in, v) for k, v in kwargs.items()}
        given = self.arguments(made, named)
        key = self.read(given).key
        return self.trace(described(key, given, self.static, self.donate))

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How the program for these arguments runs: passes, kernels, times, memory.

        It runs a few times to be measured, once if it has effects; nothing is donated.
        `print` shows it, `.save("page.html")` draws it.
        """
        from retrograd.jit.explain import explain  # noqa: PLC0415  it loads llvmlite

        made = [tree.map(_stand_in, a) for a in args]
        named = {k: tree.map(_stand_in, v) for k, v in kwargs.items()}
        given = self.arguments(made, named)
        read = self.read(given)
        return explain(self.find(read.key, given), read.arrays)

    def bind(self, *args: Any) -> Bound:
        """The function of the other arguments, with the leading ones fixed.

        They are read once, so that a call costs what its other arguments cost.
        """
        return Bound(self, args)

    def __repr__(self) -> str:
        """Its name and how many programs it has."""
        return f"<jit {self.who}: {len(self.programs)} programs>"


def _stand_in(x: Any) -> Any:
    # one zero that stands for them all: only its spec is read
    return Tensor(np.broadcast_to(np.zeros((), x.dtype), x.shape)) if isinstance(x, Spec) else x


class Lowered:
    """A traced function: its graph, and the tensors from outside that it uses."""

    def __init__(
        self, f: Jitted, call: Call, graph: Graph, captured: list[Tensor], results: Results
    ) -> None:
        self.f, self.call, self.graph = f, call, graph
        self.captured, self.results = captured, results

    def compile(self) -> Compiled:
        """Machine code."""
        return Compiled(self)

    def __str__(self) -> str:
        """The graph as text."""
        return str(self.graph)
