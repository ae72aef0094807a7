"""Attention in tiles, held to its plain twin; what it keeps; rotary embedding and ALiBi."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ops.nn import tiles
from retrograd.ops.nn.alibi import alibi_bias, alibi_slopes
from retrograd.ops.nn.attention import attention, attention_reference, multi_head_attention
from retrograd.ops.nn.attention_ops import Attention
from retrograd.ops.nn.rotary import rotary
from retrograd.testing import check
from retrograd.testing.compare import assert_close


def operands(rng, *, batch=2, tq=5, tk=6, heads=4, kinds=2, d=3, dv=2):
    sizes = (batch, tq, heads, d), (batch, tk, kinds, d), (batch, tk, kinds, dv)
    return [rng.normal(size=s) for s in sizes]


def both(f, *xs):
    """The result of f, and the gradients of a sum with weights that all differ."""

    def loss(*xs):
        out = f(*xs)
        weights = np.sin(1 + np.arange(out.size)).reshape(out.shape)
        return (out * rg.asarray(weights)).sum()

    xs = [rg.asarray(x) for x in xs]
    return [f(*xs), *rg.grad(loss, argnums=tuple(range(len(xs))))(*xs)]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of so many rows and scores."""

    def small(rows, scores):
        monkeypatch.setattr(tiles, "ROWS", rows)
        monkeypatch.setattr(tiles, "SCORES", scores)

    return small


# -- tiles against the twin --------------------------------------------------------------------

OPTIONS = {
    "plain": lambda rng: {},
    "causal": lambda rng: {"causal": True},
    "window": lambda rng: {"window": 2},
    "lopsided": lambda rng: {"window": (3, None), "causal": True},
    "to the right": lambda rng: {"window": (None, 1), "scale": 2.0},
    "mask": lambda rng: {"mask": rng.random((2, 4, 9, 11)) > 0.5},
    "mask of keys": lambda rng: {"mask": rng.random((2, 1, 1, 11)) > 0.5, "causal": True},
    "bias": lambda rng: {"bias": rng.normal(size=(4, 9, 11))},
    "bias of keys": lambda rng: {"bias": rng.normal(size=11), "window": 4},
    "bias of queries": lambda rng: {"bias": rng.normal(size=(2, 1, 9, 1))},
    "additive mask": lambda rng: {"mask": np.where(rng.random((9, 11)) > 0.4, 0.0, -np.inf)},
    "slopes": lambda rng: {"slopes": rng.random(4)},
    "dropout": lambda rng: {"dropout": 0.4, "key": rg.random.key(3)},
    "all": lambda rng: {
        "mask": rng.random((9, 11)) > 0.3,
        "bias": rng.normal(size=(2, 1, 1, 11)),
        "slopes": rng.random(4),
        "causal": True,
        "window": 7,
        "dropout": 0.2,
        "key": rg.random.key(5),
    },
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    ("rows", "scores"), [(1, 1), (2, 8), (4, 16), (6, 200), (128, 1 << 17)]
)
def test_tiles_agree_with_the_twin(name, rows, scores, small_tiles, rng):
    small_tiles(rows, scores)
    options = OPTIONS[name](rng)
    xs = operands(rng, tq=9, tk=11)
    moving = [n for n in ("bias", "slopes") if n in options]

    def by(f):
        def g(q, k, v, *rest):
            return f(q, k, v, **options | dict(zip(moving, rest, strict=True)))

        return both(g, *xs, *(options[n] for n in moving))

    assert_close(by(attention), by(attention_reference), what=name)


