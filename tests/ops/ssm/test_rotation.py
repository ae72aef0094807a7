"""Turning pairs and blocks of four: explicit rotating states are the oracle."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops.ssm import quaternion as quat
from retrograd.ops.ssm import rotation
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close


def turn(x, w, halves):
    """By matrices of two rows, one pair after another."""
    out, r = np.array(x), x.shape[-1]
    for j in range(w.shape[-1]):
        i, k = (j, j + r // 2) if halves else (2 * j, 2 * j + 1)
        c, s = np.cos(w[..., j]), np.sin(w[..., j])
        out[..., i] = c * x[..., i] - s * x[..., k]
        out[..., k] = s * x[..., i] + c * x[..., k]
    return out


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize("angles", [0, 1, 2, 4])
def test_pairs(rng, pairing, angles):
    x, w = rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 1, 5, angles))
    got = rotation.rotate_pairs(x, w, pairing=pairing)
    assert_close(got, turn(x, np.broadcast_to(w, (2, 3, 5, angles)), pairing == "halves"))


def test_turning_b_and_c_forward_turns_the_state_back(rng):
    """C~_t.B~_s = C_t' R(-(theta_t - theta_s)) B_s: the state turns by -w each step."""
    T = 6
    w, B, C = rng.normal(size=(T, 1)), rng.normal(size=(T, 2)), rng.normal(size=(T, 2))
    theta, _ = rotation.running_angles(w)
    turned = [np.asarray(rotation.rotate_pairs(t, theta)) for t in (B, C)]
    explicit, still = np.zeros(2), np.zeros(2)
    for t in range(T):
        explicit = turn(explicit, -w[t], False) + B[t]
        still = still + turned[0][t]
        assert_close(C[t] @ explicit, turned[1][t] @ still)


def test_angles_are_wrapped_and_do_not_drift():
    """In float32, 40,000 angles summed: the error is that of the last rounding."""
    w = np.full((40_000, 1), 2.3, np.float32)
    theta, last = rotation.running_angles(w)
    exact = np.cumsum(w.astype(np.float64), 0)
    assert float(rg.max(rg.abs(theta))) <= np.pi + 1e-6
    off = np.asarray(theta) - exact
    off -= 2 * np.pi * np.round(off / (2 * np.pi))
    assert np.abs(off).max() < 1e-6
    assert_close(last, np.asarray(theta)[-1])


def test_angles_run_on(rng, everything):
    w, start = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 3))

    def whole(w, start):
        return rotation.running_angles(w, axis=1, initial=start)

    def halves(w, start):
        first, middle = rotation.running_angles(w[:, :3], axis=1, initial=start)
        second, last = rotation.running_angles(w[:, 3:], axis=1, initial=middle)
        return rg.concat([first, second], axis=1), last

    def stepped(w, start):
        out = []
        for t in range(7):
            start = rotation.wrap_angles(start + w[:, t])
            out.append(start)
        return rg.stack(out, axis=1), start

    want = everything(whole, (w, start))
    assert_close(everything(halves, (w, start)), want)
    assert_close(everything(stepped, (w, start)), want)
    assert_close(rotation.running_angles(w[:, :0], axis=1, initial=start)[1], start)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(5000,), (5000, 64)], ids=["narrow", "wide"])
def test_the_error_of_an_angle_does_not_grow(rng, shape, compiled):
    """float32 angles of a long walk are those of float64, rounded: eager, and in a kernel."""
    w, start = (rng.uniform(0.5, 2.5, n).astype(np.float32) for n in (shape, shape[1:]))
    f = lambda w, start: rotation.running_angles(w, initial=start)[0]
    got = np.asarray((rg.jit(f) if compiled else f)(w, start))
    want = np.cumsum(w, axis=0, dtype=np.float64) + start
    apart = np.exp(1j * got) - np.exp(1j * want)  # as turns: pi and -pi are the same
    assert np.abs(apart).max() < 4 * np.finfo(np.float32).eps
    assert np.abs(got).max() <= np.float32(np.pi)


