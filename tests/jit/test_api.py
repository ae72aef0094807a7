"""rg.jit: data and static values, when it traces; trees, methods, closures, transforms."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close


def test_a_function_and_a_decorator_with_options():
    @rg.jit
    def double(x):
        """Twice."""
        return 2 * x

    @rg.jit(static="n", threads=2, fast_math=True)
    def times(x, n):
        return sum((x for _ in range(n)), start=rg.zeros(()))

    x = rg.arange(3.0)
    assert_close(double(x), 2 * x)
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert_close(times(x, 3), 3 * x)
    assert times.threads == 2
    assert repr(double) == "<jit double: 1 programs>"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: rg.jit(3), "it takes a function; got a int"),
        (lambda: rg.jit(lambda x: x, donate="y"), "no argument 'y'; it has x"),
        (lambda: rg.jit(lambda x: x, donate="x", static="x"), "x is static"),
        (lambda: rg.jit(lambda x: x, threads=0), "threads must be from 1 to 32; got 0"),
        (lambda: rg.jit(lambda x: x, budget="1 acre"), "'1 acre' is no number of bytes"),
        (lambda: rg.jit(lambda x: x, spill="/no/such"), "spill is True or a directory"),
    ],
)
def test_options_are_checked(make, sentence):
    with pytest.raises(rg.ArgumentError) as caught:
        make()
    assert sentence in str(caught.value)


# -- arguments -------------------------------------------------------------------------------


def test_keywords_defaults_and_stars():
    def f(a, b=2.0, *rest, scale=1.0, **more):
        return (a + b + sum(rest)) * scale + sum(more.values())

    compiled, x = rg.jit(f), rg.arange(4.0)
    calls = [
        ((x,), {}),
        ((x, 5.0), {}),
        ((x,), {"b": 5.0}),
        ((x, 1.0, x, x), {"scale": 3.0}),
        ((x,), {"scale": 2.0, "z": x, "w": 1.0}),
    ]
    for args, named in calls:
        assert_close(compiled(*args, **named), f(*args, **named))
    assert compiled.traces == 4  # of the second and the third call one: numbers are data


def test_numbers_that_are_not_given_are_the_functions_own(rng):
    """axis=-1 is an option as long as nobody says it: no value is asked of a traced number."""

    def f(x, axis=-1, /, *, times=2, eps=1e-5, shift=0.5):
        return rg.sum(x, axis=axis) * times + eps + shift if times and eps >= 0 else x

    x = rg.asarray(rng.normal(size=(3, 4)))
    compiled = rg.jit(f)
    for _ in range(2):
        assert_close(compiled(x), f(x))
        assert_close(compiled(x, shift=2.0), f(x, shift=2.0))
        assert_close(compiled(x, shift=3.0), f(x, shift=3.0))
    assert compiled.traces == 2
    assert_close(rg.jit(f, static=("axis", "times"))(x, 0), f(x, 0))
    for option in (rg.nn.softmax, rg.nn.layer_norm, rg.nn.elu):
        assert_close(rg.jit(option)(x), option(x))
    with pytest.raises(rg.ArgumentError):
        compiled(x, 0)  # said, it is a number like others


def test_names_and_places_are_one_signature():
    f, x = rg.jit(lambda a, b, c=3.0: a * b + c), rg.arange(4.0)
    for args, named in [((x, x), {}), ((x,), {"b": x}), ((), {"b": x, "a": x})]:
        f(*args, **named)
    assert f.traces == 1
    for args, named in [((x, x, 4.0), {}), ((x,), {"b": x, "c": 5.0})]:
        f(*args, **named)
    assert f.traces == 2
    for args, named in [((x,), {}), ((x, x), {"a": x}), ((x, x), {"d": x}), ((x,) * 4, {})]:
        with pytest.raises(TypeError):
            f(*args, **named)
    positional = rg.jit(_positional)
    assert_close(positional(x, b=x), x - x)
    with pytest.raises(TypeError):
        positional(a=x, b=x)


def _positional(a, /, b):
    return a - b


class Pair(NamedTuple):
    first: object
    second: object


@dataclasses.dataclass
class Record:
    value: object
    kind: str = dataclasses.field(metadata={"static": True}, default="sum")


def test_trees_in_and_out():
    @rg.jit
    def f(tree):
        new = rg.tree.map(lambda x: x + 1, tree)
        return {"new": new, "none": None, "text": "static", "three": 3, "old": tree}

    x = rg.arange(3.0)
    tree = {"b": [x, (x, None)], "a": Pair(x, {"c": np.ones(2)}), "r": Record(x, "mean")}
    found = f(tree)
    assert rg.tree.structure(found["new"]) == rg.tree.structure(tree)
    assert_close(rg.tree.leaves(found["new"]), [t + 1 for t in rg.tree.leaves(tree)])
    assert_close(rg.tree.leaves(found["old"]), rg.tree.leaves(tree))
    assert (found["none"], found["text"], found["three"]) == (None, "static", 3)
    assert isinstance(found["new"]["a"], Pair)
    assert found["new"]["r"].kind == "mean"


def test_what_passes_through_is_not_the_callers_array():
    """A tensor that comes back unchanged shares nothing that somebody may write to."""
    given = np.ones(3, np.float32)
    found = rg.jit(lambda x: (x, x * 1))(given)
    given[:] = 7
    assert_close(list(found), [np.ones(3, np.float32)] * 2)


def test_models_and_optimizer_states():
    key = rg.random.key(0)
    model = rg.nn.MLP([3, 5, 2], key=key)
    optimizer = rg.optim.AdamW(1e-2)
    x, y = rg.random.normal(key, (7, 3)), rg.random.normal(key, (7, 2))

    def step(model, state, x, y):
        loss, grads = rg.value_and_grad(lambda m: rg.mean((m(x) - y) ** 2))(model)
        model, state = optimizer.step(model, grads, state)
        return model, state, loss

    compiled = rg.jit(step)
    eager = fast = (model, optimizer.init(model))
    for _ in range(3):
        *eager, loss = step(*eager, x, y)
        *fast, found = compiled(*fast, x, y)
        assert_close(found, loss)
    assert compiled.traces == 1
    assert type(fast[0]) is type(model)
    assert rg.tree.structure(fast[0]) == rg.tree.structure(model)
    assert_close(rg.tree.leaves(fast), rg.tree.leaves(eager))
    changed = fast[0].replace(layers=fast[0].layers[:1])
    assert_close(rg.jit(lambda m, x: m(x))(changed, x), changed(x))


def test_frozen_parts_and_dicts_of_a_model_come_back_as_they_were():
    class Model(rg.nn.Module):
        parts: dict
        table: rg.Tensor
        name: str = "m"
        fixed = ("table",)

    model = Model({"b": rg.ones(2), "a": (rg.zeros(3), "relu")}, rg.arange(3.0))
    again = rg.jit(lambda m: rg.tree.map(lambda x: x + 1, m))(model)
    assert rg.tree.structure(again) == rg.tree.structure(model)
    assert_close(rg.tree.leaves(again), [t + 1 for t in rg.tree.leaves(model)])
    assert again.parts["a"][1] == "relu"
    assert repr(again) == repr(model)
    assert_close(rg.tree.leaves(rg.jit(lambda m: m)(again)), rg.tree.leaves(again))


# -- numbers ---------------------------------------------------------------------------------


def test_a_new_number_never_traces():
    f, x = rg.jit(lambda x, a, b, c: (x * a + b) * c), rg.arange(3.0)
    for i in range(5):
        a, b, c = 0.1 * i, i, 1j * i
        assert_close(f(x, a, b, c), (x * a + b) * c)
    assert f.traces == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "complex64"])
@pytest.mark.parametrize("number", [0.1, 3, 0.1 + 2j], ids=["float", "int", "complex"])
def test_numbers_have_the_dtype_that_they_have_eagerly(dtype, number):
    x = rg.ones(3, dtype=getattr(rg, dtype))
    for f in (
        lambda x, n: x * n,
        lambda x, n: x + n * n,
        lambda x, n: n - x,
        lambda x, n: rg.where(x == 1, x, n),
        lambda x, n: rg.asarray(n),
        lambda x, n: rg.asarray(n, dtype=rg.complex128),
    ):
        wanted, found = f(x, number), rg.jit(f)(x, number)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert_close(found, wanted)


def test_double_precision_is_kept():
    """0.1 beside float64 is not float32's 0.1, in steps between numbers neither."""
    x = rg.ones(3, dtype=rg.float64)
    found = rg.jit(lambda x, a: x * (a * a + 1))(x, 0.1)
    assert np.asarray(found).tolist() == np.asarray(x * (0.1 * 0.1 + 1)).tolist()


