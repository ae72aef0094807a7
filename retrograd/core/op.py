"""Op and its families: an op is a value, all of its rules stand in one block.

    @op
    class Softplus(Elementwise):
        '''log(1 + exp(x)), without overflow.'''

        def forward(self, x):      # NumPy: the eager path, and the oracle for `lower`
            return np.logaddexp(x, 0)

        def slope(self, x):        # dy/dx, written once: jvp and vjp both follow from it
            return sigmoid(x)

        def lower(self, k, x):     # the kernel, against core.kernel.Kernel
            return k.maximum(x, 0) + k.log1p(k.exp(-k.abs(x)))

Families, by how their derivative is written: `Elementwise` (slope), `Linear` (transpose),
`Multilinear` (transpose_<input>), `Composite` (expand), and plain `Op` (jvp and vjp).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rules
from retrograd.core.errors import DtypeError, OpError
from retrograd.core.quiet import loud, quiet
from retrograd.core.spec import Spec, broadcast_shapes, spec_of
from retrograd.core.value import Value, read_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrograd.core.rules import Recipe, Rule

T = TypeVar("T")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
REGISTRY: dict[str, type[Op]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
rules.SPEC_OF.update(
    {
        np.ndarray: spec_of,
        bool: lambda v: Spec((), dt.bool),
        int: lambda v: Spec((), dt.int64),
        float: lambda v: Spec((), dt.float32),
        complex: lambda v: Spec((), dt.complex64),
    }
)
_DTYPES: dict[str, tuple[np.dtype, ...]] = {
    "any": dt.ALL,
    "numeric": (*dt.INTEGERS, *dt.FLOATS, *dt.COMPLEX),
    "real": (dt.bool, *dt.INTEGERS, *dt.FLOATS),
    "integral": (dt.bool, *dt.INTEGERS),
    "inexact": (*dt.FLOATS, *dt.COMPLEX),
    "floating": dt.FLOATS,
    "bool": (dt.bool,),
}
_TAKES = {word: frozenset(dtypes) for word, dtypes in _DTYPES.items()}


class Op(Value):
    """An operation on tensors. Fields are static options; tensors are arguments."""

    name: ClassVar[str]  # snake case of the class name; errors and graphs use it
    inputs: ClassVar[tuple[str, ...]]  # the parameters of forward
    outputs: ClassVar[tuple[str, ...]] = ("out",)  # ("*pieces",): as many as shape says
    fixed: ClassVar[tuple[str, ...]] = ()  # inputs that are never differentiated
    variadic: ClassVar[bool] = False  # forward(self, *xs)
    uniform: ClassVar[bool] = False  # the inputs that are not fixed meet in one dtype
    takes: ClassVar[str] = "any"  # which dtypes; integers become floats where they must
    no_derivative: ClassVar[str] = ""  # the reason, where there is none
    refused: ClassVar[dict[str, str]] = {}  # inputs that have none, each with the reason
    effect: ClassVar[str] = ""  # "ordered": never merged, removed, duplicated or replayed
    host: ClassVar[str] = ""  # why a compiled program calls NumPy for it
    native: ClassVar[str] = ""  # the kernels that a compiled program has for it
    quicker: ClassVar[bool] = False  # they are than the library: eager mode takes them too
    saves: ClassVar[bool] = False  # `save` gives (outputs, residuals) in place of keeps
    bodied: ClassVar[bool] = False  # runs ops of its own: they widen half, they refuse
    draws: ClassVar[bool] = False  # random numbers, from keys
    finishes: ClassVar[bool] = False  # its kernels take an epilogue, for each result
    view: ClassVar[bool] = False  # NumPy's result is a view of memory that is there
    reads: ClassVar[int] = 1  # how often its kernel reads an element, for each that it writes
    grows: ClassVar[bool] = False  # its result may be heavy where its operands are not
    hot: ClassVar[bool] = False  # one output, fixed number of inputs: the short way to NumPy
    rule: ClassVar[dict[str, Rule]] = {}
    _pulls: ClassVar[dict[int, Any]] = {}
    _pushes: ClassVar[dict[int, Any]] = {}
    apply: ClassVar[Callable[..., Any]]  # the seam; interpret.py puts it here

    shape: ClassVar[Callable[..., Any]]  # spec in, spec out; refuses bad operands by name
    forward: ClassVar[Callable[..., Any]]  # NumPy in, NumPy out

    def twin(self) -> Op | None:
        """The op whose result, on all inputs but the first, is the first output here too."""
        return None

    def workspace(self, *specs: Spec) -> int:
        """Bytes that forward needs beyond its result."""
        return 0

    @staticmethod
    def samples(rng: Any) -> Iterator[tuple[Any, ...]]:
        """Valid inputs (op, *arrays): tests, docs and benchmarks draw on them."""
        return iter(())

    @staticmethod
    def refuses(rng: Any) -> Iterator[tuple[Any, ...]]:
        """Bad inputs (op, *arrays, sentence): what is refused, and in which words."""
        return iter(())

    # -- what the engine asks of every op ---------------------------------------------

    @classmethod
    def moving(cls, count: int) -> tuple[int, ...]:
        """Positions of the inputs that may be differentiated, of `count` inputs."""
        if cls.variadic:
            return tuple(range(count))
        return tuple(i for i, name in enumerate(cls.inputs) if name not in cls.fixed)

    def cotangents(self, rule: Rule, g: Any) -> Sequence[Any]:
        """The cotangents that a rule's leading names ask for."""
        if len(self.outputs) == 1:
            return (g,)
        if rule.lead == ("g",):
            return (g[0],)
        return [g[self.outputs.index(name[2:])] for name in rule.lead]

    def optional(self, rule: Rule) -> set[int]:
        """Positions of the outputs whose missing cotangent a rule takes as None."""
        names = [n for n, may in zip(rule.lead, rule.optional, strict=True) if may]
        return {self.outputs.index(n[2:]) if n != "g" else 0 for n in names}

    @staticmethod
    def zeros(spec: Any) -> Any:
        """A zero tangent for `spec`."""
        return FUNCTIONS["zeros"](spec.shape, dtype=spec.dtype)

    def coerce(self, args: Sequence[Any]) -> Sequence[Any]:
        """Arguments as tensors; of one dtype that the op takes, where it is uniform."""
        lift = FUNCTIONS["lift"]
        if not self.uniform:
            return [lift(a) for a in args]
        moving = self.moving(len(args))
        args = [a if weak_type(a) and i in moving else lift(a) for i, a in enumerate(args)]
        common = self._common([args[i] for i in moving])
        return [_cast(self.name, a, common) if i in moving else a for i, a in enumerate(args)]

    def _common(self, args: Sequence[Any]) -> np.dtype:
        dtypes = [a.dtype for a in args if weak_type(a) is None]
        common = dt.promote(self.name, *dtypes) if dtypes else None
        for a in args:
            kind = weak_type(a)
            if kind is not None:
                common = dt.of_number(kind(1), common)
        assert common is not None
        if self.takes in ("inexact", "floating") and not dt.is_inexact(common):
            return dt.float32
        if common not in _TAKES[self.takes]:
            raise DtypeError(
                f"{self.name}: got {common}; it takes {self.takes} dtypes: "
                f"{', '.join(map(str, _DTYPES[self.takes]))}"
            )
        return common

    # -- recipes, made once for each class and choice of inputs ------------------------

    @classmethod
    def reverse(cls, mask: int) -> Any:
        """How to pull cotangents back to the inputs in `mask`; None if only a jvp is known."""
        if mask not in cls._pulls:
            cls._pulls[mask] = rules.refusal(cls, mask) or cls._reverse(mask)
        return cls._pulls[mask]

    @classmethod
    def ahead(cls, mask: int) -> Any:
        """How to push tangents of the inputs in `mask` ahead; None if only a vjp is known."""
        if mask not in cls._pushes:
            cls._pushes[mask] = rules.refusal(cls, mask) or cls._ahead(mask)
        return cls._pushes[mask]

    @classmethod
    def _reverse(cls, mask: int) -> Recipe | None:
        for name in ("vjp", "transpose"):
            if name in cls.rule:
                chosen = tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
                return rules.PullRecipe([(chosen, cls.rule[name])])
            parts = [(i, cls.rule.get(f"{name}_{n}")) for i, n in enumerate(cls.inputs)]
            if any(r for _, r in parts):
                return rules.PullRecipe([(i, r) for i, r in parts if r and mask >> i & 1])
        return None

    @classmethod
    def _ahead(cls, mask: int) -> Recipe | None:
        return rules.JvpRecipe([(None, cls.rule["jvp"])]) if "jvp" in cls.rule else None