def test_increments(rng):
    rot, dt = rng.normal(size=(2, 5, 3)), rng.uniform(size=(2, 5, 4))
    got = rotation.rotation_angles(rot, dt, rotation_range=1.0)
    assert_close(got, dt[..., None] * np.pi * np.tanh(rot)[..., None, :])
    assert_close(rotation.rotation_angles(rot, dt), 2 * np.asarray(got))


def test_wrapping_has_slope_one():
    x = rg.asarray(np.array([-20.0, 0.3, 4.0, 100.0]))
    assert_close(rg.grad(lambda x: rg.sum(rotation.wrap_angles(x)))(x), np.ones(4))


# -- quaternions ---------------------------------------------------------------------------


def units(rng, *shape):
    q = rng.normal(size=(*shape, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def matrix(q):
    """Left multiplication by q, as four columns."""
    return np.stack([np.asarray(quat.quaternion_multiply(q, e)) for e in np.eye(4)], -1)


def test_multiplication_table():
    one, i, j, k = np.eye(4)
    times = quat.quaternion_multiply
    for a, b, c in ((i, j, k), (j, k, i), (k, i, j)):
        assert_close(times(a, b), c)
        assert_close(times(b, a), -c)
        assert_close(times(a, a), -one)
        assert_close(times(one, a), a)


def test_units_turn(rng):
    q = units(rng)
    M = matrix(q)
    assert_close(M @ M.T, np.eye(4))
    assert_close(matrix(quat.quaternion_conjugate(q)), M.T)


@pytest.mark.parametrize("s", [1, 2, 5, 30, 100])
def test_scan_is_the_loop(rng, s, everything):
    q, start = units(rng, 2, s, 3), units(rng, 2, 3)
    want, h = [], start
    for t in range(s):
        h = np.asarray(quat.quaternion_multiply(q[:, t], h))
        want.append(h)
    scan = lambda q, h: (quat.quaternion_scan(q, axis=1, initial=h),)
    compiled = lambda q, h: (rg.jit(scan)(q, h)[0],)
    assert_close(scan(q, start)[0], np.stack(want, 1))
    assert_close(everything(compiled, (q, start)), everything(scan, (q, start)))


def test_a_product_in_a_program_is_that_of_numpy(rng):
    """Sizes that fill vectors and that do not; an operand that is shared; any number."""
    for lead, other in (((1000, 3), (3,)), ((7,), (7,)), ((), (5, 1)), ((0, 2), (1,))):
        a, b = rng.normal(size=(*lead, 4)), rng.normal(size=(*other, 4))
        if a.size > 100:
            a[3, 1], a[5, 0, 2], b[1, 3] = np.inf, np.nan, -0.0
        with np.errstate(invalid="ignore"):
            want = quat.MULTIPLY.forward(a, b)
        got = np.asarray(rg.jit(quat.quaternion_multiply)(a, b))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "f", [quat.quaternion_scan, lambda q: quat.quaternion_multiply(q, np.arange(4.0))]
)
def test_dear_factors_are_computed_once(rng, f):
    """A kernel that reads each of them four times finds them in memory."""
    found = rg.jit(lambda q: f(rg.exp(rg.sin(q)))).explain(units(rng, 300, 5))
    assert len(found.steps) == 2


def test_scan_splits(rng, everything):
    q, start = units(rng, 9, 2), units(rng, 2)

    def halves(q, h):
        first = quat.quaternion_scan(q[:4], initial=h)
        return (rg.concat([first, quat.quaternion_scan(q[4:], initial=first[-1])]),)

    whole = everything(lambda q, h: (quat.quaternion_scan(q, initial=h),), (q, start))
    assert_close(everything(halves, (q, start)), whole)


def test_scan_keeps_its_result_and_start(rng):
    q = rg.tensor(units(rng, 50, 3)).requires_grad_()
    out = quat.quaternion_scan(q)
    assert rg.debug.graph(out).nbytes == out.nbytes + 4 * 8


def test_norms_do_not_drift(rng):
    q = units(rng, 4096, 2).astype(np.float32)
    norms = np.linalg.norm(np.asarray(quat.quaternion_scan(q)), axis=-1)
    assert np.abs(norms - 1).max() < 1e-4


def test_turning_b_and_c_back_turns_the_state(rng):
    """An explicit state that is multiplied by q_t, against one that stands still."""
    T = 7
    q, B, C = units(rng, T, 2), rng.normal(size=(T, 9)), rng.normal(size=(T, 9))
    Q = quat.quaternion_scan(q)
    turned = [np.asarray(quat.quaternion_rotate(t, Q)) for t in (B, C)]
    explicit, still = np.zeros(9), np.zeros(9)
    for t in range(T):
        blocks = quat.quaternion_multiply(q[t], explicit[:8].reshape(2, 4))
        explicit = np.append(np.asarray(blocks).ravel(), explicit[8]) + B[t]
        still = still + turned[0][t]
        assert_close(C[t] @ explicit, turned[1][t] @ still)


def test_rotors_about_one_axis_are_the_complex_rotation(rng):
    """About x, halves of the angle turn (w, x) and (y, z): scores agree with pairs."""
    s, h = 6, 2
    rot, dt = rng.normal(size=(s, 1)), rng.uniform(0.2, 1, (s, h))
    B, C = rng.normal(size=(2, s, h, 4))
    vectors = np.zeros((s, h, 1, 3))
    vectors[..., 0, 0] = rot
    Q = quat.quaternion_scan(quat.quaternion_rotors(vectors, dt))
    angles = rotation.rotation_angles(np.repeat(rot, 2, 1), dt) * -0.5
    theta, _ = rotation.running_angles(angles)
    scores = [
        np.einsum("thr,shr->hts", *(np.asarray(turned(t)) for t in (C, B)))
        for turned in (
            lambda t: quat.quaternion_rotate(t, Q),
            lambda t: rotation.rotate_pairs(t, theta),
        )
    ]
    assert_close(*scores)


def test_rotors_are_units_with_finite_slopes_at_nothing(rng):
    rot, dt = rng.normal(size=(5, 2, 3, 3)), rng.uniform(0.2, 1, (5, 2))
    rot[0] = 0
    q = quat.quaternion_rotors(rot, dt)
    assert_close(np.linalg.norm(np.asarray(q), axis=-1), np.ones((5, 2, 3)))
    assert_close(np.asarray(q)[0], np.broadcast_to(quat.IDENTITY, (2, 3, 4)))
    for dtype in (np.float32, np.float64):
        zero = rg.asarray(np.zeros((1, 1, 3), dtype))
        one = rg.asarray(np.ones(1, dtype))
        jac = rg.jacrev(lambda v, one=one: quat.quaternion_rotors(v, one))(zero)
        jac = np.asarray(jac).reshape(4, 3)
        assert_close(jac[0], np.zeros(3, dtype))
        assert_close(jac[1:], np.pi * np.eye(3, dtype=dtype))  # half of 2 pi
    check_grads(lambda v: quat.quaternion_rotors(v, dt), rot + 0.1)
    check_grads(quat.quaternion_normalize, rot[..., :1] + rng.normal(size=4))


def test_refuses(rng):
    with pytest.raises(RetrogradError, match="pairing 'left' is not one of"):
        rotation.rotate_pairs(np.ones((2, 4)), np.ones((2, 1)), pairing="left")
    with pytest.raises(RetrogradError, match="at most 1"):
        quat.quaternion_rotate(np.ones((2, 5)), np.ones((2, 2, 4)))
    with pytest.raises(RetrogradError, match="blocks, and 3"):
        quat.quaternion_rotors(np.ones((2, 3)), np.ones(2))
