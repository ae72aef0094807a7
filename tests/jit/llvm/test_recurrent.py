"""Recurrent kernels against the ops' own NumPy, in float64, at every vector width."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import recurrent
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.nn.gru import Gru, GruGrad
from retrograd.ops.nn.lstm import Lstm, LstmGrad
from retrograd.ops.nn.rnn import Rnn, RnnGrad
from retrograd.testing.compare import assert_close

MACHINES = here()
KINDS = {"rnn": (Rnn, RnnGrad), "gru": (Gru, GruGrad), "lstm": (Lstm, LstmGrad)}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
SIZES = [  # steps, batch, inputs, units
    (1, 1, 1, 1),
    (2, 1, 3, 16),
    (5, 3, 2, 7),
    (3, 13, 9, 33),
    (4, 32, 16, 48),
    (2, 40, 17, 64),
    (3, 2, 70, 20),
    (2, 70, 3, 130),
]


def layer(kind, *, backwards=False, relu=False):
    ops = KINDS[kind]
    return [op(backwards, relu) if kind == "rnn" else op(backwards) for op in ops]


def operands(kind, sizes, rng, dtype, lengths=None):
    """x, weights, biases, states and lengths; values that `dtype` can hold."""
    steps, batch, inputs, units = sizes
    wide = GATES[kind] * units
    shapes = [(steps, batch, inputs), (inputs, wide), (units, wide), (wide,)]
    shapes += [(wide,)] if kind == "gru" else []
    shapes += [(batch, units)] * (2 if kind == "lstm" else 1)
    scale = 1 / np.sqrt(max(inputs, units))
    arrays = [rng.normal(size=shape) * (scale if i else 1) for i, shape in enumerate(shapes)]
    lengths = np.full(batch, steps) if lengths is None else lengths
    return [*(a.astype(dtype).astype(np.float64) for a in arrays), lengths]


def kept(kind, xs, outs):
    """What backward is given of operands and results."""
    x, w_ih, w_hh, *_ = xs
    states = xs[-3:-1] if kind == "lstm" else xs[-2:-1]
    more = {"rnn": (), "gru": outs[2:], "lstm": outs[3:]}[kind]
    return [x, w_ih, w_hh, *states, xs[-1], outs[0], *more]


def cotangents(kind, outs, rng, *, inner):
    given = {"rnn": 2, "gru": 2, "lstm": 3}[kind]
    return [rng.normal(size=o.shape) for o in (outs if inner else outs[:given])]


def program(op, arrays, machine=None):
    graph, _ = trace(lambda *xs: list(rg.apply(op, *xs)), [spec_of(a) for a in arrays])
    return compiled(graph, machine=machine)


def run(op, arrays, dtype, machine=None):
    """What the op's kernels give; they are the whole program."""
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]
    built = program(op, arrays, named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name]
    return Executable(built)(arrays)


