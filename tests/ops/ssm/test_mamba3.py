"""Mamba-3's scan: forms, algorithms, ranks, steps, and the token that never ends."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops.ssm import mamba3_coefficients as coefficients
from retrograd.ops.ssm import quaternion as quat
from retrograd.ops.ssm import rotation
from retrograd.ops.ssm.mamba3 import mamba3_scan, mamba3_step
from retrograd.ops.ssm.mamba3_limit import mamba3_limit
from retrograd.ops.ssm.mamba3_ssd import double_ssd, single_ssd
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

ALGORITHMS = ("minimal", "serial", "recompute")
FORMS = ("single", "double")


def operands(rng, m=2, b=2, s=7, h=4, p=3, g=2, r=4, dtype=np.float64):
    v = rng.normal(size=(b, s, m, h, p))
    B, C = rng.normal(size=(2, b, s, m, g, r))
    dt, lam = rng.uniform(0.05, 0.8, (b, s, h)), rng.uniform(0.1, 0.9, (b, s, h))
    A, D = -rng.uniform(0.3, 2, (b, s, h)), rng.normal(size=h)
    start = rng.normal(size=(b, h, p, r))
    v0, B0 = rng.normal(size=(b, m, h, p)), rng.normal(size=(b, m, g, r))
    return [t.astype(dtype) for t in (v, dt, A, lam, B, C, D, start, v0, B0)]


def looped(v, dt, A, lam, B, C, D, H, v0, B0):
    """The recurrence, in NumPy."""
    q = v.shape[3] // B.shape[3]
    B, C, B0 = np.repeat(B, q, 3), np.repeat(C, q, 3), np.repeat(B0, q, 2)
    y = np.empty_like(v)
    wide = lambda t: t[..., None, None]
    for t in range(v.shape[1]):
        alpha, gamma = np.exp(dt[:, t] * A[:, t]), lam[:, t] * dt[:, t]
        beta = (1 - lam[:, t]) * dt[:, t] * alpha
        now = np.einsum("bmhp,bmhr->bhpr", v[:, t], B[:, t])
        H = wide(alpha) * H + wide(beta) * np.einsum("bmhp,bmhr->bhpr", v0, B0)
        H = H + wide(gamma) * now
        y[:, t] = np.einsum("bhpr,bmhr->bmhp", H, C[:, t]) + D[:, None] * v[:, t]
        v0, B0 = v[:, t], B[:, t]
    return y, H


def called(**options):
    def f(v, dt, A, lam, B, C, D, start, v0, B0):
        given = {"D": D, "initial": start, "previous": (v0, B0)}
        return mamba3_scan(v, dt, A, lam, B, C, **given, **options)

    return f


def stepped(v, dt, A, lam, B, C, D, H, v0, B0):
    ys = []
    for t in range(v.shape[1]):
        now = (v[:, t], dt[:, t], A[:, t], lam[:, t], B[:, t], C[:, t])
        y, H = mamba3_step(H, *now, D=D, previous=(v0, B0))
        v0, B0 = v[:, t], B[:, t]
        ys.append(y)
    return rg.stack(ys, axis=1), H


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("m", [1, 2])
def test_is_the_recurrence(rng, form, algorithm, m):
    args = operands(rng, m)
    got = called(form=form, algorithm=algorithm, chunk=4)(*args)
    assert_close(got, looped(*args))


@pytest.mark.parametrize(("m", "s", "groups"), [(1, 7, 4), (2, 7, 2), (3, 4, 1), (2, 1, 4)])
def test_forms_algorithms_and_steps_agree_with_gradients(rng, everything, m, s, groups):
    args = operands(rng, m, s=s, g=groups)
    want = everything(stepped, args)
    for form in FORMS:
        for algorithm in ALGORITHMS:
            got = everything(called(form=form, algorithm=algorithm, chunk=4), args)
            assert_close(got, want)


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_calls_take_turns(rng, everything, first, second):
    """States and previous tokens of either form continue either form."""
    args = operands(rng)

    def halves(v, dt, A, lam, B, C, D, H, v0, B0):
        ys = []
        for form, t in ((first, slice(0, 3)), (second, slice(3, None))):
            part = [x[:, t] for x in (v, dt, A, lam, B, C)]
            given = {"D": D, "initial": H, "previous": (v0, B0), "form": form, "chunk": 2}
            y, H = mamba3_scan(*part, **given)
            v0, B0 = part[0][:, -1], part[4][:, -1]
            ys.append(y)
        return rg.concat(ys, axis=1), H

    assert_close(everything(halves, args), everything(called(), args))


def test_one_rank_needs_no_axis(rng, everything):
    args = operands(rng, 1)
    squeezed = [t[:, :, 0] if t.ndim == 5 else t for t in args[:7]]
    squeezed += [args[7], args[8][:, 0], args[9][:, 0]]
    for f in (called(), called(form="double"), stepped):
        (y, H), grads = everything(f, args)
        (y1, H1), grads1 = everything(f, squeezed)
        assert_close([y1, H1], [y[:, :, 0], H])
        for g, g1 in zip(grads, grads1, strict=True):
            assert_close(g1, g.reshape(g1.shape))
    v, dt, A, lam, B, C, *_ = args
    y, _ = mamba3_scan(v, dt, A, lam, B, C)
    y1, _ = mamba3_scan(v[:, :, 0], dt, A, lam, B[:, :, 0], C[:, :, 0])
    assert_close(y1, np.asarray(y)[:, :, 0])


def test_an_absent_past_is_zero(rng):
    *args, D, start, v0, B0 = operands(rng)
    want = called()(*args, D, 0 * start, 0 * v0, 0 * B0)
    for form in FORMS:
        assert_close(mamba3_scan(*args, D=D, form=form), want)


def test_the_past_matters(rng):
    *args, start, v0, B0 = operands(rng)
    base = called()(*args, start, v0, B0)[0]
    for other in ((start + 1, v0, B0), (start, v0 + 1, B0), (start, v0, B0 + 1)):
        assert float(rg.max(rg.abs(called()(*args, *other)[0] - base))) > 1e-3


def test_no_tokens(rng):
    args = operands(rng, s=0)
    for form in FORMS:
        for algorithm in ALGORITHMS:
            y, final = called(form=form, algorithm=algorithm)(*args)
            assert y.shape == args[0].shape
            assert_close(final, args[7])


@pytest.mark.parametrize("form", ["single", "double"])
def test_recompute_keeps_only_its_inputs(rng, form):
    v, dt, A, lam, B, C, _, start, *_ = operands(rng, b=1, s=256, p=16, r=16, g=4, dtype="f")
    gamma = lam * dt
    args = (v, dt * A, B, C) + ((gamma, gamma) if form == "single" else ())
    leaves = [rg.tensor(t).requires_grad_() for t in (*args, start)]
    run = single_ssd if form == "single" else double_ssd
    y, _ = run(*leaves[:-1], initial=leaves[-1])
    assert rg.debug.graph(y).nbytes == sum(t.nbytes for t in (*args, start))
    serial, _ = run(*leaves[:-1], initial=leaves[-1], algorithm="serial")
    assert rg.debug.graph(serial).nbytes > 4 * rg.debug.graph(y).nbytes


def test_the_single_form_keeps_about_half_of_the_double(rng):
    args = operands(rng, b=1, s=256, p=16, r=16, g=4, dtype="f")
    leaves = [rg.tensor(t).requires_grad_() for t in args]
    single, double = (rg.debug.graph(called(form=form)(*leaves)[0]).nbytes for form in FORMS)
    assert single < 0.6 * double


# -- coefficients ----------------------------------------------------------------------------


def test_trapezoid_is_of_second_order():
    """h' = -h + x(t), x = cos t: halving the step quarters the error, for lam = 1/2."""
    errors = []
    for steps in (50, 100):
        dt = np.full((steps, 1), 2.0 / steps)
        x = np.cos(np.arange(1, steps + 1) * 2.0 / steps)[:, None, None]
        one = np.ones((steps, 1, 1))
        _, H = mamba3_scan(
            x,
            dt,
            -np.ones_like(dt),
            np.full_like(dt, 0.5),
            one,
            one,
            previous=(np.ones((1, 1)), np.ones((1, 1))),
        )
        exact = (np.cos(2.0) + np.sin(2.0) - np.exp(-2.0)) / 2
        errors.append(abs(float(np.asarray(H).squeeze()) - exact))
    assert 3.8 < errors[0] / errors[1] < 4.2


