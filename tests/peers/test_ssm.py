"""Scans agree with loops over time in torch: values, gradients, and second order."""

import numpy as np
import pytest
from peers.against import F, agree, torch

import retrograd as rg
from retrograd.ops.ssm.causal_conv import causal_conv1d
from retrograd.ops.ssm.mamba3 import mamba3_scan
from retrograd.ops.ssm.quaternion import quaternion_rotate, quaternion_rotors, quaternion_scan
from retrograd.ops.ssm.recurrence import linear_recurrence
from retrograd.ops.ssm.rotation import rotate_pairs, rotation_angles, running_angles
from retrograd.ops.ssm.selective import selective_scan
from retrograd.ops.ssm.ssd import ssd
from retrograd.testing.compare import assert_close

pytestmark = pytest.mark.peers("torch")


def same(ours, theirs, arrays, what):
    """Values and gradients; then a product with the Hessian of a nonlinear function."""
    moving = list(range(len(arrays)))
    agree(ours, theirs, arrays, moving, peer="torch", seed=0, what=what)
    draw = np.random.default_rng(1)
    along = [draw.normal(size=a.shape) for a in arrays]

    def loss(*xs):
        return sum((rg.sum(rg.sin(o)) for o in ours(*xs)), start=0.0)

    def slope(*xs):
        found = rg.grad(loss, argnums=tuple(moving))(*xs)
        return sum((rg.sum(g * t) for g, t in zip(found, along, strict=True)), start=0.0)

    got = rg.grad(slope, argnums=tuple(moving))(*map(rg.asarray, arrays))
    xs = [torch.tensor(a, requires_grad=True) for a in arrays]
    total = sum(torch.sin(o).sum() for o in theirs(*xs))
    first = torch.autograd.grad(total, xs, create_graph=True)
    pairs = zip(first, along, strict=True)
    second = torch.autograd.grad(sum((g * torch.tensor(t)).sum() for g, t in pairs), xs)
    assert_close(list(got), [g.numpy(force=True) for g in second], what=f"{what}: second order")


def numbers(rng, *shapes):
    return [rng.normal(size=s) for s in shapes]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("back", [False, True])
def test_linear_recurrence(rng, axis, back):
    a, b, start = rng.uniform(-1, 1, (4, 5)), *numbers(rng, (4, 5), (5,) if axis == 0 else (4,))

    def theirs(a, b, h):
        steps = list(zip(a.unbind(axis), b.unbind(axis), strict=True))
        out = []
        for x, y in steps[::-1] if back else steps:
            h = x * h + y
            out.append(h)
        return (torch.stack(out[::-1] if back else out, axis),)

    def ours(a, b, h):
        return (linear_recurrence(a, b, axis=axis, reverse=back, initial=h),)

    same(ours, theirs, [a, b, start], "linear_recurrence")


@pytest.mark.parametrize(("b", "s", "i", "r"), [(2, 6, 3, 2), (1, 1, 4, 3), (3, 17, 2, 1)])
def test_selective_scan(rng, b, s, i, r):
    u, delta, z, B, C, D, bias, h = numbers(
        rng, (b, s, i), (b, s, i), (b, s, i), (b, s, r), (b, s, r), (i,), (i,), (b, i, r)
    )
    A = -rng.uniform(0.3, 2, (i, r))

    def theirs(u, delta, A, B, C, D, z, bias, h):
        dt, ys = F.softplus(delta + bias), []
        for t in range(s):
            write = (dt[:, t] * u[:, t])[..., None] * B[:, t, None]
            h = torch.exp(dt[:, t, :, None] * A) * h + write
            ys.append((h * C[:, t, None]).sum(-1) + D * u[:, t])
        return torch.stack(ys, 1) * F.silu(z), h

    def ours(*xs):
        return selective_scan(*xs[:-1], delta_softplus=True, initial=xs[-1])

    same(ours, theirs, [u, delta, A, B, C, D, z, bias, h], "selective_scan")