@given(
    st.integers(0, 3),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]),
    st.sampled_from([None, 0, 1, 3, (0, 2), (None, 2), (2, None)]),
    st.booleans(),
    st.integers(1, 40),
)
def test_all_geometries(batch, tq, tk, heads, window, causal, scores):
    rng = np.random.default_rng(0)
    xs = operands(rng, batch=batch, tq=tq, tk=tk, heads=heads[0], kinds=heads[1])
    options = {"window": window, "causal": causal}
    before = tiles.ROWS, tiles.SCORES
    tiles.ROWS, tiles.SCORES = 1 + scores % 5, scores
    try:
        found = both(lambda *xs: attention(*xs, **options), *xs)
    finally:
        tiles.ROWS, tiles.SCORES = before
    assert_close(found, both(lambda *xs: attention_reference(*xs, **options), *xs))


def test_the_twin_is_softmax(rng):
    """The twin itself, against NumPy."""
    q, k, v = operands(rng, heads=2)
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(3)
    p = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    assert_close(attention_reference(q, k, v), np.einsum("bhij,bjhd->bihd", p, v))


@pytest.mark.parametrize("name", ["causal", "mask of keys", "dropout", "all"])
def test_derivatives_of_every_order_and_mode(name, rng):
    options = OPTIONS[name](rng) | {"scale": 0.7}
    xs = operands(rng, tq=9, tk=11)
    check.check_grads(lambda *xs: attention(*xs, **options), *xs)


# -- named after the defect --------------------------------------------------------------------


def kept(length, **options):
    """Bytes on the tape for sequences of a length, in float32."""
    xs = operands(np.random.default_rng(0), batch=2, tq=length, tk=length, kinds=4, d=8, dv=8)
    xs = [rg.tensor(x.astype(np.float32), requires_grad=True) for x in xs]
    return rg.debug.graph(attention(*xs, **options)).nbytes


def test_Y29_bytes_kept_are_linear_in_the_length():
    """q, k, v, the result, and one number for each query and head."""
    for length in (64, 128, 256):
        assert kept(length, causal=True) == 2 * length * 4 * (4 * 8 + 1) * 4


