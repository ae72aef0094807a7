"""Mamba-3's SSDs: several ranks that write into one state; the double and the single form.

Per head, with the state H (p, r), and i, j running over the m ranks:

    double   H_t = exp(da_t) H_{t-1} + sum_j v_t[j] B_t[j]'            y_t[i] = H_t C_t[i]
    single   H_t = exp(da_t) H_{t-1} + scale_t sum_j v_t[j] B_t[j]'
             y_t[i] = exp(da_t) H_{t-1} C_t[i] + gamma_t sum_j (C_t[i].B_t[j]) v_t[j]

Each is an op that keeps only its inputs and streams over chunks both ways (`recompute`); a
composition of five kernels (`serial`); and one without any loop (`minimal`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, shape
from retrograd.ops.ssm import layout, ssd_chunks, ssd_plain

__all__ = ["double_ssd", "single_ssd"]


class _Sizes:
    """The lengths of one call, checked."""

    def __init__(self, who: str, v: Any, da: Any, B: Any, C: Any, *rest: Any) -> None:
        layout.check_axes(who, "v", v.shape, "time ranks heads channels")
        layout.check_axes(who, "B", B.shape, "time ranks groups state")
        *lead, s, m, h, p = v.shape
        g, r = B.shape[-2:]
        self.lead, self.b, self.g = tuple(lead), prod(lead), g
        self.state = (h, p, r)
        self.core = [(s, m, h, p), (s, h), (s, m, g, r), (s, m, g, r)]
        self.core += [(s, h)] * (len(rest) - 1) + [self.state]
        layout.check_groups(who, h, g)
        names = ("v", "da", "B", "C", "gamma", "scale")
        given = (v, da, B, C, *rest[:-1])
        for name, t, core in zip(names, given, self.core, strict=False):
            layout.check(who, name, t.shape, (*lead, *core))
        layout.check_shared(who, "initial", rest[-1].shape, self.lead, self.state)

    @property
    def full(self) -> list[tuple[int, ...]]:
        """The shapes of all operands, with leading axes."""
        return [(*self.lead, *c) for c in self.core]

    @property
    def final(self) -> tuple[int, ...]:
        """The shape of the last state."""
        return (*self.lead, *self.state)


class _RankSsd(Composite):
    """What the two forms have in common."""

    chunk: int
    uniform = True
    takes = "floating"
    outputs = ("y", "final")

    def shape(self, *inputs: Spec):
        n = _Sizes(self.name, *inputs)
        return inputs[0], inputs[0].with_shape(n.final)

    def forward(self, *inputs):
        n, operands = _operands(self.name, inputs)
        y, final = ssd_chunks.forward(operands, self.chunk)
        return y.reshape(inputs[0].shape), final.reshape(n.final)

    def batch(self, size, args, mapped):
        n = _Sizes(self.name, *layout.own(args, mapped))
        return apply(self, *layout.mapped_front(size, args, mapped, n.full))


class _RankSsdGrad(Composite):
    """What their gradients have in common."""

    chunk: int
    uniform = True
    takes = "floating"

    def shape(self, g_y: Spec, g_final: Spec, *inputs: Spec):
        _Sizes(self.name, *inputs)
        return inputs

    def forward(self, g_y, g_final, *inputs):
        n, operands = _operands(self.name, inputs)
        gy, gf = g_y.reshape(operands.v.shape), g_final.reshape(n.b, *n.state)
        got = ssd_chunks.backward(gy, gf, operands, self.chunk)
        found = [t for t in got[:-1] if t is not None]
        out = [t.reshape(x.shape) for t, x in zip(found, inputs, strict=False)]
        return *out, layout.gathered(got.initial, n.lead, inputs[-1].shape)

    def pulled(self, g_y, g_final, *inputs):
        """The gradient as a composition."""
        n, full = _plain(self.name, inputs)
        parts = ssd_plain.pieces(self.chunk, *full)
        v = full[0].shape
        gy = ssd_plain.pieces(self.chunk, shape.reshape(g_y, v), *full[1:]).v
        got = ssd_plain.gradient(gy, shape.reshape(g_final, (n.b, *n.state)), parts)
        gB, gC = (ssd_plain.by_group(ssd_plain.whole(t, v), n.g) for t in (got.B, got.C))
        timed = (got.da, got.gamma, got.scale)
        gda, *more = (ssd_plain.whole_times(t, full[1].shape) for t in timed)
        found = (ssd_plain.whole(got.v, v), gda, gB, gC, *more)[: len(inputs) - 1]
        out = [shape.reshape(t, x.shape) for t, x in zip(found, inputs, strict=False)]
        return *out, layout.gathered_op(got.initial, n.lead, inputs[-1].shape)

    def batch(self, size, args, mapped):
        own = layout.own(args, mapped)[2:]
        n = _Sizes(self.name, *own)
        full = [n.full[0], n.final, *n.full]
        found = apply(self, *layout.mapped_front(size, args, mapped, full))
        return tuple(layout.unmapped(t, x.shape) for t, x in zip(found, own, strict=True))


@op
class DoubleSsd(_RankSsd):
    """One pass of Mamba-3's double form: y and the last state; keeps its inputs only."""

    native = "double ssd"

    def expand(self, v, da, B, C, initial):
        return composed(self, ssd_plain.serial, v, da, B, C, initial)

    def vjp(self, g_y, g_final, v, da, B, C, initial):
        return apply(DoubleSsdGrad(self.chunk), g_y, g_final, v, da, B, C, initial)

    @staticmethod
    def samples(rng):
        for m in (1, 2):
            yield DoubleSsd(4), *_sample(rng, m, (2,), 7)
        v, da, B, C, initial = _sample(rng, 2, (), 5)
        yield DoubleSsd(8), v, da, B[:, :, :1], C[:, :, :1], initial[0, 0, 0] * 0
        yield DoubleSsd(4), *_sample(rng, 2, (1,), 0)

    @staticmethod
    def refuses(rng):
        v, da, B, C, initial = _sample(rng, 2, (), 5)
        yield DoubleSsd(4), v, da[1:], B, C, initial, "da (4, 4) must have shape (5, 4)"
        yield DoubleSsd(4), v, da, B[:, :1], C, initial, "B (5, 1, 4, 3) must have shape"
        yield DoubleSsd(4), v, da, B[:, :, 1:], C[:, :, 1:], initial, "in 3 groups"


