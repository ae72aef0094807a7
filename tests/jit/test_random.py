"""Random numbers of compiled programs: those of eager code, to the bit, on every machine."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import rng as bits
from retrograd.core import tree
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.machine import here, named
from retrograd.ops.nn.dropout import Dropout
from retrograd.ops.random_gamma import RandomGamma
from retrograd.ops.random_keys import Keyed, RandomBits
from retrograd.testing import assert_close

MACHINES = [pytest.param(named(m), id=m) for m in (*here(), "host")]
FLOATS = [rg.float32, rg.float64]
SHAPES = [(), (1,), (7,), (3, 5), (0, 3), (2, 0), (5, 33), (1000,), (3, 1, 129)]
random, nn = rg.random, rg.nn
KEY, KEYS = np.array([7, 2**32 - 3], np.uint32), bits.split(bits.key(5), 6)


def native(f, *arrays, machine=None):
    """The results of a compiled function, which calls nothing on the host."""
    leaves, structure = tree.flatten(arrays)

    def flat(*given):
        return tree.flatten(f(*tree.unflatten(structure, given)))[0]

    graph, captured = trace(flat, [spec_of(a) for a in leaves])
    program = compiled(graph, machine=machine)
    assert [s.what for s in program.steps if s.what.startswith("host")] == []
    return Executable(program)([*leaves, *(t.array for t in captured)])


def eager(f, *arrays):
    """The results of a function, op by op."""
    return [t.array for t in tree.flatten(f(*tree.map(rg.asarray, arrays)))[0]]


def check_bits(f, *arrays, machine=None):
    """Compiled and eager code give the same bits; they are returned."""
    found, wanted = native(f, *arrays, machine=machine), eager(f, *arrays)
    assert len(found) == len(wanted) > 0
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == want.tobytes()
    return found


def law(name, shape, dtype):
    return lambda key: getattr(random, name)(key, shape, dtype=dtype)


# -- every op ------------------------------------------------------------------------------


def lowered():
    """The samples of all ops that draw in kernels."""
    generator = np.random.default_rng(0)
    drawing = [c for c in REGISTRY.values() if issubclass(c, (Keyed, Dropout)) and not c.host]
    for cls in sorted(drawing, key=lambda c: c.__name__):
        yield from (pytest.param(*s[:1], s[1:], id=str(s[0])) for s in cls.samples(generator))


@pytest.mark.parametrize(("op", "arrays"), list(lowered()))
def test_every_op_that_draws_draws_the_same_bits(op, arrays):
    check_bits(lambda *a: apply(op, *a), *map(np.asarray, arrays))


def test_what_is_left_to_the_host_sorts():
    left = {name for name, cls in REGISTRY.items() if issubclass(cls, Keyed) and cls.host}
    assert left == {"RandomPermutation"}


LAWS = ["uniform", "normal", "exponential", "gumbel"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("machine", MACHINES)
def test_laws_on_every_machine(machine, name, dtype):
    check_bits(law(name, (3, 1001), dtype), KEY, machine=machine)
    check_bits(rg.vmap(law(name, (5, 7), dtype)), KEYS, machine=machine)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", LAWS)
def test_laws_in_every_shape(name, shape):
    for dtype in FLOATS:
        check_bits(law(name, shape, dtype), KEY)


def test_one_program_serves_every_key():
    draw = law("normal", (4, 9), rg.float32)
    graph, _ = trace(lambda key: [draw(key)], [spec_of(KEY)])
    run = Executable(compiled(graph))
    for key in KEYS:
        assert run([key])[0].tobytes() == draw(rg.asarray(key)).array.tobytes()


def test_words_beyond_thirty_two_bits_of_counter():
    """Only the end of the draw is read, so only it is drawn."""
    (found,) = native(lambda key: apply(RandomBits((2**31, 8)), key)[-1], KEY)
    assert found.tolist() == bits._words(KEY, 2**34 - 8, 8).tolist()


@pytest.mark.parametrize("machine", MACHINES)
def test_the_tails_of_a_law_are_reached(machine):
    (x,) = check_bits(law("normal", (200_000,), rg.float32), KEY, machine=machine)
    assert np.abs(x).max() > 4
    assert x.std() == pytest.approx(1, abs=0.02)


# -- discrete laws, keys ------------------------------------------------------------------


RANGES = [(0, 10), (-5, 2**62), (0, 2**32), (3, 2**33 + 5), (-(2**63), 2**63 - 1), (8, 9)]


@pytest.mark.parametrize("machine", MACHINES)
def test_integers(machine):
    def draw(key):
        return [random.randint(key, (2, 45), low=low, high=high) for low, high in RANGES]

    for x, (low, high) in zip(check_bits(draw, KEY, machine=machine), RANGES, strict=True):
        assert low <= x.min() <= x.max() < high
    check_bits(lambda key: random.randint(key, (9,), high=200, dtype=rg.uint8), KEY)


@pytest.mark.parametrize("machine", MACHINES)
def test_bernoulli(machine, rng):
    for dtype in (np.float32, np.float64):
        p = rng.uniform(size=(4, 33)).astype(dtype)
        check_bits(random.bernoulli, KEY, p, machine=machine)
        check_bits(rg.vmap(random.bernoulli), KEYS[:4], p, machine=machine)
    check_bits(lambda key: random.bernoulli(key, 0.3, (3, 50)), KEY, machine=machine)
    ends = np.array([0, 1, True], bool)
    (found,) = check_bits(lambda key: random.bernoulli(key, rg.asarray(ends)), KEY)
    assert found.tolist() == ends.tolist()


def test_what_is_known_is_refused_while_tracing():
    with pytest.raises(rg.ArgumentError, match=r"p must be in \[0, 1\]"):
        native(lambda key: random.bernoulli(key, 1.5, (3,)), KEY)


def test_categorical_and_choice():
    logits = np.linspace(-1, 3, 24, dtype=np.float32).reshape(4, 6)
    check_bits(random.categorical, KEY, logits)
    check_bits(lambda key, p: random.choice(key, 6, (11,), p=p), KEY, np.arange(1.0, 7))


@pytest.mark.parametrize("machine", MACHINES)
def test_chains_of_keys(machine):
    def draws(key, step):
        first, second, third = random.split(random.fold_in(key, step), 3)
        keys = random.split(random.fold_in(second, 2**59 + 1), 5)
        nested = [random.split(k)[1] for k in keys]
        return (
            *(random.normal(k, (5,)) for k in (first, *nested)),
            rg.vmap(lambda k: random.uniform(k, (3,), dtype=rg.float64))(keys),
            random.fold_in(third, step + 1),
        )

    for step in (0, 3, 2**40):
        check_bits(draws, KEY, np.asarray(step), machine=machine)
    for dtype in (np.uint8, np.int32, np.uint64):
        check_bits(random.fold_in, KEY, np.asarray(200, dtype))
    check_bits(rg.vmap(random.fold_in), KEYS, np.arange(6))
    check_bits(rg.vmap(rg.vmap(lambda key: random.bits(key, (3,)))), KEYS.reshape(2, 3, 2))


def test_an_empty_batch_of_keys():
    check_bits(rg.vmap(law("normal", (3,), rg.float32)), KEYS[:0])
    check_bits(lambda key: random.split(key, 0), KEY)


# -- with what is around them ---------------------------------------------------------------


def test_a_draw_with_several_readers_is_drawn_once():
    def f(key, x):
        noise = random.normal(key, (64, 32))
        return rg.sum(noise * x, axis=1), rg.sum(noise, axis=0)

    x = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    for got, want in zip(native(f, KEY, x), eager(f, KEY, x), strict=True):
        assert_close(got, want)
    graph, _ = trace(lambda *a: list(f(*a)), [spec_of(KEY), spec_of(x)])
    lines = compiled(graph).text.splitlines()
    assert sum("= call" in line and "@llvm.sqrt." in line for line in lines) == 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("machine", MACHINES)
def test_dropout_and_its_gradient(machine, dtype, rng):
    x, w = rng.normal(size=(2, 6, 7, 5)).astype(dtype)

    def loss(x, key, w, p, whole=()):
        return rg.sum(nn.dropout(key, x, p=p, whole=whole) * w)

    for p in (0.0, 0.3, 0.999, 1.0):
        for whole in ((), (1,), (0, 2)):
            check_bits(
                lambda k, x, p=p, a=whole: nn.dropout(k, x, p=p, whole=a),
                KEY,
                x,
                machine=machine,
            )
            check_bits(
                lambda k, x, w, p=p, a=whole: rg.grad(loss)(x, k, w, p, a),
                KEY,
                x,
                w,
                machine=machine,
            )
    each = rg.vmap(lambda k, x: nn.dropout(k, x, p=0.4))
    check_bits(each, KEYS, x, machine=machine)
    check_bits(rg.vmap(lambda x: nn.dropout(rg.asarray(KEY), x, p=0.4)), x, machine=machine)


@pytest.mark.parametrize("dtype", [rg.float16, rg.bfloat16, rg.complex64], ids=str)
def test_dropout_of_other_dtypes(dtype, rng):
    x = rng.normal(size=(5, 9)).astype(dtype)
    check_bits(lambda k, x: nn.dropout(k, x, p=0.4), KEY, x)


def test_a_training_step_with_dropout(rng):
    params = {"a": rng.normal(size=(8, 16)), "b": rng.normal(size=(16, 3))}
    params = {n: (v * 0.3).astype(np.float32) for n, v in params.items()}
    x, y = (rng.normal(size=(33, n)).astype(np.float32) for n in (8, 3))

    def loss(params, key, x, y):
        hidden = nn.dropout(key, nn.gelu(x @ params["a"], approximate=True), p=0.4)
        return rg.mean((hidden @ params["b"] - y) ** 2), hidden

    def step(params, key, number, x, y):
        key = random.fold_in(key, number)
        (value, hidden), slopes = rg.value_and_grad(loss, has_aux=True)(params, key, x, y)
        return value, hidden, {n: params[n] - 0.1 * slopes[n] for n in params}

    for number in range(3):
        given = params, KEY, np.asarray(number), x, y
        found, wanted = native(step, *given), eager(step, *given)
        assert ((found[1] == 0) == (wanted[1] == 0)).all()
        assert 0.2 < (found[1] == 0).mean() < 0.6
        for got, want in zip(found, wanted, strict=True):
            assert_close(got, want)


# -- laws that reject ----------------------------------------------------------------------


def bounds(rng, dtype):
    """Intervals near to 0 and far from it, narrow, wide and open."""
    low = np.concatenate([rng.uniform(-5, 5, 800), rng.uniform(5, 300, 90), [-np.inf] * 9])
    high = np.where(np.isinf(low), 0.5, low) + rng.exponential(2, low.size) + 1e-3
    high[::7] = np.inf
    return low.astype(dtype), high.astype(dtype)


REJECTING = {
    "truncated_normal": lambda key, low, high: random.truncated_normal(
        key, lower=low, upper=high
    ),
    "gamma": lambda key, a, scale: random.gamma(key, a, scale=scale),
    "log gamma": lambda key, a, _: apply(RandomGamma(log_space=True), key, a),
    "poisson": lambda key, lam, _: random.poisson(key, lam),
}


def parameters(name, rng, dtype):
    if name == "truncated_normal":
        return bounds(rng, dtype)
    spread = np.concatenate([10.0 ** rng.uniform(-4, 0, 300), rng.uniform(0, 40, 600)])
    if name == "poisson":
        spread[::50] = 10.0 ** rng.uniform(2, 9, 18)
        spread[:3] = 0, 10, 1e9
    return spread.astype(dtype), rng.uniform(0.5, 2, spread.size).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", REJECTING)
@pytest.mark.parametrize("machine", MACHINES)
def test_laws_that_reject(machine, name, dtype, rng):
    f, (a, b) = REJECTING[name], parameters(name, rng, dtype)
    check_bits(f, KEY, a, b, machine=machine)
    n = a.size // 6
    a, b = a[: 6 * n].reshape(6, n), b[: 6 * n].reshape(6, n)
    check_bits(rg.vmap(f), KEYS, a, b, machine=machine)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", REJECTING)
def test_laws_that_reject_in_every_shape(name, shape, rng):
    a = np.asarray(rng.uniform(0.5, 30, shape))
    check_bits(REJECTING[name], KEY, a, np.asarray(a + 1))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_draws_that_reject_are_the_same_on_any_number_of_threads(threads, rng):
    a = rng.uniform(0.1, 30, 100_000)
    found = rg.jit(random.gamma, threads=threads)(KEY, a)
    assert found.array.tobytes() == random.gamma(rg.asarray(KEY), a).array.tobytes()


def test_integers_have_poisson_draws_too():
    check_bits(random.poisson, KEY, np.arange(40))


# -- what is refused while a program runs --------------------------------------------------


REFUSED = {
    "bernoulli": (lambda x: random.bernoulli(KEY, x), [0.5, 1.5, 2.5]),
    "bernoulli of nan": (lambda x: random.bernoulli(KEY, x), [0.5, np.nan]),
    "poisson": (lambda x: random.poisson(KEY, x), [0.5, -1.5]),
    "gamma": (lambda x: random.gamma(KEY, x), [0.5, np.inf]),
    "gamma's scale": (lambda x: random.gamma(KEY, 2.0, scale=x), [0.5, -1.0]),
    "beta": (lambda x: random.beta(KEY, 2.0, x), [0.5, 0.0]),
    "dirichlet": (lambda x: random.dirichlet(KEY, x), [0.5, 0.0]),
    "normal": (lambda x: random.normal(KEY, std=x), [0.5, -2.0]),
    "normal of float32": (
        lambda x: random.normal(KEY, std=rg.astype(x, rg.float32)),
        [0.5, -0.1],
    ),
    "exponential": (lambda x: random.exponential(KEY, scale=x), [-3.0]),
    "gumbel": (lambda x: random.gumbel(KEY, scale=x), [0.5, -3.0]),
    "uniform": (lambda x: random.uniform(KEY, low=x), [0.5, 1.0]),
    "truncated normal": (lambda x: random.truncated_normal(KEY, lower=x), [0.5, 3.0]),
    "choice": (lambda x: random.choice(KEY, 3, p=x), [0.5, -1.0, 2.0]),
    "fold_in": (lambda x: random.fold_in(KEY, x), -1),
    "fold_in too far": (lambda x: random.fold_in(KEY, x), 2**60),
    "mapped": (rg.vmap(lambda x: random.normal(KEY, std=x)), [0.5, -2.0]),
    "in a loop": (
        lambda x: rg.fori_loop(0, 3, lambda i, c: c + random.normal(KEY, std=c - i), x),
        1.5,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_refuse_what_eager_code_refuses(name):
    f, given = REFUSED[name]
    x, run = rg.asarray(given), rg.jit(f)
    with pytest.raises(rg.ArgumentError) as wanted:
        f(x)
    with pytest.raises(rg.ArgumentError) as found:
        run(x)
    assert str(found.value) == str(wanted.value)
    if x.ndim:
        run(rg.full_like(x, 0.5))  # the next call works


def test_of_many_refused_values_the_same_is_named_on_any_number_of_threads(rng):
    scale = rng.normal(size=100_000)
    f = lambda x: random.normal(KEY, std=x)
    said = set()
    for threads in (1, 2, 3):
        with pytest.raises(rg.ArgumentError, match="std must be 0 or more; got -") as found:
            rg.jit(f, threads=threads)(scale)
        said.add(found.value.message)
    assert len(said) == 1


def test_what_was_donated_stays_when_a_draw_is_refused():
    @rg.jit(donate=("w",))
    def step(w, std):
        return w + random.normal(KEY, std=std)

    w = rg.ones(3)
    with pytest.raises(rg.ArgumentError, match="std must be 0 or more; got -1"):
        step(w, rg.asarray(-1.0))
    assert w.tolist() == [1, 1, 1]
    assert step(w, rg.asarray(0.0)).tolist() == [1, 1, 1]