def test_Y29_batches_heads_and_masks(rng):
    q, k, v = operands(rng, batch=3, heads=6, kinds=2)
    mask = rng.random((3, 6, 5, 6)) > 0.3
    out = attention(q, k, v, mask=mask)
    assert out.shape == (3, 5, 6, 2)
    for b in range(3):
        for h in range(6):
            one = [a[b : b + 1, :, j : j + 1] for a, j in ((q, h), (k, h // 3), (v, h // 3))]
            alone = attention(*one, mask=mask[b, h])
            assert_close(out[b, :, h], alone[0, :, 0])


def test_Y29_memory_in_flight_is_linear_in_the_length(rng):
    """Forward and backward at 2048 need less than one matrix of scores would."""
    length = 2048
    xs = operands(rng, batch=1, tq=length, tk=length, heads=2, d=8, dv=8)
    xs = [rg.tensor(x.astype(np.float32), requires_grad=True) for x in xs]
    tracemalloc.start()
    attention(*xs, causal=True).sum().backward()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * length * length * 4 / 4


@pytest.mark.parametrize("size", [(1, 300, 700, 4, 2), (2, 1, 600, 8, 8), (8, 32, 16, 2, 1)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_workspace_is_enough(size, dropout, rng):
    """What forward and backward hold beside their operands and results."""
    batch, tq, tk, heads, kinds = size
    q, k, v = operands(rng, batch=batch, tq=tq, tk=tk, heads=heads, kinds=kinds, d=8, dv=16)
    parts = ("key",) if dropout else ()
    op = Attention(1.0, None, 3, dropout, parts)
    key = [np.zeros(2, np.uint32)] * len(parts)
    out, lse = room(op, q, k, v, *key)
    room(op.grad(), q, k, v, lse, out, lse, *key)


def room(op, *xs):
    """Run forward; no more memory than the op says may be used beside the results."""
    tracemalloc.start()
    outs = op.forward(*xs)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - left <= op.workspace(*map(spec_of, xs))
    return outs


# -- rows that see nothing, and large numbers --------------------------------------------------


@pytest.mark.parametrize("hidden", ["mask", "bias", "causal", "none"])
def test_queries_that_see_no_key_give_0_with_gradient_0(hidden, rng):
    tk = 0 if hidden == "none" else 3
    xs = operands(rng, tq=5, tk=tk)
    mask = np.ones((5, tk), bool)
    mask[1] = mask[4] = False
    options = {
        "mask": {"mask": mask},
        "bias": {"bias": np.where(mask, 0, -np.inf)},
        "causal": {"causal": True},  # aligned at the ends: the first two see nothing
        "none": {},
    }[hidden]
    blind = {"causal": [0, 1], "none": list(range(5))}.get(hidden, [1, 4])
    out, dq, *_ = found = both(lambda *xs: attention(*xs, **options), *xs)
    assert all(np.isfinite(np.asarray(f)).all() for f in found)
    assert not np.asarray(out)[:, blind].any()
    assert not np.asarray(dq)[:, blind].any()
    seen = [i for i in range(5) if i not in blind]
    assert np.asarray(out)[:, seen].all()
    check.check_grads(lambda *xs: attention(*xs, **options), *xs)


def test_large_scores_do_not_overflow(rng):
    q, k, v = (x.astype(np.float32) for x in operands(rng))
    found = both(attention, q * 1e4, k * 1e4, v)
    assert all(np.isfinite(np.asarray(f)).all() for f in found)
    best = np.einsum("bihgd,bjhd->bihgj", q.reshape(2, 5, 2, 2, 3), k).argmax(-1)
    wanted = np.stack([v[b, best[b, :, h], h] for b in range(2) for h in range(2)])
    assert_close(found[0], np.moveaxis(wanted.reshape(2, 2, 5, 2, 2), 1, 2).reshape(2, 5, 4, 2))


def test_nan_is_not_hidden(rng):
    q, k, v = operands(rng)
    k[0, 2] = np.nan
    out = np.asarray(attention(q, k, v))
    assert np.isnan(out[0]).all()
    assert np.isfinite(out[1]).all()


# -- options -----------------------------------------------------------------------------------


def test_causal_is_aligned_at_the_ends(rng):
    """A last query beside old keys sees what it saw among all queries."""
    q, k, v = operands(rng, tq=6, tk=6)
    whole = attention(q, k, v, causal=True)
    for n in (1, 2, 5):
        assert_close(attention(q[:, -n:], k, v, causal=True), whole[:, -n:])


@pytest.mark.parametrize("window", [0, 2, (1, 0), (None, 2), (3, None)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_is_a_mask(window, causal, rng):
    xs = operands(rng, tq=5, tk=7)
    left, right = window if isinstance(window, tuple) else (window, window)
    p, j = np.arange(5)[:, None] + 2, np.arange(7)
    mask = (j >= p - (9 if left is None else left)) & (j <= p + (9 if right is None else right))
    mask &= (j <= p) | (not causal)
    assert_close(
        attention(*xs, window=window, causal=causal),
        attention(*xs, mask=mask),
    )


def test_groups_share_keys(rng):
    q, k, v = operands(rng, heads=6, kinds=2)
    wide = attention(q, np.repeat(k, 3, axis=2), np.repeat(v, 3, axis=2))
    assert_close(attention(q, k, v), wide)


def test_a_boolean_mask_is_an_additive_one(rng):
    xs, mask = operands(rng), rng.random((5, 6)) > 0.4
    added = np.where(mask, 0.0, -np.inf)
    assert_close(attention(*xs, mask=mask), attention(*xs, mask=added))
    bias = rng.normal(size=(5, 6))
    assert_close(attention(*xs, mask=added, bias=bias), attention(*xs, mask=mask, bias=bias))


def test_dropout_by_a_key(rng):
    xs = operands(rng, tq=40, tk=50, d=8)
    f = lambda key, rate=0.3: attention(*xs, dropout=rate, key=rg.random.key(key))
    np.testing.assert_array_equal(np.asarray(f(1)), np.asarray(f(1)))
    assert np.asarray(f(1) != f(2)).any()
    np.testing.assert_array_equal(np.asarray(f(1, 0.0)), np.asarray(attention(*xs)))


def test_dropout_drops_as_often_as_it_says():
    """Values that are all 1 count what is left: on average 1, of weights 1 / n each."""
    q, k = np.zeros((4, 30, 2, 1)), np.zeros((4, 100, 2, 1))
    rate = 0.25
    out = np.asarray(attention(q, k, np.ones_like(k), dropout=rate, key=rg.random.key(0)))
    spread = np.sqrt(rate / (1 - rate) / 100)
    assert abs(out.mean() - 1) < 5 * spread / np.sqrt(out.size)
    assert abs(out.std() / spread - 1) < 0.2


def test_slopes_are_alibi(rng):
    xs, slopes = operands(rng, tq=5, tk=8), alibi_slopes(4, dtype=np.float64)
    biased = attention(*xs, bias=alibi_bias(slopes, 5, 8), causal=True)
    assert_close(attention(*xs, slopes=slopes, causal=True), biased)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes_stay(dtype, rng):
    xs = operands(rng)
    low = [rg.tensor(x.astype(dtype), requires_grad=True) for x in xs]
    out = attention(*low, bias=np.zeros((5, 6), dtype))
    (out * out).sum().backward()
    assert {t.dtype for t in (out, *(x.grad for x in low))} == {np.dtype(dtype)}
    assert_close(out, attention(*xs), tolerance=2e-2 if dtype == np.float16 else 1e-5)


def test_integers_become_floats():
    x = np.ones((1, 2, 1, 2), np.int64)
    assert attention(x, x, x).dtype == np.float32


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 0, 0)])
@pytest.mark.parametrize("name", ["causal", "bias", "mask", "slopes", "dropout"])
def test_vmap_is_a_loop(axes, name, rng):
    options = OPTIONS[name](rng)
    xs = operands(rng, tq=9, tk=11)
    many = [np.stack([x, -x, 2 * x]) if a == 0 else x for x, a in zip(xs, axes, strict=True)]
    f = lambda *xs: attention(*xs, **options)
    rows = [
        f(*(x[i] if a == 0 else x for x, a in zip(many, axes, strict=True))) for i in range(3)
    ]
    assert_close(rg.vmap(f, in_axes=axes)(*many), rg.stack(rows))
    none = [x[:0] if a == 0 else x for x, a in zip(many, axes, strict=True)]
    assert rg.vmap(f, in_axes=axes)(*none).shape == (0, *rows[0].shape)


def test_gradients_for_each_sample(rng):
    xs, bias = operands(rng), rng.normal(size=(5, 6))
    many = np.stack([xs[0], 2 * xs[0]])
    loss = lambda b, q: (attention(q, *xs[1:], bias=b) ** 2).sum()
    found = rg.vmap(rg.grad(loss), in_axes=(None, 0))(rg.asarray(bias), many)
    assert_close(found, rg.stack([rg.grad(loss)(rg.asarray(bias), q) for q in many]))


def test_a_checkpoint_replays_the_same_dropout(rng):
    xs, options = operands(rng), {"dropout": 0.5, "key": rg.random.key(1)}
    f = lambda *xs: attention(*xs, **options)
    for a, b in zip(both(f, *xs), both(rg.checkpoint(f), *xs), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"q": np.ones((5, 4, 3))}, "q, k and v are [B, T, H, D]; got (5, 4, 3)"),
        ({"k": np.ones((2, 6, 2, 4))}, "must be [B, Tq, H, D], [B, Tk, K, D]"),
        (
            {"k": np.ones((2, 6, 3, 3)), "v": np.ones((2, 6, 3, 2))},
            "q has 4 heads, k and v have 3",
        ),
        ({"mask": np.ones((5, 7), bool)}, "mask (1, 1, 5, 7) does not broadcast to scores"),
        ({"mask": np.ones((5, 6), np.int64)}, "mask is boolean, or of floats"),
        ({"bias": np.ones((1, 1, 1, 5, 6))}, "bias has at most 4 axes"),
        ({"slopes": np.ones(3)}, "slopes (3,) must have shape (4,)"),
        ({"window": -1}, "window is a number from 0 on"),
        ({"window": (1, 2, 3)}, "window is a number from 0 on"),
        ({"dropout": 1.0}, "dropout must be from 0 to less than 1; got 1.0"),
        ({"dropout": 0.5}, "dropout 0.5 needs a key"),
        ({"dropout": 0.5, "key": np.zeros(2)}, "a key is uint32 of shape (2,)"),
        ({"q": np.ones((2, 5, 4, 3), complex)}, "complex numbers have no softmax"),
    ],
)
def test_refusals(change, sentence, rng):
    named = dict(zip("qkv", operands(rng), strict=True)) | change
    data = [named.pop(n) for n in "qkv"]
    with pytest.raises(rg.RetrogradError) as error:
        attention(*data, **named)
    assert sentence in str(error.value)


# -- projections -------------------------------------------------------------------------------


def projections(rng, width=6, heads=4, kinds=2, d=2):
    sizes = (width, heads * d), (width, kinds * d), (width, kinds * d), (heads * d, width)
    return [rng.normal(size=s) for s in sizes]


def test_heads_by_projections(rng):
    x, y = rng.normal(size=(2, 5, 6)), rng.normal(size=(2, 7, 6))
    w_q, w_k, w_v, w_o = ws = projections(rng)
    bs = [rng.normal(size=w.shape[1]) for w in ws]
    q = (x @ w_q + bs[0]).reshape(2, 5, 4, 2)
    k, v = ((y @ w + b).reshape(2, 7, 2, 2) for w, b in ((w_k, bs[1]), (w_v, bs[2])))
    wanted = np.asarray(attention(q, k, v, causal=True)).reshape(2, 5, 8) @ w_o + bs[3]
    named = dict(zip(("b_q", "b_k", "b_v", "b_o"), bs, strict=True))
    found = multi_head_attention(x, y, y, *ws, heads=4, kv_heads=2, causal=True, **named)
    assert_close(found, wanted)


def test_heads_by_projections_with_rotary(rng):
    """One query at the end of a sequence is turned as the last of all."""
    x, ws = rng.normal(size=(2, 5, 6)), projections(rng)
    f = lambda x, y: multi_head_attention(
        x, y, y, *ws, heads=4, kv_heads=2, causal=True, rotary=100.0
    )
    assert_close(f(x[:, -1:], x), f(x, x)[:, -1:])
    plain = multi_head_attention(x, x, x, *ws, heads=4, kv_heads=2, causal=True)
    assert np.abs(np.asarray(plain - f(x, x))).max() > 1e-3


def test_projections_that_do_not_divide(rng):
    x, ws = rng.normal(size=(2, 5, 6)), projections(rng)
    with pytest.raises(rg.ShapeError, match="projected queries"):
        multi_head_attention(x, x, x, *ws, heads=3)


# -- rotary embedding --------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_is_a_product_with_complex_numbers(interleaved, rng):
    x = rng.normal(size=(2, 5, 3, 8))
    pairs = (
        x.reshape(2, 5, 3, 4, 2) if interleaved else np.moveaxis(x.reshape(2, 5, 3, 2, 4), 3, 4)
    )
    angles = (np.arange(5) + 7)[:, None, None] * 100.0 ** (-np.arange(4) / 4)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    wanted = np.stack([turned.real, turned.imag], -1 if interleaved else -2).reshape(x.shape)
    found = rotary(x, base=100.0, offset=7, interleaved=interleaved)
    assert_close(found, wanted)


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_distance_alone(interleaved, rng):
    q, k = rng.normal(size=(1, 1, 1, 8)), rng.normal(size=(1, 1, 1, 8))
    turn = lambda x, p: rotary(x, offset=p, interleaved=interleaved)
    scores = [float((turn(q, p + 3) * turn(k, p)).sum()) for p in (0, 1, 50)]
    assert_close(scores, [scores[0]] * 3)


def test_rotary_is_undone_by_its_gradient(rng):
    x = rng.normal(size=(2, 5, 3, 8))
    y, pull = rg.vjp(rotary, rg.asarray(x))
    assert_close(pull(y)[0], x)
    assert_close((y * y).sum(axis=-1), (x * x).sum(axis=-1))
    check.check_grads(lambda x: rotary(x, features=6, interleaved=True), x)


def test_rotary_by_positions(rng):
    x = rng.normal(size=(2, 4, 3, 6))
    places = np.array([[3, 0, 1, 9], [5, 5, 2, 0]])
    found = rotary(x, positions=places, offset=2)
    for b in range(2):
        for t in range(4):
            one = rotary(x[b : b + 1, t : t + 1], offset=int(places[b, t]) + 2)
            assert_close(found[b, t], one[0, 0])
    assert_close(rotary(x, positions=np.arange(4)), rotary(x))
    mapped = rg.vmap(lambda x, p: rotary(x, positions=p))(x, places)
    assert_close(mapped, rotary(x, positions=places))


def test_rotary_turns_the_first_features(rng):
    x = rng.normal(size=(2, 4, 3, 8))
    found = rotary(x, features=4)
    assert_close(found[..., :4], rotary(x[..., :4]))
    np.testing.assert_array_equal(np.asarray(found[..., 4:]), x[..., 4:])


def test_rotary_is_exact_far_away():
    """In float32 an angle of a million would be off by a tenth of a degree and more."""
    x = np.ones((1, 1, 1, 2), np.float32)
    found = rotary(x, offset=10**6)
    assert found.dtype == np.float32
    wanted = [np.cos(1e6) - np.sin(1e6), np.cos(1e6) + np.sin(1e6)]
    assert_close(found[0, 0, 0], np.array(wanted, np.float32))


def test_rotary_keeps_nothing_of_x(rng):
    x = rg.tensor(rng.normal(size=(4, 8, 16, 6)), requires_grad=True)
    assert rg.debug.graph(rotary(x)).nbytes == 2 * 8 * 3 * 8  # cos and sin


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": np.ones((2, 3))}, "x is [.., T, H, D]"),
        ({"x": np.ones((2, 3, 5))}, "an even number of features"),
        ({"features": 8}, "at most D"),
        ({"base": 0.0}, "base must be above 0"),
        ({"positions": np.ones(2)}, "positions are integers; got float64"),
        ({"positions": np.arange(3)}, "positions (3,) must have shape (2,)"),
    ],
)
def test_rotary_refusals(change, sentence):
    options = {"x": np.ones((2, 3, 4))} | change
    with pytest.raises(rg.RetrogradError) as error:
        rotary(options.pop("x"), **options)
    assert sentence in str(error.value)


# -- ALiBi -------------------------------------------------------------------------------------


def test_alibi_slopes_are_a_geometric_series():
    for heads in (1, 2, 8, 16):
        slopes = np.asarray(alibi_slopes(heads, dtype=np.float64))
        assert_close(slopes[1:], slopes[:-1] * 2 ** (-8 / heads))
        assert slopes[-1] == 2.0**-8
    odd = np.asarray(alibi_slopes(12))
    np.testing.assert_array_equal(odd[:8], np.asarray(alibi_slopes(8)))
    np.testing.assert_array_equal(odd[8:], np.asarray(alibi_slopes(16))[:8:2])


def test_alibi_refusals():
    with pytest.raises(rg.ArgumentError, match="heads must be an integer from 1 on; got 0"):
        alibi_slopes(0)
    with pytest.raises(rg.ShapeError, match="slopes have one axis"):
        alibi_bias(np.ones((2, 2)), 3)
