"""Modules: frozen trees. Their fields, structures, changes, and what is printed."""

import copy
import pickle
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import retrograd as rg
from retrograd import nn
from retrograd.core import tree
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.testing import assert_close


class Affine(nn.Module):
    scale: rg.Tensor
    shift: Any = None

    def __call__(self, x):
        y = x * self.scale
        return y if self.shift is None else y + self.shift


class Pair(NamedTuple):
    a: Any
    b: Any


class Mixed(nn.Module):
    """Tensors, modules and static values, side by side and in containers."""

    layers: list
    table: dict
    pair: Pair
    seen: rg.Tensor
    name: str
    wide: bool
    f: Any
    nothing: None
    fixed: ClassVar[tuple[str, ...]] = ()

    def __init__(self, key, name="mixed"):
        self.layers = [Affine(rg.ones(2)), rg.tanh, [3, rg.zeros(4)], nn.Linear(2, 3, key=key)]
        self.table = {"b": rg.ones(1), "a": 7}
        self.pair = Pair(rg.ones(2), rg.ones(3))
        self.seen = rg.asarray([1, 2])
        self.name, self.wide, self.f, self.nothing = name, True, rg.tanh, None

    def __call__(self, x):
        return x


@pytest.fixture
def mixed():
    return Mixed(rg.random.key(0))


# -- as trees ------------------------------------------------------------------------------


def test_leaves_and_structure_make_the_module_again(mixed):
    leaves, structure = tree.flatten(mixed)
    assert [x.shape for x in leaves] == [(2,), (4,), (2, 3), (3,), (1,), (2,), (3,), (2,)]
    again = tree.unflatten(structure, leaves)
    assert type(again) is Mixed
    assert tree.structure(again) == structure
    assert hash(tree.structure(again)) == hash(structure)
    assert all(a is b for a, b in zip(tree.leaves(again), leaves, strict=True))
    assert again.table["a"] == 7
    assert again.layers[1] is rg.tanh
    assert again.layers[2][0] == 3
    assert again.name == "mixed"
    assert type(again.pair) is Pair


def test_static_fields_are_part_of_the_structure():
    def structure(name):
        return tree.structure(Mixed(rg.random.key(0), name))

    assert structure("a") == structure("a")
    assert hash(structure("a")) == hash(structure("a"))
    assert structure("a") != structure("b")


@pytest.mark.parametrize(("a", "b"), [(1, True), (1, 1.0), (0.0, -0.0), (None, 0)])
def test_static_values_that_are_equal_and_not_the_same_differ(a, b):
    one, other = (tree.structure(Affine(rg.ones(2), shift=v)) for v in (a, b))
    assert one != other
    assert one == tree.structure(Affine(rg.ones(2), shift=a))


def test_nan_is_the_same_structure_as_itself():
    one, other = (tree.structure(Affine(rg.ones(2), shift=float("nan"))) for _ in range(2))
    assert one == other


def test_leaves_may_be_anything(mixed):
    shapes = tree.map(lambda x: x.shape, mixed)
    assert shapes.layers[3].weight == (2, 3)
    names = tree.map(str, mixed)
    assert tree.structure(names) == tree.structure(mixed)
    assert repr(shapes)
    assert repr(names)


def test_numpy_arrays_become_tensors_and_lists_tuples():
    layer = Affine(np.ones(3, np.float32), [1, 2])
    assert isinstance(layer.scale, rg.Tensor)
    assert layer.shift == (1, 2)


def test_a_module_maps_traces_and_differentiates(rng):
    x = rg.asarray(rng.normal(size=3))
    many = Affine(rg.asarray(rng.normal(size=(5, 3))), rg.asarray(rng.normal(size=(5, 3))))
    mapped = rg.vmap(lambda layer, x: layer(x), in_axes=(0, None))(many, x)
    assert_close(mapped, many.scale * x + many.shift)

    one = tree.map(lambda p: p[0], many)
    leaves, structure = tree.flatten(one)
    graph, captured = trace(
        lambda *xs: [tree.unflatten(structure, xs)(x)], [p.spec for p in leaves]
    )
    assert_close(evaluate(graph, *leaves, *captured)[0], one(x))

    grads = rg.grad(lambda layer: rg.sum(layer(x) ** 2))(one)
    assert_close(grads.shift, 2 * one(x))
    assert_close(grads.scale, 2 * one(x) * x)


