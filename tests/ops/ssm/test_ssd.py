"""Mamba-2's SSD: three algorithms, one meaning; what is kept; what is dangerous."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops.ssm import layout, ssd_chunks, ssd_plain
from retrograd.ops.ssm.ssd import ssd, ssd_step
from retrograd.testing.compare import assert_close

ALGORITHMS = ("minimal", "serial", "recompute")


def operands(rng, b=2, s=11, h=4, p=3, g=2, r=5, dtype=np.float64):
    x, B, C = (rng.normal(size=n) for n in ((b, s, h, p), (b, s, g, r), (b, s, g, r)))
    dt, A = rng.uniform(0.05, 0.6, (b, s, h)), -rng.uniform(0.3, 2, h)
    D, start = rng.normal(size=h), rng.normal(size=(b, h, p, r))
    return [t.astype(dtype) for t in (x, dt, A, B, C, D, start)]


def looped(x, dt, A, B, C, D, start):
    """The recurrence, in NumPy."""
    q = x.shape[2] // B.shape[2]
    B, C = np.repeat(B, q, 2), np.repeat(C, q, 2)
    H, y = start, np.empty_like(x)
    for t in range(x.shape[1]):
        write = np.einsum("bh,bhp,bhr->bhpr", dt[:, t], x[:, t], B[:, t])
        H = np.exp(dt[:, t] * A)[..., None, None] * H + write
        y[:, t] = np.einsum("bhpr,bhr->bhp", H, C[:, t]) + D[:, None] * x[:, t]
    return y, H


def called(**options):
    return lambda x, dt, A, B, C, D, h: ssd(x, dt, A, B, C, D=D, initial=h, **options)


def stepped(x, dt, A, B, C, D, h):
    ys = []
    for t in range(x.shape[1]):
        y, h = ssd_step(h, x[:, t], dt[:, t], A, B[:, t], C[:, t], D=D)
        ys.append(y)
    return rg.stack(ys, axis=1), h


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("chunk", [1, 4, 16, None])
def test_is_the_recurrence(rng, algorithm, chunk):
    args = operands(rng)
    assert_close(called(algorithm=algorithm, chunk=chunk)(*args), looped(*args))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("s", [1, 4, 12])
def test_algorithms_and_steps_agree_with_gradients(rng, everything, groups, s):
    args = operands(rng, s=s, g=groups)
    want = everything(stepped, args)
    for algorithm in ALGORITHMS:
        assert_close(everything(called(algorithm=algorithm, chunk=4), args), want)


def test_a_split_sequence_is_the_whole(rng, everything):
    args = operands(rng)

    def halves(x, dt, A, B, C, D, h):
        first, h = ssd(x[:, :5], dt[:, :5], A, B[:, :5], C[:, :5], D=D, initial=h, chunk=4)
        second, h = ssd(x[:, 5:], dt[:, 5:], A, B[:, 5:], C[:, 5:], D=D, initial=h, chunk=4)
        return rg.concat([first, second], axis=1), h

    assert_close(everything(halves, args), everything(called(chunk=4), args))


def test_the_initial_state_matters(rng):
    *args, start = operands(rng)
    moved = called()(*args, start + 1)[0] - called()(*args, start)[0]
    assert float(rg.max(rg.abs(moved))) > 1e-3


def test_states_and_rates_may_be_shared_or_absent(rng, everything):
    x, dt, A, B, C, D, start = operands(rng)
    zero = np.zeros_like(start)
    assert_close(ssd(x, dt, A, B, C), called()(x, dt, A, B, C, 0 * D, zero))

    def shared(x, h):
        return ssd(x, dt, A, B, C, initial=h)

    def repeated(x, h):
        return ssd(x, dt, A, B, C, initial=rg.broadcast_to(h, (2, *h.shape)))

    assert_close(everything(shared, (x, start[0])), everything(repeated, (x, start[0])))
    assert_close(ssd(x[0], dt[0], A, B[0], C[0])[0], ssd(x, dt, A, B, C)[0][0])
    many = [t[None, :, None] for t in (x, dt, B, C)]
    assert_close(ssd(*many[:2], A, *many[2:])[0], ssd(x, dt, A, B, C)[0][None, :, None])


def test_no_tokens(rng):
    x, dt, A, B, C, D, start = operands(rng, s=0)
    for algorithm in ALGORITHMS:
        y, final = called(algorithm=algorithm)(x, dt, A, B, C, D, start)
        assert y.shape == x.shape
        assert_close(final, start)


@pytest.mark.parametrize(
    "sizes", [(0, 5, 2, 3, 4), (2, 5, 0, 3, 4), (2, 5, 2, 0, 4), (2, 5, 2, 3, 0)]
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_axes(rng, everything, sizes, algorithm):
    b, s, h, p, r = sizes
    args = operands(rng, b, s, h, p, 1, r)
    (y, final), grads = everything(called(algorithm=algorithm), args)
    assert (y.shape, final.shape) == ((b, s, h, p), (b, h, p, r))
    assert [g.shape for g in grads] == [a.shape for a in args]


def test_views_and_halves(rng):
    """Parts of one projection, as in a block; and storage in half precision."""
    x, dt, A, B, C, *_ = operands(rng)
    flat = rg.asarray(np.concatenate([t.reshape(2, 11, -1) for t in (x, B, C)], -1))
    pieces = zip(rg.split(flat, [12, 10, 10], axis=-1), (x, B, C), strict=True)
    parts = [rg.reshape(t, like.shape) for t, like in pieces]
    want = ssd(x, dt, A, B, C)
    assert_close(ssd(parts[0], dt, A, *parts[1:]), want)
    swapped = rg.moveaxis(rg.asarray(np.ascontiguousarray(np.moveaxis(x, 1, 0))), 0, 1)
    assert_close(ssd(swapped, dt, A, B, C), want)
    half = ssd(*(t.astype(np.float16) for t in (x, dt, A, B, C)))
    assert half[0].dtype == rg.float16
    assert_close(list(half), [np.asarray(t, np.float16) for t in want])


def test_chunks_by_default():
    """Scores take as much room as states, and no more than the sequence needs."""
    length = layout.chunk_length
    assert [length("ssd", None, s, 64, 64) for s in (5, 40, 4096)] == [16, 64, 64]
    assert length("ssd", None, 4096, 64, 128) == 96
    assert length("ssd", None, 4096, 64, 64, m=4) == 16
    assert length("ssd", None, 1 << 20, 1024, 1024) == 512
    assert length("ssd", 7, 3, 64, 64) == 7


@pytest.mark.parametrize("length", [256, 1024])
def test_recompute_keeps_only_its_inputs(rng, length):
    args = operands(rng, b=1, s=length, h=4, p=16, g=1, r=16, dtype=np.float32)
    leaves = [rg.tensor(t).requires_grad_() for t in args]
    y, _ = called()(*leaves)
    assert rg.debug.graph(y).nbytes == sum(t.nbytes for t in args)
    joint = y._node.parents[0]
    assert {id(k) for k in joint.kept} == {id(t.array) for t in leaves}


@pytest.mark.parametrize("algorithm", ["serial", "minimal"])
def test_compositions_keep_what_their_ops_keep_but_one_program_its_inputs(rng, algorithm):
    for length, heavy in ((32, False), (1024, True)):
        args = operands(rng, b=1, s=length, h=4, p=16, g=1, r=16, dtype=np.float32)
        leaves = [rg.tensor(t).requires_grad_() for t in args]
        kept = rg.debug.graph(called(algorithm=algorithm)(*leaves)[0]).nbytes
        inputs = sum(t.nbytes for t in args)
        assert kept == inputs if heavy else kept > 2 * inputs


def test_backward_of_one_result_only(rng):
    """The other one's cotangent is zero."""
    args = operands(rng)
    for i in (0, 1):
        outs, pull = rg.vjp(lambda *xs: list(called()(*xs)), *map(rg.asarray, args))
        seeds = [rg.ones_like(o) if i == j else rg.zeros_like(o) for j, o in enumerate(outs)]
        _, alone = rg.vjp(lambda *xs, i=i: called()(*xs)[i], *map(rg.asarray, args))
        assert_close(alone(seeds[i]), pull(seeds))