def test_numbers_come_back_as_numbers():
    """So that the next call has the same signature."""
    f, rate = rg.jit(lambda x, rate, n: (x * rate, rate * 0.5, n + 1)), 0.3
    n = 0
    for k in range(3):
        _, rate, n = f(rg.ones(2), rate, n)
        assert (type(rate), type(n), n) == (float, int, k + 1)
        assert rate == 0.3 * 0.5 ** (k + 1)
    assert f.traces == 1


def test_a_number_that_does_not_fit():
    f = rg.jit(lambda x, n: x * n)
    with pytest.raises(rg.ArgumentError, match="more than int64 holds"):
        f(rg.ones(3), 2**70)


def test_gradients_with_respect_to_numbers_are_tensors():
    def f(a):
        return rg.sin(a) * a

    found, wanted = rg.jit(rg.grad(f))(0.5), rg.grad(f)(0.5)
    assert isinstance(found, rg.Tensor)
    assert found.dtype == wanted.dtype
    assert_close(found, wanted)


# -- static values ---------------------------------------------------------------------------


def test_static_values_are_told_apart():
    """1, 1.0 and True are equal to Python, and not to a program; nor are 0.0 and -0.0."""
    kinds = {bool: 3, float: 2, int: 1}
    f = rg.jit(lambda x, n: x * kinds[type(n)], static="n")
    x = rg.ones(2)
    for n, wanted in ((1, 1), (1.0, 2), (True, 3), (1, 1)):
        assert_close(f(x, n), x * wanted)
    assert f.traces == 3
    sign = rg.jit(lambda x, n: x * float(np.copysign(1, n)), static="n")
    assert_close(sign(x, 0.0), x)
    assert_close(sign(x, -0.0), -x)


