"""Calls that look like the last one are read by straight-line code: nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import ArgumentError, DonatedError
from retrograd.jit.shortcut import shortcut
from retrograd.jit.straight import Scope, function


def leaves(*args: Any) -> Any:
    """A function that any tree fits: its leaves, doubled, in their tree."""
    return rg.tree.map(lambda x: x * 2, args)


def two(x: Any, y: Any) -> Any:
    return leaves(x, y)


def plain(f: Any, *args: Any) -> Any:
    return rg.tree.map(lambda x: np.asarray(x).tolist(), f(*args))


def vector(n: int = 3, dtype: str = "float32") -> rg.Tensor:
    return rg.asarray(np.arange(n, dtype=dtype))


START = ({"a": vector(), "b": [1.5, (vector(2), 3)]}, vector(4))
OTHERS = [
    START,
    ({"a": vector(5), "b": [1.5, (vector(2), 3)]}, vector(4)),  # a shape
    ({"a": vector(3, "float64"), "b": [1.5, (vector(2), 3)]}, vector(4)),  # a dtype
    ({"a": vector(), "b": [2, (vector(2), 3)]}, vector(4)),  # a kind of number
    ({"a": vector(), "c": [1.5, (vector(2), 3)]}, vector(4)),  # a key
    ({"a": vector(), "b": [1.5, (vector(2), 3)], "c": vector()}, vector(4)),  # one more
    ({"a": vector(), "b": [1.5, (vector(2),)]}, vector(4)),  # one less
    ({"a": vector(), "b": (1.5, (vector(2), 3))}, vector(4)),  # a tuple for a list
    ({"a": vector(), "b": [1.5, (vector(2), 3)]}, np.ones(4, np.float32)),  # not a tensor
    ({"a": vector(6)[::2], "b": [1.5, (vector(2), 3)]}, vector(4)),  # strided
    ({"b": [1.5, (vector(2), 3)], "a": vector()}, vector(4)),  # another order
]


@pytest.mark.parametrize("other", OTHERS)
def test_what_differs_is_seen(other: Any) -> None:
    f = rg.jit(two)
    for args in (START, START, START, other, other, START, other):
        assert plain(f, *args) == plain(leaves, *args)


def test_options_are_part_of_it() -> None:
    f = rg.jit(lambda x, how: x * 2 if how else x * 3)
    x = rg.ones(2)
    for how in (True, True, True, False, None, "", "a", "a", "a", True):
        assert f(x, how).tolist() == ([2.0, 2.0] if how else [3.0, 3.0])


def test_deep_trees() -> None:
    x: Any = vector()
    for k in range(60):
        x = (x,) if k % 2 else {"inner": x}
    f = rg.jit(two)
    for _ in range(3):
        assert plain(f, x, x) == plain(leaves, x, x)


def test_records_and_their_options() -> None:
    small, large = (rg.nn.LayerNorm(n) for n in (3, 4))
    f = rg.jit(lambda layer, x: (layer(x), layer))
    for layer, n in [(small, 3)] * 3 + [(large, 4), (small, 3)]:
        x = rg.asarray(np.random.default_rng(n).normal(size=(2, n)).astype(np.float32))
        out, again = f(layer, x)
        np.testing.assert_allclose(out.numpy(), layer(x).numpy(), rtol=1e-5, atol=1e-6)
        assert f(again, x)[0].tolist() == out.tolist()


def test_gradients_are_still_recorded() -> None:
    f = rg.jit(lambda x: rg.sum(x * x))
    for _ in range(3):
        f(vector())
    x = vector()
    x.requires_grad_()
    f(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 4.0]
    assert rg.grad(f)(vector()).tolist() == [0.0, 2.0, 4.0]


def test_donated_memory_is_reused_and_dead_tensors_are_refused() -> None:
    step = rg.jit(lambda state, x: {"w": state["w"] + x}, donate="state")
    state = {"w": vector()}
    where = state["w"].array.ctypes.data
    for _ in range(5):
        old, state = state, step(state, 1.0)
    assert state["w"].tolist() == [5.0, 6.0, 7.0]
    assert state["w"].array.ctypes.data == where
    with pytest.raises(DonatedError, match="donated to"):
        step(old, 1.0)
    assert step(state, 1.0)["w"].tolist() == [6.0, 7.0, 8.0]


def test_what_an_alias_sees_is_not_written() -> None:
    step = rg.jit(lambda w: w + 1, donate="w")
    w = vector()
    for _ in range(3):
        w = step(w)
    seen = w.array
    step(w)
    assert seen.tolist() == [3.0, 4.0, 5.0]


def test_numbers_that_are_too_large() -> None:
    f = rg.jit(lambda x, n: x * n)
    for n in (2, 3, 4):
        assert f(vector(), n).tolist() == [0.0, n, 2.0 * n]
    with pytest.raises(ArgumentError, match="more than int64 holds"):
        f(vector(), 2**70)


def test_arguments_by_name_and_left_out() -> None:
    f = rg.jit(lambda x, y=2.0: x * y)
    for _ in range(3):
        assert f(vector(), 3.0).tolist() == [0.0, 3.0, 6.0]
        assert f(vector()).tolist() == [0.0, 2.0, 4.0]
        assert f(y=3.0, x=vector()).tolist() == [0.0, 3.0, 6.0]
    with pytest.raises(TypeError):
        f(vector(), 1.0, 2.0)


# -- many leaves -------------------------------------------------------------------------------


def many(count: int, other: int | None = None) -> Any:
    """A tree of dicts and lists; the leaf at one place is of another shape."""
    made = [vector(3 if i != other else 4) for i in range(count)]
    return {"list": made[::2], "dict": {f"k{i}": x for i, x in enumerate(made[1::2])}}


@pytest.mark.parametrize("place", [None, *range(0, 60, 7), 59])
def test_what_differs_is_seen_among_many(place: int | None) -> None:
    f, other = rg.jit(two), many(60, place)
    for args in ((many(60), 1.0), (many(60), 1.0), (many(60), 2.0), (other, 1.0), (other, 3.0)):
        assert plain(f, *args) == plain(leaves, *args)


def test_many_leaves_are_read_as_few_are() -> None:
    x = many(60)
    read = shortcut((x, 1.5))
    assert read is not None
    found = read(x, 1.5)
    assert found is not None
    data, arrays, places = found
    assert [d if type(d) is float else id(d) for d in data] == [
        *(id(t) for t in rg.tree.leaves(x)),
        1.5,
    ]
    assert [a.tolist() for a in arrays] == [np.asarray(d).tolist() for d in data]
    assert places == [a.ctypes.data for a in arrays]
    assert read(many(60, 40), 1.5) is None


def test_no_function_for_many_leaves_is_long() -> None:
    """Python takes memory for all of a function at once to compile it."""
    found: Any = [shortcut((many(n),)) for n in (8, 80)]
    few, lots = (len(f.__code__.co_code) for f in found)
    assert lots < 4 * few


def test_records_of_many_leaves() -> None:
    layers = [rg.nn.LayerNorm(3) for _ in range(20)]
    f = rg.jit(lambda some, x: ([layer(x) for layer in some], some))
    x, some = vector(), layers
    for _ in range(4):
        out, some = f(some, x)
        for y in out:
            np.testing.assert_allclose(y.numpy(), layers[0](x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["'a'", "1.5", "b'a'", "x + ('a', 1)", "(1, (2, 'a'))", "..."])
def test_texts_that_hold_what_is_not_ours_are_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="of our own holds"):
        function(["x"], [f"return {text}"], Scope())


@pytest.mark.parametrize("text", ["()", "[(), ()]", "x[1]", "{k0: (x, ), k1: None}", "-1"])
def test_texts_of_ours_are_not(text: str) -> None:
    scope = Scope()
    scope.name("a")
    scope.name("b")
    assert function(["x"], [f"return {text}"], scope)((1, 2)) == eval(
        text, {**scope, "x": (1, 2)}
    )
