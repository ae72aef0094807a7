"""Derivative rules, read from their signatures: what each asks for is what is kept.

A rule's parameters are, in order: the cotangents (`g`, or `g_y, g_state` for several
outputs) or the tangents (`dx`, `dy`), then inputs and outputs by name. A name annotated
`Spec` keeps a shape and no bytes. A cotangent or tangent annotated `Tensor | None` may arrive
as None, which means zero; the others arrive as tensors.

A Recipe joins the rules of one op class for one choice of differentiated inputs: what to
keep when the op runs, and how to pull a cotangent back (or push a tangent forward) later.
Recipes are made once for each (class, choice) and are what the tape's hot loop calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.core.errors import DerivativeError, OpError
from retrograd.core.where import Where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Keep:
    """One value that a rule asks for: its place among (*inputs, *outputs)."""

    name: str
    index: int
    spec: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of an op class: the function, its leading names, and what it keeps."""

    function: Callable[..., Any]
    lead: tuple[str, ...]
    optional: tuple[bool, ...]
    keeps: tuple[Keep, ...]


class Parameter(NamedTuple):
    """One parameter of a rule, after self."""

    name: str
    spec: bool  # annotated Spec
    optional: bool  # annotated Tensor | None
    star: bool  # *xs


def parameters(function: Any) -> list[Parameter]:
    """The parameters of a method, read from its code object: inspect would cost too much."""
    code, notes = function.__code__, function.__annotations__
    names = code.co_varnames[1 : code.co_argcount]
    found = [_parameter(n, notes.get(n), star=False) for n in names]
    if code.co_flags & _VARARGS:
        star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        found.append(_parameter(star, notes.get(star), star=True))
    return found


def _parameter(name: str, note: Any, *, star: bool) -> Parameter:
    spec = note == "Spec" or getattr(note, "__name__", "") == "Spec"
    return Parameter(name, spec, optional=note is not None and "None" in str(note), star=star)


_VARARGS = 0x04  # inspect.CO_VARARGS


def read_rule(cls: Any, name: str) -> Rule | None:
    """The rule `name` of an op class, or None; OpError if it asks for what does not exist."""
    function = getattr(cls, name, None)
    if function is None:
        return None
    if not hasattr(function, "__code__"):
        raise OpError(
            f"{cls.__name__}.{name} is a field or an attribute; that name is a rule's, choose "
            f"another for it"
        )
    values = (*cls.inputs, *cls.outputs)
    lead, optional, keeps = [], [], []
    for p in parameters(function):
        if p.name in values:
            keeps.append(Keep(p.name, values.index(p.name), p.spec))
        elif not keeps and _leads(cls, name, p.name):
            lead.append(p.name)
            optional.append(p.optional)
        else:
            raise _asks_for_nothing(cls, name, p.name, function)
    return Rule(function, tuple(lead), tuple(optional), tuple(keeps))


def _leads(cls: Any, rule: str, name: str) -> bool:
    if rule.startswith("jvp"):
        return name.startswith("d") and name[1:] in cls.inputs
    return name == "g" or (name.startswith("g_") and name[2:] in cls.outputs)


def _asks_for_nothing(cls: Any, rule: str, name: str, function: Any) -> OpError:
    wanted = "d<input>" if rule.startswith("jvp") else "g"
    return OpError(
        f"{cls.__name__}.{rule} asks for `{name}`, which is neither an input of forward "
        f"({', '.join(cls.inputs)}) nor an output ({', '.join(cls.outputs)}) nor {wanted}",
        at=Where(function.__code__, 0),
        hint=f"def {rule}(self, {wanted}, ...)      a rule may name inputs and outputs; "
        f"what it names is kept for the derivative",
    )


def scale(g: Any, slope: Any) -> Any:
    """g * slope, where slope may be the plain integer 1, -1 or 0 (zero is None)."""
    if type(slope) is int:
        if slope == 1:
            return g
        if slope == 0:
            return None
        if slope == -1:
            return -g
    return g * slope