def test_bools_texts_and_functions_are_static():
    f = rg.jit(lambda x, up, how, g: g(x) if up and how == "plain" else -x)
    x = rg.arange(3.0)
    assert_close(f(x, True, "plain", rg.sin), rg.sin(x))
    assert_close(f(x, True, "plain", rg.cos), rg.cos(x))
    assert_close(f(x, False, "plain", rg.cos), -x)
    assert_close(f(x, True, "other", rg.cos), -x)
    assert f.traces == 4


def test_what_is_neither_data_nor_hashable_is_named():
    with pytest.raises(rg.ArgumentError, match="options is a set, which is neither data nor"):
        rg.jit(lambda x, options: x)(rg.ones(1), {1})
    with pytest.raises(rg.ArgumentError, match="n is a list"):
        rg.jit(lambda x, n: x, static="n")(rg.ones(1), [1])
    with pytest.raises(rg.DtypeError, match="x: dtype object"):
        rg.jit(lambda x: x)(np.array(["a"], object))


# -- traces ----------------------------------------------------------------------------------


def test_one_trace_for_each_shape_dtype_and_structure():
    f = rg.jit(lambda x: rg.tree.map(lambda t: t + 1, x))
    x = rg.ones(3)
    for given in (x, x + 1, np.zeros(3, np.float32), np.ones(3, ">f4"), x[::-1]):
        assert_close(f(given), np.asarray(given) + 1)
    assert f.traces == 1
    for n, given in enumerate((rg.ones(4), rg.ones(3, dtype=rg.float64), [x], (x,), {"a": x})):
        f(given)
        f(given)
        assert f.traces == n + 2


def test_a_function_that_traces_often_says_why():
    f = rg.jit(lambda x: x + 1)
    by_option = rg.jit(lambda x, n: x * n, static="n")
    for n in range(7):
        f(rg.ones(n))
        by_option(rg.ones(1), n)
    with pytest.warns(UserWarning, match=r"of the last two x is float32\[6\] in one and x is "):
        f(rg.ones(7))
    with pytest.warns(UserWarning, match="n is 6 in one and 7 in the other"):
        by_option(rg.ones(1), 7)


# -- ahead of time ---------------------------------------------------------------------------


def test_lower_and_compile():
    f = rg.jit(lambda model, x, n: model["w"] @ x * n)
    spec = rg.Spec((3, 3), rg.float32)
    lowered = f.lower({"w": spec}, rg.Spec((3,), rg.float32), 2.0)
    assert "Matmul" in str(lowered)
    run, w, x = lowered.compile(), rg.eye(3) * 2, rg.arange(3.0)
    assert_close(run({"w": w}, x, 3.0), w @ x * 3)
    with pytest.raises(
        rg.ArgumentError, match=r"x is float32\[3\] in one and x is float64\[3\]"
    ):
        run({"w": w}, x.astype(rg.float64), 3.0)
    with pytest.raises(rg.ArgumentError, match="compiled for other arguments"):
        run({"v": w}, x, 3.0)


