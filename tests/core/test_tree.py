"""Trees: flatten and unflatten are inverse, structures compare, user types join."""

import collections
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core import tree


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = field(default="layer", metadata={"static": True})


@dataclass(frozen=True, slots=True)
class Frozen:
    value: Any
    rate: float = field(default=0.5, metadata={"static": True})


@dataclass
class Checked:
    """Its __init__ takes other arguments, and looks at values."""

    total: Any

    def __init__(self, a, b):
        if a > b:
            raise ValueError
        self.total = a + b


class Bag:
    """A user's own type."""

    def __init__(self, things, label):
        self.things, self.label = list(things), label


tree.register(Bag, lambda b: (b.things, b.label), lambda label, things: Bag(things, label))

leaves = st.integers(0, 9)
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Layer, inner, inner, st.sampled_from(["one", "two"]))
        | st.builds(Frozen, inner, st.sampled_from([0.1, 0.2]))
        | st.builds(Bag, st.lists(inner, max_size=2), st.sampled_from("xy"))
    ),
    max_leaves=12,
)


@given(trees)
def test_unflatten_undoes_flatten(t):
    """Any tree comes back: types, static fields, keys and order of leaves."""
    found, structure = tree.flatten(t)
    again = tree.unflatten(structure, found)
    assert type(again) is type(t)
    assert tree.flatten(again) == (found, structure)
    assert structure.leaves == len(found) == len(tree.leaves(t))
    assert tree.structure(t) == structure
    assert hash(tree.structure(again)) == hash(structure)
    assert str(structure).count("*") == len(found)


@given(trees)
def test_map_of_several_trees(t):
    """map applies f leaf by leaf and keeps the structure."""
    doubled = tree.map(lambda a: 2 * a, t)
    summed = tree.map(lambda a, b, c: a + b + c, t, doubled, t)
    assert tree.leaves(summed) == [4 * a for a in tree.leaves(t)]
    assert tree.structure(summed) == tree.structure(t)


def test_none_is_a_tree_without_leaves():
    """None marks what is not there; it is no leaf."""
    assert tree.leaves([None, 1, (None, {"a": None})]) == [1]
    assert tree.map(lambda a: a + 1, (None, 1)) == (None, 2)
    assert tree.leaves(None) == []


def test_dicts_are_read_in_sorted_order():
    """Equal dicts have equal structures, in whatever order they were built."""
    a, b = {"x": 1, "y": 2}, {"y": 2, "x": 1}
    assert tree.flatten(a) == tree.flatten(b)
    mixed = {1: "one", "a": "letter", (2,): "tuple"}
    found, structure = tree.flatten(mixed)
    assert tree.unflatten(structure, found) == mixed


def test_structures_tell_trees_apart():
    """Type, keys, length and static fields are part of the structure; leaves are not."""
    different = [
        1,
        [1],
        (1,),
        {"a": 1},
        {"b": 1},
        [1, 1],
        Point(1, 1),
        Layer(1, 1),
        Layer(1, 1, "other"),
        Layer(1, None),
        Frozen(1),
        Frozen(1, 0.7),
        Bag([1], "x"),
        Bag([1], "y"),
        None,
        [],
    ]
    assert len({tree.structure(t) for t in different}) == len(different)
    assert tree.structure(Layer(1, 2)) == tree.structure(Layer(3, 4))


def test_static_fields_are_kept_and_not_mapped():
    """metadata={"static": True}: part of the type of tree, never a leaf."""
    layer = tree.map(lambda a: a * 10, Layer(1, 2, "deep"))
    assert layer == Layer(10, 20, "deep")
    assert tree.map(lambda a: a * 10, Frozen(1, 0.7)) == Frozen(10, 0.7)


def test_dataclasses_are_rebuilt_without_their_init():
    """__init__ may take other arguments or look at values that are traced now."""
    made = tree.map(lambda a: a * 2, Checked(1, 2))
    assert made.total == 6
    g = rg.grad(lambda c: c.total * c.total)(Checked(rg.ones(()), rg.ones(()) * 2))
    assert g.total.item() == 6


def test_user_types_join_by_register():
    """A registered type goes through transforms."""
    bag = Bag([rg.ones(2), rg.ones(3)], "mine")
    grads = rg.grad(lambda b: sum(rg.sum(t * t) for t in b.things))(bag)
    assert isinstance(grads, Bag)
    assert grads.label == "mine"
    assert [g.tolist() for g in grads.things] == [[2.0] * 2, [2.0] * 3]
    with pytest.raises(rg.ArgumentError, match="kind must be a class"):
        tree.register("Bag", lambda b: ((), None), lambda s, c: None)


def test_what_is_not_a_tree_is_a_leaf():
    """Arrays, tensors, strings, sets and classes are leaves."""
    for leaf in (np.ones(2), rg.ones(2), "text", {1, 2}, Layer, 1.5, object()):
        found, structure = tree.flatten(leaf)
        assert found[0] is leaf
        assert str(structure) == "*"


def test_other_dicts_are_trees_or_leaves_but_never_lost():
    """OrderedDict and defaultdict: whatever they are, unflatten gives them back whole."""
    for t in (collections.OrderedDict(b=1, a=2), collections.defaultdict(int, a=1)):
        found, structure = tree.flatten(t)
        assert tree.unflatten(structure, found) == t


def test_the_wrong_number_of_leaves_is_refused():
    """The error shows the structure and both counts."""
    structure = tree.structure({"a": 1, "b": [2, 3]})
    for wrong in ([1, 2], [1, 2, 3, 4], []):
        with pytest.raises(rg.ArgumentError, match=rf"3 leaves; got {len(wrong)}"):
            tree.unflatten(structure, wrong)


def test_trees_that_differ_are_refused_by_map():
    """The error shows both structures."""
    with pytest.raises(rg.ArgumentError, match=r"list\(\*, \*\) and tuple\(\*, \*\)"):
        tree.map(lambda a, b: a, [1, 2], (1, 2))


def test_deep_trees():
    """A few hundred levels are no trouble."""
    t = 1
    for _ in range(300):
        t = [t, None]
    found, structure = tree.flatten(t)
    assert found == [1]
    assert tree.unflatten(structure, found) == t


def test_fixed_is_a_branch_that_says_so():
    """Its leaves are leaves; `fixed` knows which they are, however deep."""
    given = {"a": 1, "b": tree.Fixed([2, {"c": 3}]), "d": (4, tree.Fixed(None), tree.Fixed(5))}
    found, structure = tree.flatten(given)
    assert found == [1, 2, 3, 4, 5]
    assert tree.fixed(structure) == [False, True, True, False, True]
    again = tree.unflatten(structure, found)
    assert again["b"].value == [2, {"c": 3}]
    assert repr(again["d"][2]) == "Fixed(5)"
    assert tree.structure(again) == structure
    assert tree.structure({"a": 1}) != tree.structure({"a": tree.Fixed(1)})