class Elementwise(Op):
    """Element by element with broadcasting: `slope`, or `slope_<input>` for several inputs.

    A slope may be the plain integer 1, -1 or 0. The engine sums over broadcast axes.
    """

    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "numeric"

    def shape(self, *specs: Spec) -> Spec:
        """Broadcasting; the result has the dtype of the inputs that are not fixed."""
        shapes = {n: s.shape for n, s in zip(self.inputs, specs, strict=True)}
        return specs[self.moving(len(specs))[0]].with_shape(
            broadcast_shapes(self.name, **shapes)
        )

    @classmethod
    def _slopes(cls, mask: int) -> rules.SlopeRecipe | None:
        names = ["slope"] if "slope" in cls.rule else [f"slope_{n}" for n in cls.inputs]
        parts = [(i, cls.rule.get(n)) for i, n in enumerate(names)]
        if not any(r for _, r in parts):
            return None
        return rules.SlopeRecipe([(i, r) for i, r in parts if r and mask >> i & 1])

    @classmethod
    def _reverse(cls, mask: int) -> Recipe | None:
        return cls._slopes(mask) or super()._reverse(mask)

    @classmethod
    def _ahead(cls, mask: int) -> Recipe | None:
        return cls._slopes(mask) or super()._ahead(mask)

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
        """Put the mapped axis before the longest shape, then broadcast as always."""
        return self.apply(self, *aligned(size, args, mapped))