def test_lower_takes_a_model_of_specs():
    model = rg.nn.MLP([3, 5, 2], key=rg.random.key(0))
    specs = rg.tree.map(lambda t: t.spec, model)
    x = rg.ones((4, 3))
    run = rg.jit(lambda m, x: m(x)).lower(specs, x.spec).compile()
    assert_close(run(model, x), model(x))


# -- bind ------------------------------------------------------------------------------------


def test_bind_fixes_leading_arguments():
    model = rg.nn.MLP([3, 5, 2], key=rg.random.key(0))
    f = rg.jit(lambda model, n, x, y=1.0: model(x) * n + y)
    run = f.bind(model, 2.0)
    x = rg.ones((4, 3))
    assert_close(run(x), model(x) * 2 + 1)
    assert_close(run(x + 1, y=3.0), model(x + 1) * 2 + 3)
    assert_close(run(x=x), f(model, 2.0, x))
    assert f.traces == 2  # y is the function's own, then data
    assert_close(run(rg.ones((1, 3))), model(rg.ones((1, 3))) * 2 + 1)
    assert repr(run) == f"<{f!r} with model, n>"


def test_bind_keeps_what_was_given():
    w = rg.ones(3)
    run = rg.jit(lambda w, x: w * x).bind(w)
    w[0] = 7
    assert_close(run(rg.ones(3)), rg.ones(3))


def test_bind_under_transforms_and_on_the_tape():
    w = rg.arange(3.0)
    run = rg.jit(lambda w, x: rg.sum(w * x * x)).bind(w)
    x = rg.ones(3)
    assert_close(rg.grad(run)(x), 2 * w)
    leaf = rg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    run(leaf).backward()
    assert_close(leaf.grad, 2 * w)


def test_bind_refuses():
    f = rg.jit(lambda model, x: (model + x, x), donate="model")
    with pytest.raises(rg.ArgumentError, match="model of <lambda> is donated"):
        f.bind(rg.ones(3))
    with pytest.raises(rg.ArgumentError, match="has 1 leading arguments that can be fixed"):
        rg.jit(lambda x, *rest: x).bind(rg.ones(3), rg.ones(3))


def test_the_other_arguments_of_bind_can_be_donated():
    f = rg.jit(lambda w, x: x + w, donate="x")
    run = f.bind(rg.ones(1000))
    x = rg.zeros(1000)
    at = x.array.ctypes.data
    y = run(x)
    assert y.array.ctypes.data == at
    with pytest.raises(rg.DonatedError):
        x + 1


# -- methods and closures --------------------------------------------------------------------


class Layer(rg.nn.Module):
    w: rg.Tensor
    power: int = 2

    @rg.jit
    def forward(self, x):
        return (x @ self.w) ** self.power


class Plain:
    def __init__(self, w):
        self.w = w

    @rg.jit(static="how")
    def apply(self, x, how="up"):
        return x @ self.w if how == "up" else x


class Unhashable(Plain):
    __hash__ = None


def test_a_method_of_a_module():
    x = rg.arange(6.0).reshape(2, 3)
    for w in (rg.eye(3), rg.ones((3, 3))):
        layer = Layer(w)
        assert_close(layer.forward(x), (x @ w) ** 2)
        assert_close(Layer.forward(layer, x), (x @ w) ** 2)
    assert Layer.forward.traces == 1
    layer = Layer(rg.eye(3), power=3)
    assert_close(layer.forward(x), x**3)
    assert Layer.forward.traces == 2


def test_a_method_of_a_plain_class():
    """The object is static; its tensors are hidden arguments."""
    x, one, two = rg.arange(3.0), Plain(rg.eye(3)), Plain(2 * rg.eye(3))
    assert_close(one.apply(x), x)
    assert_close(two.apply(x), 2 * x)
    assert_close(one.apply(x, how="down"), x)
    with pytest.raises(rg.ArgumentError, match="self is a Unhashable, which is neither data"):
        Unhashable(rg.eye(3)).apply(x)


def test_closures_are_hidden_arguments():
    w = rg.arange(1000.0)
    f = rg.jit(lambda x: x * w)
    assert_close(f(2.0), 2 * w)
    (program,) = f.programs.values()
    assert program.captured[0] is w  # not a part of the code
    assert not any(n.op.name == "literal" for n in program.program.graph.nodes)
    w[0] = 5.0
    assert_close(f(2.0), 2 * w)
    assert f.traces == 1


