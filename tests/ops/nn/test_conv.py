"""Convolutions against their definition, written as a loop over windows; refusals; bytes."""

import itertools
import tracemalloc

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core import executor
from retrograd.core.interpret import apply
from retrograd.ops.nn import columns, conv, convolution, deform, geometry, patches
from retrograd.testing import assert_close, check_grads
from retrograd.testing.check import check_op, check_refuses

OPS = ("Conv", "ConvInput", "ConvWeight")


def cases():
    for name in OPS:
        for op, *arrays in getattr(convolution, name).samples(np.random.default_rng(7)):
            yield pytest.param(op, arrays, id=repr(op))


@pytest.mark.parametrize(("op", "arrays"), list(cases()))
def test_table(op, arrays):
    """The questions of the table, for ops that the package does not import by itself."""
    check_op(op, *arrays)


@pytest.mark.parametrize("name", OPS)
def test_refusals(name):
    for op, *arrays, sentence in getattr(convolution, name).refuses(np.random.default_rng(7)):
        check_refuses(op, arrays, sentence)


# -- the definition ---------------------------------------------------------------------------


def naive(x, w, b=None, *, stride=None, pads=None, dilation=None, groups=1):
    """Window by window, place by place, group by group."""
    axes = x.ndim - 2
    stride, dilation = stride or (1,) * axes, dilation or (1,) * axes
    pads = pads or ((0, 0),) * axes
    kernel, (deep, wide) = w.shape[:-2], w.shape[-2:]
    full = np.pad(x, ((0, 0), *pads, (0, 0)))
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(full.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    out = np.zeros((len(x), *counts, wide), x.dtype)
    for o in itertools.product(*map(range, counts)):
        for t in itertools.product(*map(range, kernel)):
            at = tuple(a * s + i * d for a, s, i, d in zip(o, stride, t, dilation, strict=True))
            for g in range(groups):
                part = slice(g * wide // groups, (g + 1) * wide // groups)
                seen = full[(slice(None), *at, slice(g * deep, (g + 1) * deep))]
                out[(slice(None), *o, part)] += seen @ w[(*t, slice(None), part)]
    return out if b is None else out + b


def geometries(count, seed=0):
    """Random shapes and options of 1 to 3 spatial axes."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        axes = int(rng.integers(1, 4))

        def some(low, high, axes=axes):
            return tuple(int(v) for v in rng.integers(low, high, axes))

        kernel, stride, dilation = some(1, 4), some(1, 4), some(1, 3)
        pads = tuple(zip(some(0, 3), some(0, 3), strict=True))
        room = [
            max(1, d * (k - 1) + 1 - sum(p))
            for k, d, p in zip(kernel, dilation, pads, strict=True)
        ]
        sizes = tuple(n + int(rng.integers(0, 4)) for n in room)
        groups = int(rng.integers(1, 4))
        deep, wide = (groups * int(rng.integers(1, 4)) for _ in range(2))
        x = rng.normal(size=(int(rng.integers(0, 3)), *sizes, deep))
        w = rng.normal(size=(*kernel, deep // groups, wide))
        yield x, w, {"stride": stride, "dilation": dilation, "groups": groups}, pads


@pytest.mark.parametrize("seed", range(8))
def test_conv_is_its_definition(seed, rng):
    for x, w, options, pads in geometries(12, seed):
        b = rng.normal(size=w.shape[-1])
        out = conv.conv(x, w, b, padding=pads, **options)
        assert_close(out, naive(x, w, b, pads=pads, **options))
        assert out.dtype == x.dtype


def test_float32_and_half_stay_what_they_are(rng):
    x, w = rng.normal(size=(2, 6, 6, 4)), rng.normal(size=(3, 3, 2, 4))
    wanted = naive(x, w, groups=2)
    assert_close(
        conv.conv(x.astype("f"), w.astype("f"), groups=2), wanted.astype("f"), tolerance=1e-5
    )
    for half in dt.HALF:
        out = conv.conv(rg.asarray(x).astype(half), rg.asarray(w).astype(half), groups=2)
        assert out.dtype == half
        assert_close(out.astype(rg.float32), wanted.astype("f"), tolerance=5e-2)


def test_integers(rng):
    x, w = rng.integers(-5, 5, (2, 6, 3)), rng.integers(-5, 5, (2, 3, 4))
    assert_close(conv.conv(x, w), naive(x, w))
    assert_close(conv.conv(x, w[:, :1, :3], groups=3), naive(x, w[:, :1, :3], groups=3))


def test_rows_longer_than_a_run(rng):
    """Depthwise products go by runs of windows; what is left over is another strip."""
    for channels in (columns.RUN // 8, columns.RUN - 1, columns.RUN * 2):
        x = rng.normal(size=(1, 21, channels))
        w = rng.normal(size=(3, 1, channels))
        wanted = sum(x[:, t : t + 19] * w[t] for t in range(3))
        assert_close(conv.depthwise_conv(x, w), wanted)


@pytest.mark.parametrize("tile", [1, 400, 3000, 1 << 22])
def test_tiles_of_any_size(tile, rng, monkeypatch):
    monkeypatch.setattr(columns, "TILE", tile)
    x, w = rng.normal(size=(3, 6, 5, 4)), rng.normal(size=(3, 2, 2, 6))
    for stride in (1, 2):
        options = {"stride": (stride, stride), "groups": 2}
        assert_close(
            conv.conv(x, w, padding=1, **options), naive(x, w, pads=((1, 1),) * 2, **options)
        )
        check_grads(lambda x, w, o=options: conv.conv(x, w, padding=1, **o), x, w, order=1)


# -- padding: one resolver --------------------------------------------------------------------


def test_same_has_as_many_results_as_strides():
    for n, k, s, d in itertools.product(range(1, 9), (1, 2, 3, 5), (1, 2, 3), (1, 2)):
        frame = geometry.frame("f", (n,), k, stride=s, padding="same", dilation=d)
        assert frame.counts == (-(-n // s),)
        ((before, after),) = geometry.padded("f", "same", (n,), (k,), (s,), (d,))
        assert before <= after <= before + 1
        assert frame.before == (before,)


def test_causal_looks_back_alone(rng):
    """Result t depends on the elements up to t, and on the kernel's span of them."""
    x, w = rng.normal(size=(1, 8, 2)), rng.normal(size=(3, 2, 2))
    jacobian = np.asarray(
        rg.jacrev(lambda x: rg.sum(conv.conv(x, w, padding="causal", dilation=2), axis=(0, 2)))(
            rg.asarray(x)
        )
    )[:, 0].any(-1)
    t, i = np.indices((8, 8))
    assert (jacobian == ((t - i) % 2 == 0) & (t >= i) & (t - i <= 4)).all()


def test_causal_on_the_first_axis_is_same_on_the_others():
    pads = geometry.padded("f", "causal", (8, 7), (3, 3), (1, 2), (2, 1))
    assert pads == ((4, 0), geometry.padded("f", "same", (7,), (3,), (2,), (1,))[0])


def test_N3_same_padding_is_one_rule(rng):
    """With a stride, values and both gradients see the same windows."""
    for n, k, s in itertools.product((5, 6, 7), (2, 3, 4), (2, 3)):
        x, w = rng.normal(size=(2, n, 3)), rng.normal(size=(k, 3, 2))
        pads = geometry.padded("conv", "same", (n,), (k,), (s,), (1,))
        assert_close(
            conv.conv(x, w, stride=s, padding="same"), naive(x, w, stride=(s,), pads=pads)
        )
        check_grads(lambda x, w, s=s: conv.conv(x, w, stride=s, padding="same"), x, w)


@pytest.mark.parametrize(
    ("padding", "pairs"),
    [
        (0, ((0, 0), (0, 0))),
        ("valid", ((0, 0), (0, 0))),
        (2, ((2, 2), (2, 2))),
        ((1, 2), ((1, 1), (2, 2))),
        ([(0, 1), 2], ((0, 1), (2, 2))),
        (np.int64(1), ((1, 1), (1, 1))),
    ],
    ids=str,
)
def test_padding_as_it_is_given(padding, pairs):
    assert geometry.padded("f", padding, (5, 5), (3, 3), (1, 1), (1, 1)) == pairs


# -- relatives --------------------------------------------------------------------------------


def test_conv_transpose_is_the_transpose(rng):
    """<conv(x), y> = <x, conv_transpose(y)> with w's channels swapped, in each group."""
    for x, w, options, pads in geometries(60, 5):
        y = conv.conv(x, w, padding=pads, **options)
        v = rng.normal(size=y.shape)
        g = options["groups"]
        *kernel, deep, wide = w.shape
        back = w.reshape(*kernel, deep, g, wide // g).swapaxes(-3, -1)
        back = back.reshape(*kernel, wide // g, g * deep)
        more = [
            n + a + b - ((o - 1) * s + d * (k - 1) + 1)
            for n, (a, b), o, s, d, k in zip(
                x.shape[1:-1], pads, y.shape[1:-1], options["stride"], options["dilation"],
                kernel, strict=True,
            )
        ]  # fmt: skip
        if any(
            m >= max(s, d) for m, s, d in zip(more, *list(options.values())[:2], strict=True)
        ):
            continue
        z = conv.conv_transpose(v, back, padding=pads, output_padding=tuple(more), **options)
        assert z.shape == x.shape
        assert_close(rg.sum(z * x), rg.sum(y * v))


@pytest.mark.parametrize("padding", ["same", "causal"])
def test_conv_transpose_by_name_multiplies_sizes(padding, rng):
    for n, k, s, d in itertools.product((1, 3, 4), (1, 2, 3, 5), (1, 2, 3), (1, 2)):
        x, w = rng.normal(size=(1, n, 2)), rng.normal(size=(k, 2, 3))
        out = conv.conv_transpose(x, w, stride=s, dilation=d, padding=padding)
        assert out.shape == (1, n * s, 3)
    seen = rg.jacrev(
        lambda x: rg.sum(conv.conv_transpose(x, w, stride=2, padding="causal"), axis=(0, 2))
    )(rg.asarray(x))
    o, i = np.indices((8, 4))
    assert not np.asarray(seen)[:, 0].any(-1)[o < 2 * i].any()


def test_conv_transpose_grads(rng):
    options = {"stride": (2, 1), "padding": 1, "output_padding": (1, 0), "dilation": (1, 2)}
    for groups in (1, 2):
        x, w, b = (rng.normal(size=s) for s in ((2, 3, 2, 4), (3, 2, 4 // groups, 2), (2,)))
        check_grads(
            lambda x, w, b, g=groups: conv.conv_transpose(x, w, b, groups=g, **options), x, w, b
        )


def test_Y13_depthwise_with_a_multiplier(rng):
    for many, stride in itertools.product((1, 2, 3), (1, 2)):
        x, w = rng.normal(size=(2, 5, 4, 3)), rng.normal(size=(3, 2, 1, 3 * many))
        b = rng.normal(size=3 * many)
        f = lambda x, w, b, s=stride: conv.depthwise_conv(x, w, b, stride=s, padding=1)
        wanted = naive(x, w, b, stride=(stride,) * 2, pads=((1, 1),) * 2, groups=3)
        assert_close(f(x, w, b), wanted)
        leaves = [rg.tensor(v, requires_grad=True) for v in (x, w, b)]
        rg.sum(f(*leaves)).backward()
        assert [t.grad.shape for t in leaves] == [v.shape for v in (x, w, b)]
        check_grads(f, x, w, b)


def test_separable_is_two_convs(rng):
    x, deep, point = (rng.normal(size=s) for s in ((2, 5, 5, 3), (3, 3, 1, 6), (6, 4)))
    b = rng.normal(size=4)
    wanted = naive(naive(x, deep, pads=((1, 1),) * 2, groups=3), point[None, None], b)
    for w in (point, point[None, None]):
        assert_close(conv.separable_conv(x, deep, w, b, padding="same"), wanted)
    check_grads(lambda *xs: conv.separable_conv(*xs, padding="same"), x, deep, point, b)


def test_layouts(rng):
    for axes, word in ((1, "NCL"), (2, "NCHW"), (3, "NCDHW")):
        x, w = rng.normal(size=(2, *(5,) * axes, 3)), rng.normal(size=(*(2,) * axes, 3, 4))
        plain = conv.conv(x, w, stride=2)
        other = conv.conv(np.moveaxis(x, -1, 1), w, stride=2, layout=word)
        assert_close(np.moveaxis(np.asarray(other), 1, -1), plain)
        assert_close(conv.conv(x, w, stride=2, layout=word.replace("C", "") + "C"), plain)
        again = conv.conv_transpose(np.moveaxis(x, -1, 1), w, layout=word)
        assert_close(np.moveaxis(np.asarray(again), 1, -1), conv.conv_transpose(x, w))


# -- derivatives ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_all_orders_over_geometries(seed):
    for x, w, options, pads in geometries(6, 100 + seed):
        check_grads(lambda x, w, o=options, p=pads: conv.conv(x, w, padding=p, **o), x, w)


def test_third_order(rng):
    x, w = rng.normal(size=(1, 4, 2)), rng.normal(size=(2, 1, 2))
    check_grads(lambda x, w: rg.sin(conv.conv(x, w, groups=2)), x, w, order=3)


def test_N2_input_gradient_for_all_channel_counts(rng):
    for deep, wide, groups in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3)):
        x = rng.normal(size=(2, 4, 3, deep * groups))
        w = rng.normal(size=(2, 3, deep, wide * groups))
        leaf = rg.tensor(x, requires_grad=True)
        g = rng.normal(size=(2, 3, 1, wide * groups))
        conv.conv(leaf, w, groups=groups).backward(g)
        for at in [(0, 0, 0, 0), (1, 3, 2, deep * groups - 1), (1, 1, 1, groups - 1)]:
            unit = np.zeros_like(x)
            unit[at] = 1
            assert_close(np.asarray(leaf.grad)[at], np.sum(g * naive(unit, w, groups=groups)))


def test_vmap_of_everything(rng):
    x, w = rng.normal(size=(3, 2, 5, 4)), rng.normal(size=(3, 2, 2, 4))
    f = lambda x, w: conv.conv(x, w, padding=1, groups=2)
    both = rg.vmap(f)(x, w)
    assert_close(both, np.stack([np.asarray(f(a, b)) for a, b in zip(x, w, strict=True)]))
    per_sample = rg.vmap(rg.grad(lambda w, x: rg.sum(f(x[None], w) ** 2)), in_axes=(None, 0))(
        rg.asarray(w[0]), rg.asarray(x[0])
    )
    assert_close(
        rg.sum(per_sample, axis=0),
        rg.grad(lambda w: rg.sum(f(rg.asarray(x[0]), w) ** 2))(rg.asarray(w[0])),
    )


# -- bytes and speed --------------------------------------------------------------------------


def kept(loss):
    return rg.debug.graph(loss).nbytes


def test_what_is_kept(rng):
    x, w = rng.normal(size=(2, 8, 8, 4)), rng.normal(size=(3, 3, 4, 5))
    both = [rg.tensor(v, requires_grad=True) for v in (x, w)]
    assert kept(rg.sum(conv.conv(*both, padding=1))) == x.nbytes + w.nbytes
    assert kept(rg.sum(conv.conv(both[0], w, padding=1))) == w.nbytes
    assert kept(rg.sum(conv.conv(x, both[1], padding=1))) == x.nbytes


def peak(f):
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_columns_never_exist():
    """25 times the input would be 118 MB here; all three ops stay near their operands."""
    x, w = np.ones((4, 96, 96, 32), "f"), np.ones((5, 5, 32, 16), "f")
    bordered, y = 4 * 100 * 100 * 32 * 4, np.ones((4, 96, 96, 16), "f")
    own = ((1, 1), (1, 1), (2, 2), 1)
    for op, *operands in (
        (convolution.Conv(*own, (96, 96)), x, w),
        (convolution.ConvInput(*own, (96, 96)), y, w),
        (convolution.ConvWeight(*own, (5, 5)), x, y),
    ):
        most = op.workspace(*(rg.asarray(v).spec for v in operands)) + x.nbytes + 2**20
        assert peak(lambda op=op, vs=operands: op.forward(*vs)) <= most
        assert most < 3 * bordered + columns.TILE


def test_N25_backward_is_few_large_products(monkeypatch, rng):
    """Not one small product for each place and position, of which there are 25 * 2304.

    Of NumPy's: the kernels of heavy eager ops are turned off.
    """
    monkeypatch.setattr(executor.slot, "forward", lambda *_: None)
    monkeypatch.setattr(executor.slot, "pull", lambda *_: None)
    x, w = (
        rng.normal(size=(4, 24, 24, 8)).astype("f"),
        rng.normal(size=(5, 5, 8, 8)).astype("f"),
    )
    leaves = [rg.tensor(v, requires_grad=True) for v in (x, w)]
    calls, matmul = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda *a, **k: calls.append(1) or matmul(*a, **k))
    for stride in (1, 2):
        rg.sum(conv.conv(*leaves, stride=stride, padding=2)).backward()
    assert 0 < len(calls) < 20


# -- what is refused --------------------------------------------------------------------------

X, W = np.ones((2, 5, 5, 4)), np.ones((3, 3, 4, 6))


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda: conv.conv(X, W[..., :3, :]), rg.ShapeError, "x (2, 5, 5, 4) has 4 channels"),
        (lambda: conv.conv(X, W, groups=2), rg.ShapeError, "for 4 in each of 2 groups"),
        (lambda: conv.conv(X, W[..., :2, :5], groups=2), rg.ShapeError, "5 out channels"),
        (lambda: conv.conv(X[0], W), rg.ShapeError, "as many axes"),
        (lambda: conv.conv(X[0, 0], W[0, 0]), rg.ShapeError, "at least one spatial axis"),
        (lambda: conv.conv(X, W, np.ones(5)), rg.ShapeError, "each of 6 out channels"),
        (lambda: conv.conv(X, W, stride=0), rg.ArgumentError, "stride must be at least 1"),
        (lambda: conv.conv(X, W, dilation=(1, 0)), rg.ArgumentError, "dilation must be"),
        (lambda: conv.conv(X, W, stride=(1, 1, 1)), rg.ArgumentError, "3 numbers for 2"),
        (lambda: conv.conv(X, W, stride=1.5), rg.ArgumentError, "must be an integer"),
        (lambda: conv.conv(X, W, stride=(1.0, 1.0)), rg.ArgumentError, "must be an integer"),
        (lambda: conv.conv(X, W, padding=2**61), rg.ShapeError, "more elements than memory"),
        (lambda: conv.depthwise_conv(X[..., :0], W[..., :1, :0]), rg.ShapeError, "no channels"),
        (lambda: conv.conv(X, W, groups=0), rg.ArgumentError, "groups must be at least 1"),
        (lambda: conv.conv(X, W, padding=-1), rg.ArgumentError, "must not be negative"),
        (lambda: conv.conv(X, W, padding="full"), rg.ArgumentError, "'full' is not one of"),
        (lambda: conv.conv(X, W, padding=(1, 2, 3)), rg.ArgumentError, "for each of 2"),
        (lambda: conv.conv(X, W, padding=((1, 2, 3), 0)), rg.ArgumentError, "(before, after)"),
        (lambda: conv.conv(X, W, layout="HWNC"), rg.ArgumentError, "does not name the 4 axes"),
        (lambda: conv.conv(X, W, layout="NCL"), rg.ArgumentError, "does not name the 4 axes"),
        (lambda: conv.conv(X, np.ones((6, 1, 4, 2))), rg.ShapeError, "spatial axis 0 has 5"),
        (lambda: conv.conv(X, W, dilation=3), rg.ShapeError, "with dilation 3 spans 7"),
        (lambda: conv.conv(X, W[:0]), rg.ArgumentError, "kernel must be at least 1"),
        (
            lambda: conv.conv_transpose(X, W, output_padding=1),
            rg.ArgumentError,
            "output_padding 1 must be less than the stride 1",
        ),
        (lambda: conv.conv_transpose(X, W, padding=4), rg.ShapeError, "leaves a result"),
        (lambda: conv.conv_transpose(X[:, :0], W), rg.ShapeError, "must not be 0"),
        (lambda: conv.depthwise_conv(X, W), rg.ShapeError, "in each of 4 groups"),
        (lambda: conv.separable_conv(X, W[..., :1, :4], W), rg.ShapeError, "of one place"),
        (lambda: patches.im2col(X, 6), rg.ShapeError, "spans 6 places"),
        (lambda: patches.col2im(X, 5, 3), rg.ShapeError, "has (3, 3) windows of 9 places"),
    ],
)
def test_Y22_refusals_are_errors_that_say_what_is_right(f, error, sentence):
    with pytest.raises(error) as raised:
        f()
    assert sentence in str(raised.value)


def test_Y21_conv1d_refuses_other_channels(rng):
    with pytest.raises(rg.ShapeError, match="channels"):
        conv.conv(rng.normal(size=(1, 8, 3)), rng.normal(size=(3, 4, 2)))


def test_Y23_large_strides_are_whole_numbers(rng):
    """A stride of 65537 is not a stride of 1, forwards or backwards."""
    x, w = rng.normal(size=(1, 65539, 1)), rng.normal(size=(2, 1, 1))
    leaf = rg.tensor(x, requires_grad=True)
    out = conv.conv(leaf, w, stride=65537)
    wanted = x[:, [0, 65537]] * w[0] + x[:, [1, 65538]] * w[1]
    assert_close(out, wanted)
    rg.sum(out).backward()
    assert np.flatnonzero(np.asarray(leaf.grad)).tolist() == [0, 1, 65537, 65538]
    huge = conv.conv(x[:, :3], w, stride=2**62)
    assert huge.shape == (1, 1, 1)


def test_Y11_full_geometry(rng):
    """All options together, in each number of dimensions, also deformed."""
    for axes in (1, 2, 3):
        options = {"stride": (2,) * axes, "dilation": (2,) * axes, "groups": 2}
        x, w = rng.normal(size=(2, *(6,) * axes, 4)), rng.normal(size=(*(2,) * axes, 2, 6))
        pads = ((1, 0),) * axes
        assert_close(
            conv.conv(x, w, padding=pads, **options), naive(x, w, pads=pads, **options)
        )
        y = conv.conv_transpose(x, w, padding=pads, output_padding=1, **options)
        assert y.shape == (2, *(13,) * axes, 6)
        out = conv.conv(x, w, padding=pads, **options)
        zero = np.zeros((*out.shape[:-1], 2 * 2**axes * axes))
        mask = np.ones((*out.shape[:-1], 2 * 2**axes))
        assert_close(deform.deform_conv(x, zero, w, mask=mask, padding=pads, **options), out)


def test_Y12_one_path(rng):
    """With and without a tape, traced or not, the same op runs: padding is never dropped."""
    x, w = rng.normal(size=(1, 4, 4, 4, 2)), rng.normal(size=(3, 3, 3, 2, 2))
    plain = conv.conv(x, w, padding=1)
    leaf = rg.tensor(x, requires_grad=True)
    recorded = conv.conv(leaf, w, padding=1)
    pushed, _ = rg.jvp(lambda x: conv.conv(x, w, padding=1), (x,), (x,))
    for out in (recorded.detach(), pushed):
        assert np.array_equal(np.asarray(out), np.asarray(plain))
    assert_close(plain, naive(x, w, pads=((1, 1),) * 3))


# -- patches ----------------------------------------------------------------------------------


def test_im2col_is_a_conv_without_weights(rng):
    for x, w, options, pads in geometries(20, 9):
        options.pop("groups")
        kernel, deep = w.shape[:-2], x.shape[-1]
        rows = patches.im2col(x, kernel, padding=pads, **options)
        full = rng.normal(size=(*kernel, deep, 3))
        wanted = naive(x, full, pads=pads, **options)
        assert_close(rows @ full.reshape(-1, 3), wanted)
        back = rng.normal(size=rows.shape)
        folded = patches.col2im(back, x.shape[1:-1], kernel, padding=pads, **options)
        assert folded.shape == x.shape
        assert_close(rg.sum(folded * x), rg.sum(rows * back))


# -- deformable -------------------------------------------------------------------------------


def between(x, at):
    """x [*sizes, C] at one real position, linear along each axis, zero outside."""
    low, total = np.floor(at).astype(int), np.zeros(x.shape[-1])
    for corner in itertools.product((0, 1), repeat=len(at)):
        i = low + corner
        part = np.where(corner, at - low, 1 - (at - low))
        if all(0 <= a < n for a, n in zip(i, x.shape, strict=False)):
            total += np.prod(part) * x[tuple(i)]
    return total


def naive_deform(x, offset, w, mask, *, stride, pads, dilation, groups):
    kernel, counts, axes = w.shape[:-2], offset.shape[1:-1], x.ndim - 2
    places = list(itertools.product(*map(range, kernel)))
    many = offset.shape[-1] // (len(places) * axes)
    offset = offset.reshape(*offset.shape[:-1], many, len(places), axes)
    mask = mask.reshape(*mask.shape[:-1], many, len(places))
    each = x.shape[-1] // many
    out = np.zeros((len(x), *counts, w.shape[-1]))
    for n, *o in itertools.product(range(len(x)), *map(range, counts)):
        cols = np.zeros((len(places), x.shape[-1]))
        for t, place in enumerate(places):
            own = np.array(o) * stride + np.array(place) * dilation - [p[0] for p in pads]
            for g in range(many):
                part = slice(g * each, (g + 1) * each)
                at = own + offset[(n, *o, g, t)]
                cols[t, part] = between(x[n][..., part], at) * mask[(n, *o, g, t)]
        seen = naive(cols[None], w.reshape(len(places), *w.shape[-2:]), groups=groups)
        out[(n, *o)] = seen[0, 0]
    return out


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv_is_its_definition(axes, many, masked, rng):
    options = {"stride": (2, 1, 1)[:axes], "dilation": (1, 2, 1)[:axes], "groups": 2}
    pads = ((1, 0), (1, 1), (0, 0))[:axes]
    x, w = rng.normal(size=(2, *(4, 3, 3)[:axes], 4)), rng.normal(size=(*(2,) * axes, 2, 6))
    counts = conv.conv(x, w, padding=pads, **options).shape[1:-1]
    offset = rng.uniform(-3, 3, (2, *counts, many * 2**axes * axes))
    mask = rng.normal(size=(2, *counts, many * 2**axes)) if masked else None
    f = lambda x, o, w, *m: deform.deform_conv(
        x, o, w, mask=m[0] if m else None, padding=pads, **options
    )
    given = np.ones((2, *counts, many * 2**axes)) if mask is None else mask
    out = f(x, offset, w, *([mask] if masked else []))
    assert_close(out, naive_deform(x, offset, w, given, pads=pads, **options))


def test_deform_conv_twice_differentiable_in_all_operands(rng):
    x, w = rng.normal(size=(1, 4, 4, 2)), rng.normal(size=(2, 2, 2, 2))
    offset = rng.integers(-1, 2, (1, 3, 3, 8)) + rng.uniform(0.2, 0.8, (1, 3, 3, 8))
    mask, b = rng.normal(size=(1, 3, 3, 4)), rng.normal(size=2)
    check_grads(
        lambda x, o, w, m, b: deform.deform_conv(x, o, w, b, mask=m), x, offset, w, mask, b
    )
    check_grads(deform.deform_conv, x, offset, w)


def test_deform_conv_keeps_its_inputs(rng):
    x, w = rng.normal(size=(2, 6, 6, 8)), rng.normal(size=(3, 3, 8, 4))
    offset, mask = rng.normal(size=(2, 4, 4, 18)), rng.normal(size=(2, 4, 4, 9))
    leaves = [rg.tensor(v, requires_grad=True) for v in (x, offset, w, mask)]
    loss = rg.sum(deform.deform_conv(*leaves[:3], mask=leaves[3]))
    assert kept(loss) == sum(v.nbytes for v in (x, offset, w, mask))


def test_deform_conv_far_away_is_zero_and_stays_finite(rng):
    """Offsets beyond the border are zeros, whatever x holds; NaN stays where it is."""
    x, w = rng.normal(size=(1, 3, 3, 1)), rng.normal(size=(1, 1, 1, 1))
    x[0, 0, 0] = np.inf
    offset = np.full((1, 3, 3, 2), 1e30)
    offset[0, 1, 1] = (0.25, 0.5)
    offset[0, 2, 2] = np.nan
    leaves = [rg.tensor(v, requires_grad=True) for v in (x, offset, w)]
    out = deform.deform_conv(*leaves)
    found = np.asarray(out)[0, :, :, 0]
    assert np.isfinite(found[1, 1])
    assert np.isnan(found[2, 2])
    assert np.count_nonzero(found) == 2
    offset[0, 2, 2] = -1e30
    leaf = rg.tensor(x, requires_grad=True)
    rg.sum(deform.deform_conv(leaf, offset, w)).backward()
    assert np.isfinite(np.asarray(leaf.grad)).all()


def test_deform_conv_refuses(rng):
    x, w = np.ones((1, 4, 4, 3)), np.ones((2, 2, 3, 2))
    with pytest.raises(rg.ShapeError, match=r"must be \[1, 3, 3\] and a multiple of 8"):
        deform.deform_conv(x, np.ones((1, 3, 3, 7)), w)
    with pytest.raises(rg.ShapeError, match="3 channels cannot have 2 groups of offsets"):
        deform.deform_conv(x, np.ones((1, 3, 3, 16)), w)
    with pytest.raises(rg.ShapeError, match="do not fit each other"):
        deform.deform_conv(x, np.ones((1, 3, 3, 8)), w, mask=np.ones((1, 3, 3, 3)))


def test_deform_table(rng):
    from retrograd.ops.nn.deform_sample import Corners, DeformSample

    for cls in (Corners, DeformSample, deform.DeformConv):
        for op, *arrays in cls.samples(np.random.default_rng(3)):
            check_op(op, *arrays)
        for op, *arrays, sentence in cls.refuses(np.random.default_rng(3)):
            check_refuses(op, arrays, sentence)


def test_the_op_refuses_what_would_read_beyond_memory():
    one = convolution.Conv((1,), (1,), (0,), 1, (2,))
    with pytest.raises(rg.ShapeError):
        apply(one, np.ones((2, 3, 4)), np.ones((2, 5, 5)))