class Linear(Op):
    """Linear in its inputs together: `transpose` is written, the jvp is the op itself.

    Where conj(transpose(conj(g), x)) of complex numbers is as easy, `adjoint(g, x)` says it.
    """

    adjoint: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def _ahead(cls, mask: int) -> Recipe | None:
        if cls.variadic:
            keeps = [rules.Keep(cls.inputs[0], 0, spec=True)]
        else:
            keeps = [rules.Keep(n, i, n not in cls.fixed) for i, n in enumerate(cls.inputs)]
        return rules.LinearPush([(None, rules.Rule(cls.forward, (), (), tuple(keeps)))])


class Multilinear(Op):
    """Linear in each input apart: `transpose_<input>` is written, the jvp follows."""

    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "numeric"

    @classmethod
    def _ahead(cls, mask: int) -> Recipe | None:
        lone = mask & (mask - 1) == 0
        keeps = [
            rules.Keep(n, i, spec=lone and bool(mask >> i & 1))
            for i, n in enumerate(cls.inputs)
        ]
        return rules.MultilinearPush([(None, rules.Rule(cls.forward, (), (), tuple(keeps)))])


class Composite(Op):
    """A composition of other ops under one name: `expand` is written, all else follows."""

    expand: ClassVar[Callable[..., Any]]  # the result, in ops
    fused: ClassVar[bool] = False  # as one kernel it beats a forward that is written apart
    whole: ClassVar[bool] = False  # a function of the user's face, which is no op elsewhere