@op
class DoubleSsdGrad(_RankSsdGrad):
    """The cotangents of DoubleSsd's inputs."""

    native = "double ssd back"
    outputs = ("gv", "gda", "gB", "gC", "ginitial")

    def expand(self, g_y, g_final, v, da, B, C, initial):
        return self.pulled(g_y, g_final, v, da, B, C, initial)

    @staticmethod
    def samples(rng):
        for op_, *args in DoubleSsd.samples(rng):
            gs = [rng.normal(size=t.shape) for t in op_.forward(*args)]
            yield DoubleSsdGrad(op_.chunk), *gs, *args


@op
class SingleSsd(_RankSsd):
    """Mamba-3's single form: y and the last state; keeps its inputs only."""

    native = "single ssd"

    def expand(self, v, da, B, C, gamma, scale, initial):
        return composed(self, ssd_plain.serial, v, da, B, C, gamma, scale, initial)

    def vjp(self, g_y, g_final, v, da, B, C, gamma, scale, initial):
        given = (g_y, g_final, v, da, B, C, gamma, scale, initial)
        return apply(SingleSsdGrad(self.chunk), *given)

    @staticmethod
    def samples(rng):
        for _, v, da, B, C, initial in DoubleSsd.samples(rng):
            gamma, scale = rng.uniform(0.1, 1, (2, *da.shape))
            yield SingleSsd(4), v, da, B, C, gamma, scale, initial

    @staticmethod
    def refuses(rng):
        v, da, B, C, initial = _sample(rng, 2, (), 5)
        yield SingleSsd(4), v, da, B, C, da, da[1:], initial, "scale (4, 4) must have shape"


@op
class SingleSsdGrad(_RankSsdGrad):
    """The cotangents of SingleSsd's inputs."""

    native = "single ssd back"
    outputs = ("gv", "gda", "gB", "gC", "ggamma", "gscale", "ginitial")

    def expand(self, g_y, g_final, v, da, B, C, gamma, scale, initial):
        return self.pulled(g_y, g_final, v, da, B, C, gamma, scale, initial)

    @staticmethod
    def samples(rng):
        for op_, *args in SingleSsd.samples(rng):
            gs = [rng.normal(size=t.shape) for t in op_.forward(*args)]
            yield SingleSsdGrad(op_.chunk), *gs, *args