def test_modules_made_under_vmap_are_an_ensemble():
    keys = rg.random.split(rg.random.key(1), 4)
    models = rg.vmap(lambda k: nn.MLP([3, 5, 2], key=k))(keys)
    assert models.layers[0].weight.shape == (4, 3, 5)
    x = rg.ones((7, 3))
    found = rg.vmap(lambda m: m(x))(models)
    for i in range(4):
        assert_close(found[i], nn.MLP([3, 5, 2], key=keys[i])(x))

    def loss(m):
        return rg.sum(m(x) ** 2)

    grads = rg.vmap(rg.grad(loss))(models)
    assert_close(
        tree.map(lambda g: g[2], grads), rg.grad(loss)(tree.map(lambda p: p[2], models))
    )


# -- what is not trained -------------------------------------------------------------------


class Counter(nn.Module):
    weight: rg.Tensor
    mean: rg.Tensor
    steps: rg.Tensor
    fixed: ClassVar[tuple[str, ...]] = ("mean",)


def counter():
    return Counter(rg.asarray([1.0, 2.0]), rg.asarray([3.0, 4.0]), rg.asarray(5))


def test_gradients_leave_fixed_fields_and_integers_alone():
    grads = rg.grad(lambda m: rg.sum(m.weight * m.mean * m.steps))(counter())
    assert_close(grads.weight, np.array([15.0, 20.0], np.float32))
    assert_close(grads.mean, np.zeros(2, np.float32))
    assert grads.steps.dtype == rg.int64
    assert grads.steps == 0
    assert tree.structure(grads) == tree.structure(counter())


def test_all_derivatives_agree_on_what_is_fixed():
    def f(m):
        return rg.sum(m.weight**2 * m.mean)

    m = Counter(rg.ones(2), rg.ones(2), 5)
    for jacobian in (rg.jacfwd(f), rg.jacrev(f)):
        assert_close(jacobian(m).mean, np.zeros(2, np.float32))
        assert_close(jacobian(m).weight, np.full(2, 2, np.float32))


def test_an_integer_outside_of_fixed_is_refused():
    with pytest.raises(rg.DtypeError, match="integers have no gradient"):
        rg.grad(lambda t: rg.sum(t["a"]))({"a": rg.arange(3)})
    zeros = rg.grad(lambda t: t["a"] * t["b"].value)({"a": 2.0, "b": tree.Fixed(rg.asarray(3))})
    assert float(zeros["a"]) == 3


def test_freezing_costs_nothing_in_the_backward_pass():
    model = nn.MLP([4, 4, 4], key=rg.random.key(0))
    frozen = nn.freeze(model)
    x = rg.ones((2, 4))

    def loss(parts):
        return rg.sum(parts[1](parts[0](x)) ** 2)

    def products(parts):
        leaves, structure = tree.flatten(parts)
        graph, _ = trace(
            lambda *xs: tree.leaves(rg.grad(loss)(tree.unflatten(structure, xs))),
            [p.spec for p in leaves],
        )
        return sum(node.op.name == "matmul" for node in graph.nodes)

    # four forward; weights 4 and inputs 3 backward, of which the frozen half needs none
    assert products((model, model)) == 4 + 4 + 3
    assert products((frozen, model)) == 4 + 2 + 1
    grads = rg.grad(loss)((frozen, model))
    wanted = rg.grad(loss)((model, model))
    assert_close(grads[1], wanted[1])
    assert all(not np.any(np.asarray(g)) for g in tree.leaves(grads[0]))
    assert nn.count(frozen) == 0
    assert nn.parameters(frozen) == {}
    assert tree.structure(nn.unfreeze(frozen)) == tree.structure(model)
    assert tree.structure(frozen.replace(activation=rg.tanh)) != tree.structure(frozen)
    assert nn.count(frozen.replace(activation=rg.tanh)) == 0
    assert tree.structure(frozen) != tree.structure(model)


def test_only_modules_are_frozen():
    with pytest.raises(rg.ArgumentError, match="freeze: it takes a Module; got a dict"):
        nn.freeze({})


# -- nothing changes -----------------------------------------------------------------------