def test_lam_one_is_mamba2(rng):
    v, dt, A, _, B, C, *_ = operands(rng, 1)
    one = np.ones_like(dt)
    y, H = mamba3_scan(v, dt, A, one, B, C)
    want, state = double_ssd(v * dt[:, :, None, :, None], dt * A, B, C)
    assert_close((y, H), (want, state))


@pytest.mark.parametrize("kind", ["softplus", "heavy_tail"])
def test_raw_coefficients(rng, kind):
    raw = rng.normal(size=(3, 2, 5, 4))
    bias = rng.normal(size=4)
    dt, A, lam = coefficients.mamba3_coefficients(*raw, dt_bias=bias, A_map=kind)
    assert_close(dt, np.logaddexp(raw[0] + bias, 0))
    x = raw[1]
    positive = np.logaddexp(x, 0) if kind == "softplus" else np.where(x > 0, 1 + x, 1 / (1 - x))
    assert_close(A, -positive)
    assert_close(lam, 1 / (1 + np.exp(-raw[2])))
    check_grads(lambda *t: list(coefficients.mamba3_coefficients(*t, A_map=kind)), *raw)


def test_limits_of_coefficients():
    far = np.array([[-50.0, 50.0]])
    dt, A, _ = coefficients.mamba3_coefficients(far, far, far, dt_limit=(0.01, 3.0))
    assert_close(dt, np.array([[0.01, 3.0]]))
    assert float(A[0, 0]) == -1e-4
    with pytest.raises(RetrogradError, match="A_map 'relu' is not one of softplus"):
        coefficients.mamba3_coefficients(far, far, far, A_map="relu")