def test_strong_decays_are_finite_and_right(rng, everything):
    """exp of what lies above the diagonal would be inf, and 0 * inf nan."""
    x, dt, A, B, C, D, start = operands(rng, s=40)
    args = [x, dt * 400, A * 10, B, C, D, start]
    want = everything(stepped, args)
    for algorithm in ALGORITHMS:
        got = everything(called(algorithm=algorithm, chunk=16), args)
        assert_close(got, want)
    small = [t.astype(np.float32) for t in args]
    for g, w in zip(called(chunk=16)(*small), want[0], strict=True):
        assert_close(g, w.astype(np.float32), tolerance=2e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_float32_of_a_long_sequence(rng, algorithm):
    """Differences of sums over all chunks would be off by 4e-3 here."""
    args = operands(rng, b=1, s=4096, h=2, p=4, g=1, r=4)
    args[1] *= 20
    small = [t.astype(np.float32) for t in args]
    y, final = called(algorithm=algorithm, chunk=64)(*small)
    want = called(chunk=64)(*(t.astype(np.float64) for t in small))
    assert y.dtype == rg.float32
    assert_close([y, final], [np.asarray(w, np.float32) for w in want], tolerance=2e-5)


def test_the_gradient_of_decays_has_its_oracle(rng):
    """Of one chunk: rows of dcs are (y - D x).g, less what the columns are (spec 3.7)."""
    x, dt, A, B, C, D, start = operands(rng, s=8, g=4)
    g = rng.normal(size=x.shape)
    zero = np.zeros_like(start)
    # everything but decay inside the chunk: the final state gets no cotangent
    v = ssd_chunks.Operands(
        x[:, :, None], dt * A, B[:, :, None], C[:, :, None], None, dt, start
    )
    got = ssd_chunks.backward(g[:, :, None], zero, v, 8)
    y, _ = looped(x, dt, A, B, C, 0 * D, start)
    dcs = np.diff(got.da, axis=1, append=0.0) * -1  # undo the suffix sum
    assert_close(dcs, np.sum(y * g, -1) - dt * got.scale)


def test_segsum_adds_each_segment_on_its_own(rng):
    x = rng.normal(size=(2, 5))
    got = np.asarray(ssd_plain.segsum(x))
    for t in range(5):
        for s in range(5):
            want = x[:, s + 1 : t + 1].sum(-1) if s <= t else np.full(2, -np.inf)
            assert_close(got[:, t, s], want)
    far = np.asarray(ssd_plain.segsum(np.array([0.0, 1e30, 1.0, 2.0])))
    assert far[3, 1] == 3.0


def test_bits_do_not_change(rng):
    args = [t.astype(np.float32) for t in operands(rng)]
    a, b = called()(*args), called()(*args)
    assert all((np.asarray(x) == np.asarray(y)).all() for x, y in zip(a, b, strict=True))


def test_refuses(rng):
    x, dt, A, B, C, *_ = operands(rng)
    with pytest.raises(RetrogradError, match="algorithm 'fast' is not one of recom"):
        ssd(x, dt, A, B, C, algorithm="fast")
    with pytest.raises(RetrogradError, match="chunk must be positive"):
        ssd(x, dt, A, B, C, chunk=0)
    for algorithm in ALGORITHMS:
        with pytest.raises(RetrogradError, match=r"dt \(2, 11\) must have shape"):
            ssd(x, dt[..., 0], A, B, C, algorithm=algorithm)