def test_fields_cannot_be_set_or_deleted(mixed):
    with pytest.raises(rg.FrozenError, match=r"Mixed\.name cannot be set.*") as caught:
        mixed.name = "other"
    assert "replace(name=...)" in str(caught.value)
    with pytest.raises(AttributeError):
        mixed.unknown = 1
    with pytest.raises(rg.FrozenError, match="cannot be deleted"):
        del mixed.name
    with pytest.raises(rg.FrozenError, match="a dict inside of a module"):
        mixed.table["a"] = 8
    with pytest.raises(rg.FrozenError):
        mixed.table.update(a=8)
    with pytest.raises(TypeError):
        mixed.layers[0] = None
    mapped = tree.map(lambda x: x, mixed)
    with pytest.raises(rg.FrozenError):
        mapped.name = "other"
    with pytest.raises(rg.FrozenError):
        mapped.table.clear()


def test_a_changed_copy(mixed):
    other = mixed.replace(name="other", layers=[])
    assert (other.name, other.layers) == ("other", ())
    assert (mixed.name, len(mixed.layers)) == ("mixed", 4)
    with pytest.raises(rg.ArgumentError, match="it has no field colour; its fields are"):
        mixed.replace(colour=1)


def test_copies_are_the_same_structure(mixed):
    for again in (copy.copy(mixed), copy.deepcopy(mixed), pickle.loads(pickle.dumps(mixed))):
        assert tree.structure(again) == tree.structure(mixed)
        assert_close(tree.leaves(again), tree.leaves(mixed))


# -- what is refused -----------------------------------------------------------------------


def test_fields_are_given_once_and_all():
    with pytest.raises(rg.ArgumentError, match="it has no value for scale; its fields are"):
        Affine()
    with pytest.raises(rg.ArgumentError, match="it takes no colour"):
        Affine(1, colour=2)
    with pytest.raises(rg.ArgumentError, match="scale was given twice"):
        Affine(1, scale=2)
    with pytest.raises(rg.ArgumentError, match="too many values"):
        Affine(1, 2, 3)


def test_init_sets_all_fields_and_no_others():
    class Forgets(nn.Module):
        a: Any
        b: Any

        def __init__(self):
            self.a = 1

    class Invents(nn.Module):
        def __init__(self):
            self.a = 1

    with pytest.raises(rg.ArgumentError, match="Forgets: __init__ has not set b"):
        Forgets()
    with pytest.raises(rg.FrozenError, match=r"Invents\.a is no field"):
        Invents()


def test_static_values_can_be_hashed():
    with pytest.raises(rg.ArgumentError, match=r"Affine\.shift is \{1\}, a set; a field holds"):
        Affine(rg.ones(1), {1})
    with pytest.raises(rg.ArgumentError, match=r"Affine\.shift\['a'\] is"):
        Affine(rg.ones(1), {"a": {1}, "b": rg.ones(1)})


def test_subclasses_inherit_fields():
    class Scaled(Affine):
        by: float = 2.0

        def __call__(self, x):
            return super().__call__(x) * self.by

    layer = Scaled(rg.ones(2), by=3.0)
    assert Scaled.fields == ("scale", "shift", "by")
    assert_close(layer(rg.ones(2)), np.full(2, 3, np.float32))


# -- names, numbers and words --------------------------------------------------------------


def test_parameters_have_paths(mixed):
    names = ["layers.0.scale", "layers.2.1", "layers.3.weight", "layers.3.bias"]
    assert list(nn.parameters(mixed)) == [*names, "table.b", "pair.0", "pair.1"]
    assert nn.count(mixed) == 2 + 4 + 6 + 3 + 1 + 2 + 3
    assert nn.count({"a": counter(), "b": [rg.ones(3)]}) == 5
    assert list(nn.parameters({"a": counter(), "b": [rg.ones(3)]})) == ["a.weight", "b.0"]


def test_what_is_printed(mixed):
    assert repr(Affine(rg.ones(3))) == "Affine(scale: float32[3], shift: None, 3 numbers)"
    assert repr(counter()).endswith("2 numbers, 3 fixed)")
    lines = repr(mixed).split("\n")
    assert lines[0] == "Mixed(21 numbers, 2 fixed)"
    assert "  layers[1]: tanh" in lines
    assert "  layers[3]: Linear(2 -> 3, 9 numbers)" in lines
    assert "  name: 'mixed'" in lines
    nested = nn.Sequential(mixed, nn.Dropout(0.25))
    assert "    layers[3]: Linear(2 -> 3, 9 numbers)" in repr(nested).split("\n")
    assert "  layers[1]: Dropout(0.25)" in repr(nested).split("\n")