def test_trapezoid_gradients(rng):
    dt, A, lam = rng.uniform(0.1, 0.9, (3, 2, 5, 4))
    check_grads(lambda *t: list(coefficients.trapezoid(*t)), dt, -A, lam)
    check_grads(coefficients.trapezoid_scale, dt, lam)


# -- turning states --------------------------------------------------------------------------


def turned(kind, B, C, dt, rot, start=None):
    """B and C (b,s,m,h,r) turned, and the last turn."""
    if kind == "quaternion":
        Q = quat.quaternion_scan(quat.quaternion_rotors(rot, dt), axis=1, initial=start)
        wide = rg.expand_dims(Q, axis=2)
        return *(quat.quaternion_rotate(t, wide) for t in (B, C)), Q[:, -1]
    theta, last = rotation.running_angles(
        rotation.rotation_angles(rot, dt), axis=1, initial=start
    )
    wide = rg.expand_dims(theta, axis=2)
    pairing = "interleaved" if B.shape[2] == 1 else "halves"
    return *(rotation.rotate_pairs(t, wide, pairing=pairing) for t in (B, C)), last


@pytest.mark.parametrize("kind", ["complex", "quaternion"])
@pytest.mark.parametrize("m", [1, 2])
def test_turned_scans_are_turned_steps(rng, everything, kind, m):
    """The whole, its halves and single tokens, with the turn carried along."""
    v, dt, A, lam, B, C, *_ = operands(rng, m, g=4)
    rot = rng.normal(size=(2, 7, 4, 1, 3) if kind == "quaternion" else (2, 7, 2))

    def parts(bounds):
        def f(v, dt, A, lam, B, C, rot):
            H, before, angle, ys = None, None, None, []
            for t in bounds:
                now = [x[:, t] for x in (v, dt, A, lam, B, C, rot)]
                b, c, angle = turned(kind, now[4], now[5], now[1], now[6], angle)
                y, H = mamba3_scan(*now[:4], b, c, initial=H, previous=before, chunk=2)
                before = (now[0][:, -1], b[:, -1])
                ys.append(y)
            return rg.concat(ys, axis=1), H, *(() if kind == "complex" else (angle,))

        return f

    args = (v, dt, A, lam, B, C, rot)
    want = everything(parts([slice(None)]), args)
    assert_close(everything(parts([slice(0, 3), slice(3, None)]), args), want)
    assert_close(everything(parts([slice(t, t + 1) for t in range(7)]), args), want)