def _operands(who: str, inputs: Any) -> tuple[_Sizes, ssd_chunks.Operands]:
    n = _Sizes(who, *inputs)
    pairs = zip(inputs[:-1], n.core, strict=False)
    v, da, B, C, *weights = (x.reshape(n.b, *core) for x, core in pairs)
    gamma, scale = weights or (None, None)
    start = layout.spread(inputs[-1], n.lead, n.state)
    return n, ssd_chunks.Operands(v, da, B, C, gamma, scale, start)


def _plain(who: str, inputs: Any) -> tuple[_Sizes, list[Any]]:
    n = _Sizes(who, *inputs)
    pairs = zip(inputs[:-1], n.core, strict=False)
    full = [shape.reshape(x, (n.b, *core)) for x, core in pairs]
    if len(full) == 4:
        full += [create.ones(full[1].shape, dtype=full[1].dtype)] * 2
    return n, [*full, layout.spread_op(inputs[-1], n.lead, n.state)]


def composed(op_: _RankSsd, algorithm: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Either form as a plain composition of ops."""
    n, full = _plain(op_.name, inputs)
    y, final = algorithm(ssd_plain.pieces(op_.chunk, *full))
    y = shape.reshape(ssd_plain.whole(y, full[0].shape), inputs[0].shape)
    return y, shape.reshape(final, n.final)


def _sample(rng, m: int, lead: tuple[int, ...], s: int):
    v, da = rng.normal(size=(*lead, s, m, 4, 2)), -rng.uniform(0.1, 1, (*lead, s, 4))
    B, C = rng.normal(size=(2, *lead, s, m, 4, 3))
    return v, da, B, C, rng.normal(size=(*lead, 4, 2, 3))


_ALGORITHMS = {"serial": ssd_plain.serial, "minimal": ssd_plain.minimal}


def run(kind: Any, inputs: Any, initial: Any, chunk: Any, algorithm: str) -> Any:
    """Either form by the algorithm asked for; without an axis of ranks, with one rank."""
    who = kind.name
    v, da, B, C, *weights = (lift(t) for t in inputs)
    one = v.ndim == da.ndim + 1  # (..., time, heads, channels)
    if one:
        v, B, C = (shape.expand_dims(t, axis=-3) for t in (v, B, C))
    layout.check_axes(who, "v", v.shape, "time ranks heads channels")
    s, m, _, p = v.shape[-4:]
    op_ = kind(layout.chunk_length(who, chunk, s, p, B.shape[-1] if B.ndim else 1, m))
    plain = layout.algorithm_of(who, algorithm, _ALGORITHMS)
    args = (v, da, B, C, *weights, 0.0 if initial is None else initial)
    if plain is None:
        y, final = apply(op_, *args)
    else:
        y, final = composed(op_, plain, *op_.coerce(args))
    return (shape.squeeze(y, axis=-3) if one else y), final


def double_ssd(
    v: Any,
    da: Any,
    B: Any,
    C: Any,
    /,
    *,
    initial: Any = None,
    chunk: int | None = None,
    algorithm: str = "recompute",
) -> tuple[Tensor, Tensor]:
    """One pass of the double form: y like v, and the last state (..., h, p, r).

    v (..., s, m, h, p); da (..., s, h), the log decays; B and C (..., s, m, g, r), each group
    shared by h/g consecutive heads. The axis of ranks may be left out in v, B and C.
    """
    return run(DoubleSsd, (v, da, B, C), initial, chunk, algorithm)


def single_ssd(
    v: Any,
    da: Any,
    B: Any,
    C: Any,
    gamma: Any,
    scale: Any,
    /,
    *,
    initial: Any = None,
    chunk: int | None = None,
    algorithm: str = "recompute",
) -> tuple[Tensor, Tensor]:
    """The single form: as `double_ssd`, with weights (..., s, h) of the present and the past.

    A token is read with `gamma` at its own time, with `scale` ever after.
    """
    return run(SingleSsd, (v, da, B, C, gamma, scale), initial, chunk, algorithm)