@dataclass_transform(frozen_default=True)
def op(cls: type[T]) -> type[T]:
    """Register an op class: freeze it, read its rules, make it the only one of its name."""
    known = REGISTRY.get(cls.__name__)
    if known is not None and known.__module__ != cls.__module__:
        raise OpError(
            f"{cls.__name__} is the name of an op of {known.__module__}; "
            f"op names are unique, choose another"
        )
    prepare(cls)
    REGISTRY[cls.__name__] = cls  # type: ignore[assignment]
    return cls


_PARTS = frozenset(
    {"adjoint", "batch", "expand", "forward", "jvp", "lower", "save", "shape", "slope", "vjp"}
)


def prepare(cls: Any) -> Any:
    """Read the signatures of an op class, once; the part of `op` that does not register."""
    for needed in ("expand",) if issubclass(cls, Composite) else ("shape", "forward"):
        if not hasattr(cls, needed):
            raise OpError(f"{cls.__name__} has no {needed}; write def {needed}(self, ...)")
    cls.name = cls.__dict__.get("name") or _WORDS.sub("_", cls.__name__).lower()
    source = cls.expand if issubclass(cls, Composite) else cls.forward
    read_fields(cls)
    for taken in _PARTS.intersection(cls.fields):
        raise OpError(
            f"{cls.__name__} has a field {taken}; that is a rule's name, choose another"
        )
    parameters = rules.parameters(source)
    cls.inputs = tuple(p.name for p in parameters)
    cls.variadic = any(p.star for p in parameters)
    names = ["jvp", "vjp", "slope", "transpose"]
    names += [f"{r}_{n}" for r in ("vjp", "slope", "transpose") for n in cls.inputs]
    found = {name: rules.read_rule(cls, name) for name in names}
    cls.rule = {name: rule for name, rule in found.items() if rule is not None}
    cls._pulls, cls._pushes = {}, {}
    single = len(cls.outputs) == 1 and not cls.outputs[0].startswith("*")
    slow = cls.variadic or cls.saves or cls.grows or issubclass(cls, Composite)
    cls.hot = single and not slow
    return cls


def aligned(size: int, args: Sequence[Any], mapped: Sequence[bool]) -> list[Any]:
    """Operands with the mapped axis before the longest shape, so that all broadcast."""
    ndim = max(a.ndim - m for a, m in zip(args, mapped, strict=True))
    reshape = FUNCTIONS["reshape"]
    return [
        reshape(a, (size, *(1,) * (ndim + 1 - a.ndim), *a.shape[1:])) if m else a
        for a, m in zip(args, mapped, strict=True)
    ]


def front(size: int, args: Sequence[Any], mapped: Sequence[bool]) -> list[Any]:
    """All operands with the mapped axis in front; those that are not mapped are repeated."""
    repeat = FUNCTIONS["broadcast_to"]
    return [a if m else repeat(a, (size, *a.shape)) for a, m in zip(args, mapped, strict=True)]


def function(f: Any) -> Any:
    """Publish a function under its own name, for operators, methods and NumPy's protocols."""
    FUNCTIONS[f.__name__] = f
    return f


def weak_type(a: Any) -> type | None:
    """Python's type of a number, or of one that a program takes as an argument; else None."""
    kind = type(a)
    return kind if kind in dt._PYTHON else getattr(a, "weak", None)


def _cast(who: str, a: Any, dtype: np.dtype) -> Any:
    if type(a) in dt._PYTHON:
        token = quiet()
        try:
            return FUNCTIONS["constant"](np.asarray(a, dtype))
        except OverflowError as error:
            raise DtypeError(f"{who}: {a} does not fit in {dtype}") from error
        finally:
            loud(token)
    if a.weak is not None:
        a = a.bare()
    return a if a.dtype == dtype else FUNCTIONS["astype"](a, dtype)