@pytest.mark.parametrize("algorithm", ["minimal", "serial", "recompute"])
@pytest.mark.parametrize(("b", "s", "h", "g"), [(2, 7, 4, 2), (1, 9, 2, 1), (2, 1, 2, 2)])
def test_ssd(rng, algorithm, b, s, h, g):
    p, r = 3, 2
    x, B, C, D, start = numbers(
        rng, (b, s, h, p), (b, s, g, r), (b, s, g, r), (h,), (b, h, p, r)
    )
    dt, A = rng.uniform(0.1, 0.7, (b, s, h)), -rng.uniform(0.3, 2, h)

    def theirs(x, dt, A, B, C, D, H):
        B, C = (t.repeat_interleave(h // g, 2) for t in (B, C))
        ys = []
        for t in range(s):
            write = (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
            H = torch.exp(dt[:, t] * A)[..., None, None] * H + write
            ys.append((H @ C[:, t, :, :, None])[..., 0] + D[:, None] * x[:, t])
        return torch.stack(ys, 1), H

    def ours(x, dt, A, B, C, D, H):
        return ssd(x, dt, A, B, C, D=D, initial=H, chunk=4, algorithm=algorithm)

    same(ours, theirs, [x, dt, A, B, C, D, start], f"ssd {algorithm}")


@pytest.mark.parametrize("form", ["single", "double"])
@pytest.mark.parametrize("algorithm", ["minimal", "serial", "recompute"])
@pytest.mark.parametrize("m", [1, 2])
def test_mamba3(rng, form, algorithm, m):
    b, s, h, p, r = 2, 6, 2, 3, 2
    v, B, C, start, v0, B0 = numbers(
        rng,
        (b, s, m, h, p),
        (b, s, m, h, r),
        (b, s, m, h, r),
        (b, h, p, r),
        (b, m, h, p),
        (b, m, h, r),
    )
    dt, lam = rng.uniform(0.1, 0.7, (2, b, s, h))
    A = -rng.uniform(0.3, 2, (b, s, h))

    def theirs(v, dt, A, lam, B, C, H, v0, B0):
        alpha, gamma = torch.exp(dt * A), lam * dt
        beta, ys = (1 - lam) * dt * alpha, []
        outer = lambda x, y: torch.einsum("bmhp,bmhr->bhpr", x, y)
        for t in range(s):
            wide = [c[:, t, :, None, None] for c in (alpha, beta, gamma)]
            H = wide[0] * H + wide[1] * outer(v0, B0) + wide[2] * outer(v[:, t], B[:, t])
            ys.append(torch.einsum("bhpr,bmhr->bmhp", H, C[:, t]))
            v0, B0 = v[:, t], B[:, t]
        return torch.stack(ys, 1), H

    def ours(v, dt, A, lam, B, C, H, v0, B0):
        given = {"initial": H, "previous": (v0, B0), "chunk": 4}
        return mamba3_scan(v, dt, A, lam, B, C, form=form, algorithm=algorithm, **given)

    same(ours, theirs, [v, dt, A, lam, B, C, start, v0, B0], f"mamba3 {form} {algorithm}")


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_rotation_by_running_angles(rng, pairing):
    x, rot = numbers(rng, (2, 5, 1, 3, 6), (2, 5, 2))
    dt, start = rng.uniform(0.1, 1, (2, 5, 3)), rng.normal(size=(2, 3, 2))

    def theirs(x, rot, dt, start):
        turn = dt[..., None] * (2 * np.pi * torch.tanh(rot))[..., None, :]
        z = torch.exp(1j * (torch.cumsum(turn, 1) + start[:, None])[:, :, None])
        if pairing == "halves":
            pairs = torch.complex(x[..., :2], x[..., 3:5]) * z
            parts = (pairs.real, x[..., 2:3], pairs.imag, x[..., 5:])
            return (torch.cat(parts, -1),)
        pairs = torch.view_as_complex(x[..., :4].reshape(2, 5, 1, 3, 2, 2)) * z
        flat = torch.view_as_real(pairs).reshape(2, 5, 1, 3, 4)
        return (torch.cat([flat, x[..., 4:]], -1),)

    def ours(x, rot, dt, start):
        theta, _ = running_angles(rotation_angles(rot, dt), axis=1, initial=start)
        return (rotate_pairs(x, rg.expand_dims(theta, axis=2), pairing=pairing),)

    same(ours, theirs, [x, rot, dt, start], f"rotate_pairs {pairing}")


def test_rotation_by_quaternions(rng):
    x, rot = numbers(rng, (5, 2, 8), (5, 2, 2, 3))
    dt = rng.uniform(0.1, 1, (5, 2))

    def product(a, b):
        w, u = a[..., :1], a[..., 1:]
        y, v = b[..., :1], b[..., 1:]
        scalar = w * y - (u * v).sum(-1, keepdim=True)
        return torch.cat([scalar, w * v + y * u + torch.linalg.cross(u, v)], -1)

    def theirs(x, rot, dt):
        length = torch.linalg.vector_norm(rot, dim=-1, keepdim=True)
        angle = dt[..., None, None] * 2 * np.pi * torch.tanh(length)
        q = torch.cat([torch.cos(angle / 2), torch.sin(angle / 2) * rot / length], -1)
        Q, total = [], torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
        for t in range(5):
            total = product(q[t], total.expand(2, 2, 4))
            Q.append(total)
        back = torch.stack(Q) * torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)
        return (product(back, x.reshape(5, 2, 2, 4)).reshape(5, 2, 8),)

    def ours(x, rot, dt):
        return (quaternion_rotate(x, quaternion_scan(quaternion_rotors(rot, dt))),)

    same(ours, theirs, [x, rot, dt], "quaternion_rotate")


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("s", [1, 5])
def test_causal_conv1d(rng, k, s):
    x, w, bias, state = numbers(rng, (2, s, 3), (k, 3), (3,), (2, k - 1, 3))

    def theirs(x, w, bias, state):
        both = torch.cat([state, x], 1).transpose(1, 2)
        y = F.conv1d(both, w.T[:, None], bias, groups=3).transpose(1, 2)
        return y, both.transpose(1, 2)[:, s:]

    def ours(x, w, bias, state):
        return causal_conv1d(x, w, bias, state=state)

    same(ours, theirs, [x, w, bias, state], f"causal_conv1d {k} {s}")