def check(kind, sizes, dtype, machine, *, lengths=None, inner=False, **options):
    rng = np.random.default_rng(sum(sizes))
    forward, backward = layer(kind, **options)
    xs = operands(kind, sizes, rng, dtype, lengths)
    wanted = forward.forward(*xs)
    for got, want in zip(run(forward, xs, dtype, machine), wanted, strict=True):
        assert_close(got, want.astype(dtype))
    outs = [o.astype(dtype).astype(np.float64) for o in wanted]
    given = [*kept(kind, xs, outs), *cotangents(kind, outs, rng, inner=inner)]
    given = [a.astype(dtype).astype(np.float64) if a.dtype.kind == "f" else a for a in given]
    found = run(backward, given, dtype, machine)
    for got, want in zip(found, backward.forward(*given), strict=True):
        assert_close(got, want.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_kernels_give_what_numpy_gives(sizes, kind, machine, dtype):
    check(kind, sizes, dtype, machine)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_all_steps_are_one_product_where_weights_are_large(
    kind, backwards, monkeypatch
):
    monkeypatch.setattr(recurrent, "NEAR", 0)
    for sizes in SIZES[1:6]:
        check(kind, sizes, "float64", None, backwards=backwards)
    check(kind, (3, 2, 4, 20), "float32", None, lengths=np.array([1, 3]), backwards=backwards)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_several_lengths(kind, backwards, machine):
    for lengths in ([5, 0, 2, 3], [1, 5, 4, 0], [0, 0, 0, 0], [5, 5, 5, 5]):
        check(
            kind,
            (5, 4, 6, 19),
            "float64",
            machine,
            lengths=np.array(lengths),
            backwards=backwards,
        )


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_blame_of_gates_and_cells_too(kind, backwards):
    lengths = np.array([2, 4, 0], np.int32)
    check(
        kind, (4, 3, 2, 18), "float64", None, lengths=lengths, inner=True, backwards=backwards
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64"])
def test_lengths_of_any_integers(dtype):
    check("gru", (3, 2, 2, 3), "float64", None, lengths=np.array([3, 1], dtype))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("backwards", [False, True])
def test_relu(machine, backwards):
    lengths = np.array([3, 2, 4])
    check("rnn", (4, 3, 5, 9), "float32", machine, relu=True, backwards=backwards)
    check("rnn", (4, 3, 5, 9), "float64", machine, relu=True, lengths=lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beyond_the_lengths_is_not_read(kind):
    rng = np.random.default_rng(1)
    forward, backward = layer(kind)
    lengths = np.array([1, 3, 2])
    xs = operands(kind, (3, 3, 4, 5), rng, "float64", lengths)
    clean = [np.where((np.arange(3)[:, None] < lengths)[..., None], xs[0], 0), *xs[1:]]
    xs[0] = np.where((np.arange(3)[:, None] < lengths)[..., None], xs[0], np.nan)
    outs = forward.forward(*clean)
    for got, want in zip(run(forward, xs, "float64"), outs, strict=True):
        assert_close(got, want)
    more = cotangents(kind, outs, rng, inner=False)
    found = run(backward, [*kept(kind, xs, outs), *more], "float64")
    wanted = backward.forward(*kept(kind, clean, outs), *more)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [-1, 4, 1 << 40])
def test_lengths_beyond_the_steps_are_refused(kind, bad):
    rng = np.random.default_rng(2)
    op = layer(kind)[0]
    xs = operands(kind, (3, 2, 4, 5), rng, "float64", np.array([3, bad]))
    with pytest.raises(rg.ArgumentError, match="lengths must be from 0 to 3, the number") as e:
        run(op, xs, "float64")
    assert f"got {bad}" in str(e.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_threads_gives_the_same_bits(kind):
    rng = np.random.default_rng(3)
    forward, backward = layer(kind)
    lengths = np.array([3, 1] * 24)
    xs = operands(kind, (3, 48, 40, 200), rng, "float32", lengths)
    outs = forward.forward(*xs)
    given = [*kept(kind, xs, outs), *cotangents(kind, outs, rng, inner=False)]
    for op, arrays in ((forward, xs), (backward, given)):
        arrays = [a.astype("float32") if a.dtype.kind == "f" else a for a in arrays]
        built = program(op, arrays)
        assert built.steps[0].info.chunks > 3
        found = [Executable(built, threads)(arrays) for threads in (1, 2, 3)]
        for one, *others in zip(*found, strict=True):
            assert all(one.tobytes() == other.tobytes() for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_for_neon(kind):
    def both(*xs):
        outs, pull = rg.vjp(lambda *floats: rg.apply(layer(kind)[0], *floats, xs[-1]), *xs[:-1])
        return list(pull(outs))

    xs = operands(kind, (3, 5, 4, 9), np.random.default_rng(4), "float32")
    specs = [spec_of(a.astype("float32") if a.dtype.kind == "f" else a) for a in xs]
    graph, _ = trace(both, specs)
    writer = Writer(optimized(graph, kernels_of), named("neon"))
    writer.written()
    assert len(object_code(writer.module)) > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_code_does_not_grow_with_time(kind):
    mentions = []
    for steps in (4, 400):
        xs = operands(kind, (steps, 2, 3, 4), np.random.default_rng(5), "float64")
        mentions.append(program(layer(kind)[0], xs).text.count("_turn("))
    assert mentions == [2, 2]  # where it is defined, and where it is called


@pytest.mark.parametrize("kind", KINDS)
def test_long_sequences_can_be_interrupted(kind):
    sizes = (recurrent.LONG, 1, 1, 2)
    check(kind, sizes, "float64", None)
    for steps, polls in ((recurrent.LONG, True), (9, False)):
        xs = operands(kind, (steps, *sizes[1:]), np.random.default_rng(9), "float64")
        assert program(layer(kind)[0], xs).polls is polls


@pytest.mark.parametrize("kind", KINDS)
def test_equal_layers_share_their_kernels(kind):
    op = layer(kind)[0]
    xs = operands(kind, (3, 2, 5, 5), np.random.default_rng(8), "float64")

    def twice(x, *rest):
        return [rg.apply(op, rg.apply(op, x, *rest)[0], *rest)[0]]

    graph, _ = trace(twice, [spec_of(a) for a in xs])
    built = compiled(graph)
    assert built.text.count("_turn(") == 3  # defined once, called twice
    (found,) = Executable(built)(xs)
    assert_close(found, op.forward(op.forward(*xs)[0], *xs[1:])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_of_both_directions(kind):
    rng = np.random.default_rng(6)
    n, steps, units, wide = 3, 5, 6, GATES[kind] * 6
    x = rng.normal(size=(n, steps, 4))
    widths = [4, 4, 2 * units, 2 * units]
    weights = [[rng.normal(size=(w, wide)) / 4 for w in widths]]
    weights += [[rng.normal(size=(units, wide)) / 4 for _ in widths]]
    weights += [[rng.normal(size=wide) for _ in widths] for _ in range(2)]
    lengths = np.array([5, 2, 4])
    f = (
        getattr(rg.nn.functional, kind)
        if hasattr(rg.nn, "functional")
        else getattr(rg.nn, kind)
    )

    def loss(x, weights):
        y, last = f(x, *weights, lengths=lengths, bidirectional=True)
        states = last if isinstance(last, tuple) else (last,)
        return rg.sum(y * y) + sum(rg.sum(s * s * s) for s in states)

    tensors = rg.asarray(x), [[rg.asarray(w) for w in ws] for ws in weights]
    both = rg.value_and_grad(loss, argnums=(0, 1))
    assert_close(rg.jit(both)(*tensors), both(*tensors))


def test_what_the_kernels_do_not_cover_is_expanded():
    rng = np.random.default_rng(7)
    xs = operands("gru", (3, 2, 4, 5), rng, "float64")
    specs = [spec_of(a) for a in xs]
    assert kernels_of(Gru(), specs)
    half = [s.with_dtype(np.dtype("float16")) if s.dtype.kind == "f" else s for s in specs]
    assert kernels_of(Gru(), half) is None
    stacked = [spec_of(np.stack([a, a], axis=1 if i == 0 else 0)) for i, a in enumerate(xs)]
    assert kernels_of(Gru(), stacked) is None
    assert kernels_of(Gru(), [specs[0].with_shape((0, 2, 4)), *specs[1:]]) is None
