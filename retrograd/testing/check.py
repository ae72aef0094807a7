"""check_op and check_grads: the questions of our own test table, for anybody's op.

Each question is one function that raises AssertionError with the op and what differed.
Derivatives are checked in float64: jvp against central differences along one random
direction, vjp as the exact transpose of jvp, then both again of the gradient itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp, linearize
from retrograd.autodiff.reverse import flat_vjp
from retrograd.core import dtype as dt
from retrograd.core.errors import DerivativeError, RetrogradError
from retrograd.core.interpret import PURE, RAW, apply, compute, using
from retrograd.core.op import Composite, Op
from retrograd.core.quiet import loud, quiet
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.testing.compare import DIFFERENCE, assert_close
from retrograd.testing.reference import run_lower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def outputs(out: Any) -> list[Any]:
    """Results as a list."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def run(op: Op, arrays: Sequence[Any]) -> list[np.ndarray]:
    """forward on arrays, as arrays."""
    token = quiet()
    try:
        with using(RAW if isinstance(op, Composite) else PURE):
            return [np.asarray(o) for o in outputs(compute(op, arrays))]
    finally:
        loud(token)


def moving(op: Op, arrays: Sequence[Any]) -> list[int]:
    """Positions of the inputs to differentiate."""
    refused = [op.inputs.index(name) for name in op.refused]
    return [
        i for i in op.moving(len(arrays)) if dt.is_inexact(arrays[i].dtype) and i not in refused
    ]


def smooth(op: Op, arrays: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Tensor]]:
    """The op as a function of its differentiable inputs, to its differentiable outputs."""
    where = moving(op, arrays)

    def f(*xs: Any) -> list[Any]:
        full: list[Any] = [Tensor(np.asarray(a)) for a in arrays]
        for i, x in zip(where, xs, strict=True):
            full[i] = x
        return [o for o in outputs(apply(op, *full)) if dt.is_inexact(o.dtype)]

    return f, [Tensor(np.asarray(arrays[i])) for i in where]


def direction(rng: Any, like: Sequence[Any]) -> list[Tensor]:
    """One random direction for each tensor, complex where it is complex."""
    out = []
    for x in like:
        t = rng.normal(size=x.shape)
        if x.dtype.kind == "c":
            t = t + 1j * rng.normal(size=x.shape)
        out.append(Tensor(np.asarray(t).astype(x.dtype)))
    return out