def _getter(indices: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        i = indices[0]
        return lambda values: (values[i],)
    return itemgetter(*indices)


class Recipe:
    """What one op class keeps for one choice of inputs, and how it is used later."""

    __slots__ = ("keep", "keeps", "parts")

    def __init__(self, rules: list[tuple[Any, Rule]]) -> None:
        union: list[Keep] = []
        for _, rule in rules:
            union += [k for k in rule.keeps if k not in union]
        self.keeps = tuple(union)
        fetch = _getter([k.index for k in union])
        specs = [k.spec for k in union]
        self.keep = _keeping(fetch, specs) if any(specs) else fetch
        self.parts = [
            (target, rule, rule.function, _getter([union.index(k) for k in rule.keeps]))
            for target, rule in rules
        ]


def _keeping(fetch: Any, specs: list[bool]) -> Callable[[Any], tuple[Any, ...]]:
    def keep(values: Any) -> tuple[Any, ...]:
        return tuple(
            _spec(v) if only_spec else v
            for v, only_spec in zip(fetch(values), specs, strict=True)
        )

    return keep


def _spec(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(_spec(v) for v in value)
    from_array = SPEC_OF.get(type(value))
    return from_array(value) if from_array else value.spec


SPEC_OF: dict[type, Callable[[Any], Any]] = {}  # filled by op.py for arrays and numbers


class Refusal:
    """Stands in for the rule of an input that has no derivative: says why if it is asked."""

    keeps = ()

    def __init__(self, text: str) -> None:
        self.text = text

    def keep(self, values: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def pull(self, *given: Any) -> Any:
        """Refuse."""
        raise DerivativeError(self.text, hint="rg.stop_gradient(...) if it is a constant")

    push = pull


def refusal(cls: Any, mask: int) -> Refusal | None:
    """What stands in for the rules of a class, if `mask` has an input that it refuses."""
    for i, name in enumerate(cls.inputs):
        if name in cls.refused and mask >> i & 1:
            return Refusal(f"{cls.name} has no derivative in {name}: {cls.refused[name]}")
    return None


class SlopeRecipe(Recipe):
    """Elementwise ops: one slope for each differentiated input."""

    __slots__ = ("slopes",)

    def __init__(self, rules: list[tuple[Any, Rule]]) -> None:
        super().__init__(rules)
        # a slope that asks for one value, as most do, is given it without a detour
        self.slopes = [
            (i, slope, self.keeps.index(rule.keeps[0]), None)
            if len(rule.keeps) == 1
            else (i, slope, -1, get)
            for i, rule, slope, get in self.parts
        ]

    def pull(self, op: Any, g: Any, kept: Any, count: int) -> list[Any]:
        """The cotangents of the inputs, None where not asked for."""
        out = [None] * count
        for i, slope, only, get in self.slopes:
            s = slope(op, kept[only]) if get is None else slope(op, *get(kept))
            out[i] = g * s if type(s) is not int else scale(g, s)
        return out

    def push(self, op: Any, tangents: Sequence[Any], kept: Any) -> Any:
        """The tangent of the output."""
        total = None
        for i, _, slope, get in self.parts:
            term = None if tangents[i] is None else scale(tangents[i], slope(op, *get(kept)))
            total = term if total is None else total if term is None else total + term
        return total


class PullRecipe(Recipe):
    """Ops with a vjp or transpose of their own, whole or input by input."""

    def pull(self, op: Any, g: Any, kept: Any, count: int) -> list[Any]:
        """The cotangents of the inputs, None where not asked for."""
        out: list[Any] = [None] * count
        for target, rule, function, get in self.parts:
            given = get(kept)
            if rule.keeps and op.variadic and rule.keeps[-1].index == 0:
                given = (*given[:-1], *given[-1])
            found = function(op, *op.cotangents(rule, g), *given)
            if type(target) is int:
                out[target] = found
            else:
                self._spread(op, target, found, out)
        return out

    def _spread(self, op: Any, target: tuple[int, ...], found: Any, out: list[Any]) -> None:
        moving = op.moving(len(out))
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(moving):
            raise OpError(
                f"{type(op).__name__}: its vjp returns {len(found)} cotangents for "
                f"{len(moving)} differentiable inputs; it must return one for each"
            )
        for i, c in zip(moving, found, strict=True):
            if type(c) in (int, float, complex):
                raise OpError(
                    f"{type(op).__name__}: its vjp returns the number {c} as a cotangent; it "
                    f"must be a tensor, or None for zero"
                )
            if i in target:
                out[i] = c


class JvpRecipe(Recipe):
    """Ops with a jvp of their own."""

    def push(self, op: Any, tangents: Sequence[Any], kept: Any) -> Any:
        """The tangent of the output, or one for each output."""
        ((_, rule, function, get),) = self.parts
        names = op.inputs
        args = [tangents[names.index(name[1:])] for name in rule.lead]
        return function(op, *args, *get(kept))


class LinearPush(Recipe):
    """Linear ops: the op itself, on tangents, with its fixed inputs as they were."""

    def push(self, op: Any, tangents: Sequence[Any], kept: Any) -> Any:
        """The tangent of the output."""
        given = kept[0] if op.variadic else kept  # one per input: a value or a spec
        args = [
            t if t is not None else op.zeros(v) if i in op.moving(len(tangents)) else v
            for i, (t, v) in enumerate(zip(tangents, given, strict=True))
        ]
        return op.apply(op, *args)


class MultilinearPush(Recipe):
    """Ops linear in each input apart: one term for each tangent, the others as they were."""

    def push(self, op: Any, tangents: Sequence[Any], kept: Any) -> Any:
        """The tangent of the output."""
        total = None
        for i, t in enumerate(tangents):
            if t is None:
                continue
            term = op.apply(op, *kept[:i], t, *kept[i + 1 :])
            total = term if total is None else total + term
        return total