def test_a_closure_that_requires_a_gradient_is_on_the_tape():
    w = rg.tensor([1.0, 2.0], requires_grad=True)
    f = rg.jit(lambda x: rg.sum(x * w))
    f(rg.ones(2)).backward()
    assert_close(w.grad, rg.ones(2))
    with rg.no_grad():
        assert not f(rg.ones(2)).requires_grad


def test_nesting():
    inner = rg.jit(lambda x: rg.sin(x) * 2)
    outer = rg.jit(lambda x: inner(x) + inner(x * 2))
    x = rg.arange(4.0)
    assert_close(outer(x), 2 * rg.sin(x) + 2 * rg.sin(2 * x))
    assert (inner.traces, outer.traces) == (0, 1)


# -- transforms ------------------------------------------------------------------------------


def f(x):
    return rg.sum(rg.sin(x) * x)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda g: rg.grad(rg.jit(g)),
        lambda g: rg.jit(rg.grad(g)),
        lambda g: rg.vmap(rg.jit(rg.grad(g))),
        lambda g: rg.jit(rg.vmap(rg.grad(g))),
        lambda g: rg.jit(lambda x: rg.hvp(g, (x,), (x,))),
        lambda g: rg.jit(rg.hessian(g)),
        lambda g: rg.jacfwd(rg.jit(g)),
        lambda g: rg.jit(lambda x: rg.jvp(rg.jit(g), (x,), (x,))),
        lambda g: rg.jit(rg.grad(rg.checkpoint(g))),
    ],
)
def test_transforms(wrap, monkeypatch, rng):
    x = rg.asarray(rng.normal(size=(3, 4)))
    found = wrap(f)(x)
    monkeypatch.setattr(rg, "jit", lambda g: g)
    assert_close(rg.tree.leaves(found), rg.tree.leaves(wrap(f)(x)))


def test_the_tape_face_runs_eagerly():
    """With an argument that requires a gradient the function is run, not the program."""
    compiled = rg.jit(f)
    x = rg.tensor([1.0, 2.0], requires_grad=True)
    compiled(x).backward()
    y = rg.tensor([1.0, 2.0], requires_grad=True)
    f(y).backward()
    assert_close(x.grad, y.grad)
    with rg.no_grad():
        assert_close(compiled(x), f(y.detach()))


def test_nans_are_found_inside():
    compiled = rg.jit(lambda x: rg.log(x) + 1)
    compiled(rg.zeros(2))
    for _ in range(2):
        with rg.debug.nans(), pytest.raises(rg.NonFiniteError, match="log: made an inf") as e:
            compiled(rg.zeros(2))
    assert "rg.log(x) + 1" in str(e.value)
    with rg.debug.nans():
        assert compiled(rg.ones(2)).tolist() == [1, 1]
    assert compiled(rg.zeros(2)).tolist() == [-np.inf, -np.inf]
    assert compiled.traces == 2


def test_nans_of_programs_say_what_eager_code_says():
    def f(x):
        return rg.sqrt(rg.sum(x) - 10) * rg.exp(x * 1000)

    said = []
    for g in (f, rg.jit(f), rg.jit(f).bind()):
        with rg.debug.nans(), pytest.raises(rg.NonFiniteError) as e:
            g(rg.arange(4.0))
        said.append(str(e.value))
    assert "sqrt: made NaN in 1 of 1 elements" in said[0]
    assert said == [said[0]] * 3


def test_nans_are_found_in_loops_and_branches():
    def f(x):
        y = rg.fori_loop(0, 5, lambda i, c: rg.sqrt(c - 1), x)
        return rg.cond(y > 0, rg.log, rg.exp, y)

    compiled = rg.jit(f)
    with rg.debug.nans():
        with pytest.raises(rg.NonFiniteError, match="sqrt: made NaN"):
            compiled(rg.asarray(4.0))
        assert_close(
            compiled(rg.asarray(1e40, dtype=rg.float64)), f(rg.asarray(1e40, dtype=rg.float64))
        )


def test_infinities_that_come_in_are_no_fault():
    mask = rg.asarray([0.0, -np.inf])
    with rg.debug.nans():
        found = rg.jit(lambda x: rg.nn.softmax(x + mask))(rg.zeros(2))
    assert found.tolist() == [1, 0]


def test_threads_of_a_function():
    x = np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32)
    made = [rg.jit(lambda x: rg.sum(rg.exp(x) * x), threads=n)(x) for n in (1, 2, 3)]
    assert len({np.asarray(m).tobytes() for m in made}) == 1
