"""Attention as an op, in memory that grows with the length of the sequences, not its square.

Forward keeps the log of each row's sum of exponentials (lse); backward makes the scores again,
tile by tile (tiles.py). The plain composition, which holds all scores at once, is the twin: the
second derivative goes through it, and tests hold the tiles to it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Composite, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, join, linalg, logsumexp, reduce, select, shape
from retrograd.ops import random_keys as keys
from retrograd.ops.nn import tiles


class Attending(Composite):
    """What both ops share: the options, and operands beside q, k and v in the order `parts`.

    q is [*L, B, Tq, H, D], k [*L, B, Tk, K, D], v [*L, B, Tk, K, V]; a bias or mask has as many
    axes as scores, [*L, B, H, Tq, Tk], each of that length or 1; slopes are [*L, H], a key
    [*L, 2]. L is empty but under vmap.
    """

    scale: float
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    parts: tuple[str, ...] = ()  # of bias, mask, slopes, key
    lead: ClassVar[int]  # how many operands come before the parts
    passes: ClassVar[int]  # how many arrays of a tile's size are there at once

    def named(self, args: Any) -> dict[str, Any]:
        """The parts by name."""
        return dict(zip(self.parts, args[self.lead :], strict=True))

    def workspace(self, *specs: Spec) -> int:
        q, k, v = (s.with_shape(s.shape[-4:]) for s in specs[:3])
        return tiles.Tiles(self, q, k, {}).workspace(v.shape[-1], self.passes)

    def check(self, q: Spec, k: Spec, v: Spec, parts: dict[str, Spec]) -> None:
        """Refuse operands that do not fit each other, by name."""
        batch, (tq, heads, d), (tk, kinds, _) = q.shape[:-3], q.shape[-3:], v.shape[-3:]
        if k.shape != (*batch, tk, kinds, d) or v.shape[:-3] != batch:
            raise ShapeError(
                f"attention: q {q.shape}, k {k.shape} and v {v.shape} must be [B, Tq, H, D], "
                f"[B, Tk, K, D] and [B, Tk, K, V]"
            )
        if heads != kinds and (not kinds or heads % kinds):
            raise ShapeError(
                f"attention: q has {heads} heads, k and v have {kinds}; the first must be a "
                f"multiple of the second"
            )
        scores = (*batch, heads, tq, tk)
        for name in ("bias", "mask"):
            got = parts[name].shape if name in parts else scores
            if len(got) != len(scores) or any(
                n not in (1, m) for n, m in zip(got, scores, strict=True)
            ):
                raise ShapeError(
                    f"attention: {name} {got} does not broadcast to scores {scores}: "
                    f"batch, heads, queries, keys"
                )
        wanted = {"slopes": (*batch[:-1], heads), "key": (*batch[:-1], 2)}
        for name, to in wanted.items():
            if name in parts and parts[name].shape != to:
                raise ShapeError(f"attention: {name} {parts[name].shape} must have shape {to}")

    def weights(
        self, q: Any, k: Any, parts: dict[str, Any], lse: Any = None
    ) -> tuple[Any, Any]:
        """The twin: all weights [.., H, Tq, Tk] in ops, and lse [.., H, Tq, 1]."""
        group = q.shape[-2] // k.shape[-2] if k.shape[-2] else 1
        turned = linalg.matrix_transpose(repeated(_heads(k), group))
        s = linalg.matmul(_heads(q), turned) * self.scale
        i = np.arange(s.shape[-2])[:, None] + (s.shape[-1] - s.shape[-2])
        j = np.arange(s.shape[-1])
        if "slopes" in parts:
            slopes = shape.expand_dims(parts["slopes"], axis=(-3, -2, -1))
            slopes = shape.swapaxes(slopes, -4, -3)
            s = s - slopes * constant(np.abs(i - j).astype(s.dtype))
        s = s + parts["bias"] if "bias" in parts else s
        seen = np.ones(s.shape[-2:], bool)
        seen = seen & (j <= i + self.right) if self.right is not None else seen
        seen = seen & (j >= i - self.left) if self.left is not None else seen
        mask = lift(seen) & parts["mask"] if "mask" in parts else lift(seen)
        s = select.where(mask, s, -np.inf)
        if lse is None:
            lse = logsumexp.logsumexp(s, axis=-1, keepdims=True)
            lse = select.where(lse == -np.inf, 0.0, lse)
        return apply(logsumexp.Weights((s.ndim - 1,)), s, lse), lse

    def chances(self, weights: Any, parts: dict[str, Any]) -> Any:
        """What dropout multiplies the weights by, in ops."""
        *lead, h, tq, tk = weights.shape
        to = (*lead[-1:], h, tq, tk + tk % 2)
        words = apply(keys.RandomBits(to), parts["key"])
        words = words if tk % 2 == 0 else join.split(words, (tk, 1), axis=-1)[0]
        kept = words >= lift(np.asarray(tiles.limit(self.dropout)))
        return cast.astype(kept, weights.dtype) * (1 / (1 - self.dropout))


@op
class Attention(Attending):
    """softmax(scale * q @ kᵀ + bias) @ v in tiles, and the log of the softmax's denominator.

    Keeps q, k, v, the bias or mask if any, out and lse; no scores. Rows that see no key give 0
    with gradient 0, and 0 for the log.
    """

    scale: float
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    parts: tuple[str, ...] = ()
    native = "attention"
    outputs = ("out", "lse")
    lead = 3
    passes = 2

    def shape(self, *operands: Spec) -> tuple[Spec, Spec]:
        q, k, v = operands[:3]
        self.check(q, k, v, self.named(operands))
        out = q.with_shape((*q.shape[:-1], v.shape[-1]))
        return out, Spec(q.shape[:-1], _wide(q.dtype))

    def forward(self, *operands):
        specs = self.shape(*map(spec_of, operands))
        out, lse = (np.empty(s.shape, operands[0].dtype) for s in specs)
        for at in np.ndindex(*out.shape[:-4]):
            q, k, v = (a[at] for a in operands[:3])
            tiling = tiles.Tiles(self, q, k, _one(self.named(operands), at))
            tiles.forward(tiling, self.scale, q, k, v, out[at], lse[at])
        return out, lse

    def vjp(self, g_out, g_lse=None, out=None, lse=None, *operands):
        wide, result = cast.astype(g_out, lse.dtype), cast.astype(out, lse.dtype)
        delta = reduce.sum(wide * result, axis=-1)
        delta = delta if g_lse is None else delta - g_lse
        rule = self.grad()
        found = iter(apply(rule, *operands[:3], lse, g_out, delta, *operands[3:]))
        given = ("q", "k", "v", *self.parts)
        return tuple(None if n in ("mask", "key") else next(found) for n in given)

    def grad(self) -> AttentionGrad:
        """The op of its gradient."""
        return AttentionGrad(self.scale, self.left, self.right, self.dropout, self.parts)

    def batch(self, size, args, mapped):
        if self.parts:
            return apply(self, *_mapped(self, size, args, mapped, whole=False))
        args = front(size, args, mapped)
        lead = args[0].shape[:2]
        outs = apply(self, *(shape.flatten(a, start=0, end=1) for a in args))
        return tuple(shape.reshape(o, (*lead, *o.shape[1:])) for o in outs)

    def expand(self, *operands):
        q, k, v = operands[:3]
        parts = self.named(operands)
        weights, lse = self.weights(q, k, parts)
        if self.dropout:
            weights = weights * self.chances(weights, parts)
        values = repeated(_heads(v), q.shape[-2] // k.shape[-2] if k.shape[-2] else 1)
        out = _heads(linalg.matmul(weights, values))
        lse = _heads(lse)
        return out, cast.astype(shape.squeeze(lse, axis=-1), _wide(q.dtype))

    @staticmethod
    def samples(rng):
        normal = rng.normal
        yield Attention(0.5), *(normal(size=(2, n, 2, 3)) for n in (4, 5, 5))
        q, k, v = (
            normal(size=(1, 3, 4, 3)),
            normal(size=(1, 5, 2, 3)),
            normal(size=(1, 5, 2, 2)),
        )
        yield Attention(0.5, None, 0), q, k, v
        yield Attention(0.5, 1, 1), k, q[:, :, :2], q[:, :, :2]
        mask = rng.random((1, 4, 3, 5)) > 0.4
        mask[0, 1, 2] = False
        yield Attention(1.0, None, None, 0.0, ("mask",)), q, k, v, mask
        slopes, bias = rng.random(4), normal(size=(1, 1, 3, 5))
        yield Attention(1.0, None, None, 0.0, ("bias", "slopes")), q, k, v, bias, slopes
        yield Attention(1.0, 3, None, 0.5, ("key",)), q, k, v, keys.some(rng)
        yield Attention(1.0), q[:0], k[:0], v[:0]
        yield Attention(1.0), q, k[:, :0], v[:, :0]

    @staticmethod
    def refuses(rng):
        q, k = rng.normal(size=(1, 3, 4, 3)), rng.normal(size=(1, 5, 3, 3))
        yield Attention(1.0), q, k, k, "q has 4 heads, k and v have 3"
        yield Attention(1.0), q, k[..., :2], k, "must be [B, Tq, H, D]"
        bias = rng.normal(size=(1, 4, 3, 4))
        yield (
            Attention(1.0, None, None, 0.0, ("bias",)),
            q,
            k[:, :, :2],
            k[:, :, :2],
            bias,
            "bias (1, 4, 3, 4) does not broadcast to scores (1, 4, 3, 5)",
        )


@op
class AttentionGrad(Attending):
    """The gradients of q, k, v, bias and slopes of attention.

    From q, k, v, lse, the cotangent of the result, and delta, which is the sum of cotangent
    times result in each row, less the cotangent of lse. Scores are made again tile by tile. The
    second derivative goes through the plain twin, which keeps several matrices of scores.
    """

    scale: float
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    parts: tuple[str, ...] = ()
    native = "attention back"
    outputs = ("*cotangents",)
    lead = 6
    passes = 4

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        parts = self.named(args)
        q, k, v = args[:3]
        self.check(q, k, v, parts)
        return (q, k, v, *(parts[n] for n in parts if n in ("bias", "slopes")))

    def forward(self, *args):
        parts = self.named(args)
        names = ("q", "k", "v", *(n for n in self.parts if n in ("bias", "slopes")))
        specs = self.shape(*map(spec_of, args))
        found = {n: np.zeros(s.shape, s.dtype) for n, s in zip(names, specs, strict=True)}
        for at in np.ndindex(*args[0].shape[:-4]):
            given = tuple(a[at] for a in args[:6])
            tiling = tiles.Tiles(self, given[0], given[1], _one(parts, at))
            tiles.backward(tiling, self.scale, given, {n: f[at] for n, f in found.items()})
        return tuple(found.values())

    def batch(self, size, args, mapped):
        return apply(self, *_mapped(self, size, args, mapped, whole=True))

    def expand(self, *args):
        q, k, v, lse, g, delta = args[:6]
        parts, group = self.named(args), q.shape[-2] // k.shape[-2] if k.shape[-2] else 1
        p, _ = self.weights(q, k, parts, _heads(shape.expand_dims(lse, axis=-1)))
        g, values = _heads(g), repeated(_heads(v), group)
        blame, lasting = linalg.matmul(g, linalg.matrix_transpose(values)), p
        if self.dropout:
            chances = self.chances(p, parts)
            blame, lasting = blame * chances, p * chances
        blame = p * (blame - _heads(shape.expand_dims(delta, axis=-1)))
        back = linalg.matrix_transpose(blame)
        dq = _heads(linalg.matmul(blame, repeated(_heads(k), group))) * self.scale
        dk = _heads(gathered(linalg.matmul(back, _heads(q)), group)) * self.scale
        dv = _heads(gathered(linalg.matmul(linalg.matrix_transpose(lasting), g), group))
        more = []
        for name in self.parts:
            if name == "bias":
                more.append(reduce.sum_to(blame, parts[name].shape))
            elif name == "slopes":
                i = np.arange(q.shape[-3])[:, None] + (k.shape[-3] - q.shape[-3])
                away = constant(np.abs(i - np.arange(k.shape[-3])).astype(p.dtype))
                more.append(-reduce.sum(blame * away, axis=(-4, -2, -1)))
        return dq, dk, dv, *more

    @staticmethod
    def samples(rng):
        for plain, q, k, v, *parts in Attention.samples(rng):
            out, lse = plain.forward(q, k, v, *parts)
            g, delta = rng.normal(size=out.shape), rng.normal(size=lse.shape)
            rule = plain.grad()
            yield rule, q, k, v, lse, g, delta, *parts


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype of lse: at least float32."""
    return dt.float32 if dtype in dt.HALF else dtype


