"""The registry is complete: each op has samples, a way to compile and a derivative."""

import importlib
import pkgutil
import re

import numpy as np
import pytest

import retrograd.ops
from retrograd.core.op import REGISTRY, Op

OURS = {name: cls for name, cls in REGISTRY.items() if cls.__module__.startswith("retrograd.")}
every_op = pytest.mark.parametrize("cls", OURS.values(), ids=OURS.keys())


def expands(cls):
    return hasattr(cls, "expand")


def test_the_registry_is_not_empty():
    assert OURS


def test_every_op_class_of_the_catalogue_is_registered():
    for module in pkgutil.walk_packages(retrograd.ops.__path__, "retrograd.ops."):
        importlib.import_module(module.name)
    finished = {cls for cls in _descendants(Op) if cls.__module__.startswith("retrograd.ops.")}
    families = {base for cls in finished for base in cls.__mro__[1:]}
    forgotten = {c.__name__ for c in finished - families} - set(REGISTRY)
    assert not forgotten, f"without @op: {sorted(forgotten)}"


def _descendants(cls):
    for child in cls.__subclasses__():
        yield child
        yield from _descendants(child)


@every_op
def test_names_agree(cls):
    assert REGISTRY[cls.__name__] is cls
    assert re.fullmatch(r"(_?[A-Z][A-Za-z0-9]*)", cls.__name__), "op classes are CamelCase"
    assert cls.__doc__, f"{cls.__name__} says nothing: one sentence, or its formula"
    assert not cls.__doc__.startswith(f"{cls.__name__}("), (
        "that is dataclass's, not a docstring"
    )


@every_op
def test_has_samples(cls, rng):
    rows = list(cls.samples(rng))
    assert rows, f"{cls.__name__}.samples(rng) yields nothing; tests and docs draw on it"
    for op, *arrays in rows:
        assert type(op) is cls
        if not cls.variadic:
            assert len(arrays) == len(cls.inputs)
        for array in arrays:
            assert isinstance(array, (np.ndarray, np.generic, bool, int, float, complex))


@every_op
def test_samples_depend_on_the_seed_alone(cls):
    once, again = (list(cls.samples(np.random.default_rng(7))) for _ in range(2))
    assert len(once) == len(again)
    for (op, *arrays), (same_op, *same_arrays) in zip(once, again, strict=True):
        assert op == same_op
        for a, b in zip(arrays, same_arrays, strict=True):
            np.testing.assert_array_equal(a, b)


@every_op
def test_refusals_come_with_their_sentence(cls, rng):
    for op, *_, sentence in cls.refuses(rng):
        assert isinstance(op, cls)
        assert isinstance(sentence, str)
        assert sentence


@every_op
def test_can_be_compiled(cls):
    lowers = callable(getattr(cls, "lower", None))
    assert lowers or expands(cls) or cls.host, (
        f"{cls.__name__} has neither lower (a kernel) nor expand (a composition) "
        f"nor host = 'why the compiled program calls NumPy'"
    )
    assert isinstance(cls.host, str), "host is the reason, in words"


@every_op
def test_is_differentiable_or_says_why_not(cls):
    assert isinstance(cls.no_derivative, str), "no_derivative is the reason, in words"
    if cls.no_derivative:
        assert not cls.rule, (
            f"{cls.__name__} has rules {sorted(cls.rule)}, and says it has none"
        )
    else:
        own = cls.reverse.__func__ is not Op.reverse.__func__  # a recipe of its own
        assert cls.rule or expands(cls) or own, (
            f"{cls.__name__} has no slope, transpose, jvp, vjp or expand; "
            f"write one, or no_derivative = 'why'"
        )