def pairing(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The bilinear pairing that vjp is the transpose under: Re(sum a * b)."""
    return float(
        sum(
            np.real(np.sum(x.array * y.array))
            for x, y in zip(a, b, strict=True)
            if x is not None
        )
    )


def difference(f: Callable[..., Any], xs: Sequence[Tensor], ts: Sequence[Tensor]) -> list[Any]:
    """The central difference of f along ts, in float64, of fourth order."""
    eps = 1e-3
    points = {}
    for k in (-2, -1, 1, 2):
        moved = [
            Tensor(np.asarray(x.array + k * eps * t.array)) for x, t in zip(xs, ts, strict=True)
        ]
        points[k] = [o.array for o in f(*moved)]
    return [
        (a - 8 * b + 8 * c - d) / (12 * eps)
        for a, b, c, d in zip(*(points[k] for k in (-2, -1, 1, 2)), strict=True)
    ]


def check_shape(op: Op, arrays: Sequence[Any]) -> None:
    """The shape rule tells what forward gives."""
    found = [spec_of(o) for o in run(op, arrays)]
    told = op.shape(*(spec_of(np.asarray(a)) for a in arrays))
    told = [told] if isinstance(told, Spec) else list(told)
    if found != told:
        raise AssertionError(
            f"{op}: shape says {list(map(str, told))}; forward gives {list(map(str, found))}"
        )


def check_jvp(op: Op, arrays: Sequence[Any], rng: Any) -> None:
    """jvp against central differences, and linearize against jvp."""
    f, xs = smooth(op, arrays)
    ts = direction(rng, xs)
    out, pushed = jvp(f, xs, ts)
    if not hasattr(op, "law"):
        assert_close(pushed, difference(f, xs, ts), tolerance=DIFFERENCE, what=f"{op} jvp")
    _, linear = linearize(f, *xs)
    assert_close(linear(*ts), pushed, what=f"{op} linearize")
    if [o.spec for o in out] != [t.spec for t in pushed]:
        raise AssertionError(f"{op}: a tangent has another shape or dtype than its value")


def check_vjp(op: Op, arrays: Sequence[Any], rng: Any) -> None:
    """<g, J t> = <J' g, t>, for each input apart: exact to rounding."""
    f, xs = smooth(op, arrays)
    outs, pull = flat_vjp(f, xs)
    gs = direction(rng, outs)
    cotangents = pull(gs)
    ts = direction(rng, xs)
    for i, (x, t, c) in enumerate(zip(xs, ts, cotangents, strict=True)):
        alone = [t if i == j else Tensor(np.zeros_like(y.array)) for j, y in enumerate(xs)]
        _, pushed = jvp(f, xs, alone)
        left = pairing(gs, pushed)
        right = 0.0 if c is None else pairing([c], [t])
        size = sum(
            float(np.sum(np.abs(p.array * g.array))) for p, g in zip(pushed, gs, strict=True)
        )
        if not abs(left - right) <= 1e-11 * max(1.0, size):
            raise AssertionError(
                f"{op}: input {i}: <g, Jt> = {left!r} but <J'g, t> = {right!r}"
            )
        if c is not None and c.spec != x.spec:
            raise AssertionError(f"{op}: the cotangent of input {i} is {c.spec}, not {x.spec}")


def check_second_order(op: Op, arrays: Sequence[Any], rng: Any) -> None:
    """The gradient of a nonlinear function of the op, differentiated again both ways."""
    f, xs = smooth(op, arrays)
    gs = direction(rng, f(*xs))

    def gradient(*ys: Any) -> list[Any]:
        outs, pull = flat_vjp(f, ys)
        seeds = [o * g for o, g in zip(outs, gs, strict=True)]  # of sum(g * out**2) / 2
        zeros = [Tensor(np.zeros_like(x.array)) for x in xs]
        return [z if c is None else c for c, z in zip(pull(seeds), zeros, strict=True)]

    ts = direction(rng, xs)
    out, pushed = jvp(gradient, xs, ts)
    if not hasattr(op, "law"):
        wanted = difference(gradient, xs, ts)
        assert_close(pushed, wanted, tolerance=DIFFERENCE, what=f"{op} second order")
    us = direction(rng, out)
    _, pull = flat_vjp(gradient, xs)
    left, right = pairing(us, pushed), pairing(pull(us), ts)
    size = sum(
        float(np.sum(np.abs(p.array * u.array))) for p, u in zip(pushed, us, strict=True)
    )
    if not abs(left - right) <= 1e-10 * max(1.0, size):
        raise AssertionError(f"{op}: second order: <u, Ht> = {left!r} but <H'u, t> = {right!r}")


def check_law(op: Any, arrays: Sequence[Any], rng: Any) -> None:
    """The samples of a random op move with its parameters so that `law` stays as it is.

    A sampler that rejects jumps where its parameters move, so that differences of it say
    nothing. Such an op has `law(self, *inputs, out)`, the distribution function at each
    sample; along the parabola of the first two derivatives it is constant to third order.
    """
    f, xs = smooth(op, arrays)
    ts = direction(rng, xs)
    out, first = jvp(f, xs, ts)
    _, second = jvp(lambda *ys: jvp(f, ys, ts)[1], xs, ts)

    def along(e: float) -> np.ndarray:
        full = [np.asarray(a) for a in arrays]
        for i, x, t in zip(moving(op, arrays), xs, ts, strict=True):
            full[i] = x.array + e * t.array
        path = zip(out, first, second, strict=True)
        return op.law(*full, *(o.array + e * (d.array + e / 2 * s.array) for o, d, s in path))

    eps = 1e-3
    a, b, c, d, e = (along(k * eps) for k in (-2, -1, 0, 1, 2))
    slopes = [
        (a - 8 * b + 8 * d - e) / (12 * eps),
        (16 * (b + d) - a - 30 * c - e) / (12 * eps**2),
    ]
    assert_close(slopes, [np.zeros_like(c)] * 2, tolerance=DIFFERENCE, what=f"{op} law")


def check_batch(op: Op, arrays: Sequence[Any], rng: Any) -> None:
    """vmap over stacked inputs equals a loop; also with each input alone unmapped."""
    if not arrays:
        return
    arrays = [np.asarray(a) for a in arrays]
    stacked = [np.stack([a, _varied(rng, a)]) for a in arrays]
    choices: list[Any] = [tuple(0 for _ in arrays)]
    if len(arrays) > 1:
        choices += [
            tuple(None if i == j else 0 for j in range(len(arrays))) for i in range(len(arrays))
        ]
    for axes in choices:
        given = [s if a == 0 else x for s, a, x in zip(stacked, axes, arrays, strict=True)]
        found = outputs(vmap(lambda *xs: apply(op, *xs), in_axes=axes)(*given))
        rows = [
            run(op, [g[i] if a == 0 else g for g, a in zip(given, axes, strict=True)])
            for i in range(2)
        ]
        wanted = [np.stack(column) for column in zip(*rows, strict=True)]
        assert_close(found, wanted, what=f"{op} vmap in_axes={axes}")


def _varied(rng: Any, a: np.ndarray) -> np.ndarray:
    """Other values as valid as `a`: its own, rearranged."""
    return rng.permutation(a.reshape(-1)).reshape(a.shape) if a.ndim else a.copy()


def check_keeps(op: Op, arrays: Sequence[Any]) -> None:
    """What lies on the tape is what the rules' signatures name."""
    leaves = [Tensor(np.asarray(a)) for a in arrays]
    for i in moving(op, arrays):
        leaves[i].requires_grad_()
    out = outputs(apply(op, *leaves))
    node = next((o._node for o in out if o._node is not None), None)
    mask = sum(1 << i for i in moving(op, arrays))
    recipe = op.reverse(mask) if mask else None
    if node is None or recipe is None:
        return
    node = node.parents[0] if type(node).__name__ == "Pick" else node
    values = (tuple(leaves), *out) if op.variadic else (*leaves, *out)
    promised = {id(v.array) for k in recipe.keeps if not k.spec for v in _flat(values[k.index])}
    for kept in _flat(node.kept):
        if isinstance(kept, np.ndarray) and id(kept) not in promised:
            raise AssertionError(f"{op}: keeps an array that its rules do not name")


def _flat(value: Any) -> list[Any]:
    return [v for u in value for v in _flat(u)] if isinstance(value, tuple) else [value]


def check_lower(op: Op, arrays: Sequence[Any]) -> None:
    """The kernel says what forward says."""
    if hasattr(op, "lower"):
        assert_close(run_lower(op, arrays), run(op, arrays), what=f"{op} lower")
    elif hasattr(op, "expand"):
        with using(PURE):
            found = outputs(op.expand(*(Tensor(np.asarray(a)) for a in arrays)))
        assert_close(found, run(op, arrays), what=f"{op} expand")


def check_refuses(op: Op, arrays: Sequence[Any], sentence: str) -> None:
    """Bad operands get an error of ours with the promised sentence, eager and by shape."""
    try:
        apply(op, *arrays)
    except RetrogradError as error:
        if sentence not in str(error):
            raise AssertionError(
                f"{op}: refuses, but says {error!s}; promised {sentence!r}"
            ) from error
        return
    raise AssertionError(f"{op}: takes what it should refuse: {sentence!r}")


def check_no_derivative(op: Op, arrays: Sequence[Any]) -> None:
    """An op without a derivative says why, if its result could have carried one."""
    f, xs = smooth(op, arrays)
    if not xs or not f(*xs):
        return
    try:
        outs, pull = flat_vjp(f, xs)
        pull([Tensor(np.ones_like(o.array)) for o in outs])
    except DerivativeError as error:
        if op.no_derivative not in str(error):
            raise AssertionError(
                f"{op}: the error does not give the reason: {error}"
            ) from error
        return
    raise AssertionError(f"{op}: says it has no derivative, but gives one")


def check_refused(op: Op, arrays: Sequence[Any]) -> None:
    """An input that has no derivative says why when it is asked for one."""
    for name, reason in op.refused.items():
        at = op.inputs.index(name)

        def alone(x: Any, at: int = at) -> list[Any]:
            full = [Tensor(np.asarray(a)) for a in arrays]
            return outputs(apply(op, *full[:at], x, *full[at + 1 :]))

        try:
            outs, pull = flat_vjp(alone, [Tensor(np.asarray(arrays[at]))])
            pull([Tensor(np.ones_like(o.array)) for o in outs])
        except DerivativeError as error:
            if reason in str(error):
                continue
            raise AssertionError(f"{op}: {name} is refused for another reason") from error
        raise AssertionError(f"{op}: says it has no derivative in {name}, but gives one")


def check_op(op: Op, *arrays: Any, seed: int = 0) -> None:
    """Ask one op all questions on one sample: shape, jvp, vjp, second order, vmap, keeps."""
    arrays = tuple(np.asarray(a) for a in arrays)
    rng = np.random.default_rng(seed)
    check_shape(op, arrays)
    check_lower(op, arrays)
    check_batch(op, arrays, rng)
    check_refused(op, arrays)
    if op.no_derivative:
        check_no_derivative(op, arrays)
        return
    f, xs = smooth(op, arrays)
    if not xs or not f(*xs):
        return
    check_jvp(op, arrays, rng)
    check_vjp(op, arrays, rng)
    check_second_order(op, arrays, rng)
    if hasattr(op, "law"):
        check_law(op, arrays, rng)
    check_keeps(op, arrays)


def check_grads(f: Callable[..., Any], *primals: Any, order: int = 2, seed: int = 0) -> None:
    """The derivatives of any function of float64 tensors, both modes, to `order`."""
    rng = np.random.default_rng(seed)
    xs = [
        Tensor(np.asarray(p.array if isinstance(p, Tensor) else p, np.float64)) for p in primals
    ]

    def flat(*ys: Any) -> list[Any]:
        return outputs(f(*ys))

    ts = direction(rng, xs)
    _, pushed = jvp(flat, xs, ts)
    assert_close(pushed, difference(flat, xs, ts), tolerance=DIFFERENCE, what="check_grads jvp")
    outs, pull = flat_vjp(flat, xs)
    gs = direction(rng, outs)
    found = pull(gs)
    left, right = pairing(gs, pushed), pairing(found, ts)
    size = sum(
        float(np.sum(np.abs(p.array * g.array))) for p, g in zip(pushed, gs, strict=True)
    )
    if not abs(left - right) <= 1e-10 * max(1.0, size):
        raise AssertionError(f"check_grads: <g, Jt> = {left!r} but <J'g, t> = {right!r}")
    if order > 1:

        def gradient(*ys: Any) -> list[Any]:
            outs, pull = flat_vjp(flat, ys)
            zeros = [Tensor(np.zeros_like(x.array)) for x in xs]
            seeds = [o * g for o, g in zip(outs, gs, strict=True)]
            return [z if c is None else c for c, z in zip(pull(seeds), zeros, strict=True)]

        check_grads(gradient, *xs, order=order - 1, seed=seed + 1)