def _heads(x: Any) -> Tensor:
    """[.., T, H, D] as [.., H, T, D], and back."""
    return shape.swapaxes(x, -3, -2)


def repeated(x: Any, group: int) -> Tensor:
    """[.., K, T, D] as [.., K * group, T, D]: each head serves a group."""
    if group == 1:
        return x
    *lead, k, t, d = x.shape
    x = shape.broadcast_to(shape.expand_dims(x, axis=-3), (*lead, k, group, t, d))
    return shape.reshape(x, (*lead, k * group, t, d))


def gathered(x: Any, group: int) -> Tensor:
    """The transpose of repeated."""
    *lead, h, t, d = x.shape
    return reduce.sum(shape.reshape(x, (*lead, h // group, group, t, d)), axis=-3)


def _one(parts: dict[str, Any], at: tuple[int, ...]) -> dict[str, Any]:
    """The parts at a place of the mapped axes, along which a bias or mask may have length 1."""
    found = {}
    for name, a in parts.items():
        if name in ("bias", "mask"):
            found[name] = a[
                tuple(0 if n == 1 else i for n, i in zip(a.shape, at, strict=False))
            ]
        else:
            found[name] = a[at]
    return found


def _mapped(op: Attending, size: int, args: Any, mapped: Any, *, whole: bool) -> list[Any]:
    """Operands with the mapped axis in front; a bias or mask without one has length 1 there."""
    names = (*(("",) * op.lead), *op.parts)
    single = ("mask",) if whole else ("bias", "mask")
    found = front(size, args, mapped)
    return [
        shape.expand_dims(a, axis=0) if name in single and not m else f
        for name, a, f, m in zip(names, args, found, mapped, strict=True)
    ]
