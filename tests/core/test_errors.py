"""Errors: one class for each thing a caller can do about it, and the user's own line."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import errors

BUILTIN = {
    "ShapeError": ValueError,
    "DtypeError": TypeError,
    "ArgumentError": ValueError,
    "BoundsError": IndexError,
    "DerivativeError": ValueError,
    "TraceError": TypeError,
    "AliasError": RuntimeError,
    "OpError": TypeError,
}
OURS = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, errors.RetrogradError)
]


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_the_tree_of_errors(cls):
    """All are RetrogradErrors, public, documented, drawn in the module's docstring."""
    assert getattr(rg, cls.__name__) is cls
    assert cls.__doc__
    if cls is not errors.RetrogradError:
        assert f"── {cls.__name__}" in errors.__doc__
        assert any(b.__module__ == "builtins" and b is not Exception for b in cls.__mro__[:4])
    if cls.__name__ in BUILTIN:
        assert issubclass(cls, BUILTIN[cls.__name__])


def test_a_message_has_three_lines():
    """What is wrong; at the user's line; try a line that works."""
    error = rg.ShapeError("f: this is wrong", hint="y = f(x)")
    first, at, tried = str(error).split("\n")
    assert first == "f: this is wrong"
    assert at.startswith("  at  test_errors.py:")
    assert "rg.ShapeError(" in at
    assert tried == "  try y = f(x)"
    assert (error.message, error.hint) == ("f: this is wrong", "y = f(x)")


def line_of(error):
    return str(error.value).split("  at  ")[1].split("\n")[0]


def test_errors_point_at_the_user_s_line():
    """Not at ours: forward, at the op; backward, at the op that was recorded."""
    with pytest.raises(rg.ShapeError) as caught:
        rg.ones((2, 3)) @ rg.ones((4, 5))  # here forward
    assert "here forward" in line_of(caught)
    x = rg.tensor(np.ones(2), requires_grad=True)
    y = x * x  # here recorded
    rg.sum(y).backward()
    with pytest.raises(rg.DerivativeError) as caught:
        rg.sum(y).backward()
    assert "here recorded" in line_of(caught)
    with pytest.raises(rg.ShapeError) as caught:
        rg.vmap(rg.grad(lambda x: rg.sum(x @ rg.ones(9))))(rg.ones((2, 3)))  # here mapped
    assert "here mapped" in line_of(caught)


def test_the_inner_cause_is_kept():
    """NumPy's own words stay behind ours."""
    with pytest.raises(rg.ShapeError) as caught:
        rg.ones(2) + rg.ones(3)
    assert isinstance(caught.value.__cause__, ValueError)


def test_errors_can_be_caught_as_python_s():
    """Who catches ValueError, TypeError or IndexError catches ours."""
    for builtin, wrong in (
        (ValueError, lambda: rg.ones(2) + rg.ones(3)),
        (ValueError, lambda: rg.sum(rg.ones(2), axis=5)),
        (TypeError, lambda: rg.tensor([1], requires_grad=True)),
        (IndexError, lambda: rg.arange(3)[7]),
        (ValueError, lambda: rg.ones(()).backward()),
        (TypeError, lambda: rg.vmap(float)(rg.ones(2))),
    ):
        with pytest.raises(builtin):
            wrong()
        with pytest.raises(rg.RetrogradError):
            wrong()


def test_errors_survive_copying_and_pickling():
    """Worker processes send their errors home."""
    import copy
    import pickle

    error = rg.ShapeError("f: wrong", hint="y = f(x)")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is rg.ShapeError
        assert str(again) == str(error)


WORDS = ("invalid", "unexpected", "failed to", "sorry", "illegal")


def test_messages_say_what_is_and_what_should_be():
    """No message of the package uses words that say nothing."""
    import ast
    from pathlib import Path

    faults = []
    for path in Path(rg.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                text = ast.unparse(node.exc).lower()
                faults += [f"{path.name}:{node.lineno} {w}" for w in WORDS if w in text]
    assert not faults