@pytest.mark.parametrize("kind", ["none", "complex", "partial", "quaternion", "partial blocks"])
@pytest.mark.parametrize("m", [1, 2])
def test_one_token_for_ever(rng, kind, m):
    v, dt, A, lam, B, C, D, *_ = operands(rng, m, b=1, s=1, g=4, r=8)
    dt = 0.3 + 0.3 * dt
    repeat = lambda t: np.repeat(t, 300, 1)
    options, many, sign = {}, [repeat(t) for t in (v, dt, A - 0.3, lam, B, C)], None
    if "block" in kind or kind == "quaternion":
        rot = rng.normal(size=(1, 1, 4, 1 if "partial" in kind else 2, 3))
        options = {"rotors": quat.quaternion_rotors(rot, dt)[0, 0]}
        sign = "quaternion"
    elif kind != "none":
        rot = rng.normal(size=(1, 1, 2 if kind == "partial" else 4))
        options = {"angles": rotation.rotation_angles(rot, dt)[0, 0]}
        options["pairing"] = "interleaved" if m == 1 else "halves"
        sign = "complex"
    if sign:
        many[4], many[5], _ = turned(sign, many[4], many[5], many[1], repeat(rot))
    y, _ = mamba3_scan(*many, D=D)
    one = [t[0, 0] for t in (v, dt, A - 0.3, lam, B, C)]
    assert_close(mamba3_limit(*one, D=D, **options), np.asarray(y)[0, -1], tolerance=1e-9)


@pytest.mark.parametrize("k", [2, 3, 5, 7])
def test_counts_modulo_k(rng, k):
    """No decay, lam 1; a 1 turns the state by 2 pi / k and writes a unit: k points (9.4)."""
    bits = rng.integers(0, 2, (20, 300))
    angle = -2 * np.pi / k * bits[..., None, None]
    theta, _ = rotation.running_angles(angle, axis=1)
    e = np.broadcast_to(np.array([1.0, 0.0]), (20, 300, 1, 2))
    B = rotation.rotate_pairs(e, theta)
    reads = [rotation.rotate_pairs(np.roll(e, i, -1), theta) for i in (0, 1)]
    v, one = bits[..., None, None] * 1.0, np.ones((20, 300, 1))
    y = np.concatenate(
        [np.asarray(mamba3_scan(v, one, 0 * one, one, B, C)[0]) for C in reads], -1
    )[:, :, 0]
    count = np.cumsum(bits, 1) % k
    points = np.stack([y[count == j].mean(0) for j in range(k)])
    assert max(np.abs(y[count == j] - points[j]).max() for j in range(k)) < 1e-10
    gaps = np.linalg.norm(points[:, None] - points, axis=-1) + 9 * np.eye(k)
    assert gaps.min() > 1 - 1e-10


def test_refuses(rng):
    v, dt, A, lam, B, C, *_ = operands(rng)
    with pytest.raises(RetrogradError, match="form 'triple' is not one of single, double"):
        mamba3_scan(v, dt, A, lam, B, C, form="triple")
    with pytest.raises(RetrogradError, match=r"single_ssd: B .* must have shape"):
        mamba3_scan(v, dt, A, lam, B[:, :3], C)
    with pytest.raises(RetrogradError, match="angles or rotors, not both"):
        mamba3_limit(v, dt, A, lam, B, C, angles=dt, rotors=dt)
