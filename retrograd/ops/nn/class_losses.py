"""Losses over classes and pairs of vectors: cross entropy and its kin, margins, contrast."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.spec import axis_index
from retrograd.core.tensor import Box, Tensor
from retrograd.core.whole import whole
from retrograd.ops import cast, gather, grid, linalg, logsumexp, norm, reduce, select, shape
from retrograd.ops.nn import softmax
from retrograd.ops.nn.losses import kl_div, pair, reduced

__all__ = [
    "contrastive",
    "cosine",
    "cosine_embedding",
    "cross_entropy",
    "distillation",
    "info_nce",
    "multi_margin",
    "nll",
    "triplet",
]


@whole
def cross_entropy(
    logits: Any,
    target: Any,
    /,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore: int | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """-log softmax(logits) at the target: class numbers, or probabilities of logits' shape.

    `weight` is one number for each class. Targets equal to `ignore` count nothing, also in
    the mean. `smoothing` spreads that share of the target over all classes.
    """
    if not 0 <= smoothing <= 1:
        raise ArgumentError(f"cross_entropy: smoothing must be from 0 to 1; got {smoothing}")
    logits = lift(logits)
    axis = axis_index("cross_entropy", axis, logits.ndim)
    log_p = shape.moveaxis(softmax.log_softmax(logits, axis=axis), axis, -1)
    target = lift(target)
    if dt.is_inexact(target.dtype):
        return _soft(
            log_p, shape.moveaxis(_fits(logits, target), axis, -1), weight, smoothing, reduction
        )
    return _hard(log_p, target, weight, ignore, smoothing, reduction)


def _fits(logits: Any, target: Any) -> Any:
    if target.shape != logits.shape:
        raise ShapeError(
            f"cross_entropy: probabilities {target.shape} must have the shape of logits "
            f"{logits.shape}; class numbers must be integers"
        )
    return target


def _soft(log_p: Any, target: Any, weight: Any, smoothing: float, reduction: str) -> Tensor:
    classes = log_p.shape[-1]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    terms = target * log_p
    if weight is not None:
        terms = terms * _weights("cross_entropy", weight, classes)
    return reduced("cross_entropy", -reduce.sum(terms, axis=-1), reduction)


def _hard(
    log_p: Any, target: Any, weight: Any, ignore: int | None, smoothing: float, reduction: str
) -> Tensor:
    classes = log_p.shape[-1]
    safe, counts = _checked("cross_entropy", target, log_p.shape, ignore)
    w = None if weight is None else _weights("cross_entropy", weight, classes)
    at = reduce.sum(
        gather.take_along_axis(log_p, shape.expand_dims(safe, axis=-1), axis=-1), axis=-1
    )
    each_weight = None if w is None else gather.take(w, safe, axis=0)
    each = -at if each_weight is None else -at * each_weight
    if smoothing:
        spread = -(reduce.sum(log_p if w is None else log_p * w, axis=-1) / classes)
        each = (1 - smoothing) * each + smoothing * spread
    if counts is not None:
        each = select.where(counts, each, 0)
    if reduction != "mean" or (counts is None and w is None):
        return reduced("cross_entropy", each, reduction)
    share = (
        each_weight
        if counts is None
        else select.where(counts, 1.0 if each_weight is None else each_weight, 0.0)
    )
    return reduce.sum(each) / cast.astype(reduce.sum(share), each.dtype)


def _checked(who: str, target: Any, log_shape: tuple[int, ...], ignore: int | None) -> Any:
    if target.dtype.kind not in "iu":
        raise DtypeError(
            f"{who}: target must be integers, the class numbers; got {target.dtype}"
        )
    if target.shape != log_shape[:-1]:
        raise ShapeError(
            f"{who}: target {target.shape} must have the shape of the predictions without the "
            f"class axis, {log_shape[:-1]}"
        )
    counts = None if ignore is None else target != ignore
    safe = target if counts is None else select.where(counts, target, 0)
    if not isinstance(safe, Box) and safe.size:
        low, high = int(np.min(safe.array)), int(np.max(safe.array))
        if low < 0 or high >= log_shape[-1]:
            bad = low if low < 0 else high
            raise BoundsError(f"{who}: class {bad} is not one of the {log_shape[-1]} classes")
    return safe, counts


def _weights(who: str, weight: Any, classes: int) -> Any:
    weight = lift(weight)
    if weight.shape != (classes,):
        raise ShapeError(
            f"{who}: weight {weight.shape} must be one number for each of the {classes} classes"
        )
    return weight


def nll(
    log_probability: Any,
    target: Any,
    /,
    *,
    weight: Any = None,
    ignore: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-log_probability at the target class, which lies along the last axis."""
    return _hard(lift(log_probability), lift(target), weight, ignore, 0.0, reduction)


def multi_margin(
    scores: Any, target: Any, /, *, margin: float = 1.0, power: int = 1, reduction: str = "mean"
) -> Tensor:
    """How far other classes come within `margin` of the target's score, over the classes."""
    x, t = lift(scores), lift(target)
    safe, _ = _checked("multi_margin", t, x.shape, None)
    own = gather.take_along_axis(x, shape.expand_dims(safe, axis=-1), axis=-1)
    gap = margin - own + x
    gap = select.where(gap > 0, gap, 0)
    gap = gap if power == 1 else gap**power
    other = grid.one_hot(safe, x.shape[-1]) == 0
    each = reduce.sum(select.where(other, gap, 0), axis=-1) / x.shape[-1]
    return reduced("multi_margin", each, reduction)


@whole
def triplet(
    anchor: Any,
    positive: Any,
    negative: Any,
    /,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin) along the last axis."""
    a, b = pair("triplet", anchor, positive)
    _, c = pair("triplet", anchor, negative)
    near, far = norm.norm(a - b, ord=p, axis=-1), norm.norm(a - c, ord=p, axis=-1)
    gap = near - far + margin
    return reduced("triplet", select.where(gap > 0, gap, 0), reduction)


def contrastive(
    x1: Any, x2: Any, same: Any, /, *, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Half the squared distance of pairs that are the same, else of what misses the margin."""
    a, b = pair("contrastive", x1, x2)
    d = norm.norm(a - b, axis=-1)
    gap = select.where(margin - d > 0, margin - d, 0)
    each = select.where(lift(same) != 0, d * d, gap * gap) * 0.5
    return reduced("contrastive", each, reduction)


def cosine(a: Any, b: Any, eps: float = 1e-8) -> Any:
    """The cosine of the angle between vectors along the last axis."""
    length = norm.norm(a, axis=-1) * norm.norm(b, axis=-1)
    return reduce.sum(a * b, axis=-1) / select.maximum(length, eps)


def cosine_embedding(
    x1: Any, x2: Any, target: Any, /, *, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos for targets 1, max(0, cos - margin) for targets -1."""
    a, b = pair("cosine_embedding", x1, x2)
    c = cosine(a, b)
    apart = select.where(c - margin > 0, c - margin, 0)
    return reduced("cosine_embedding", select.where(lift(target) > 0, 1 - c, apart), reduction)


@whole
def info_nce(
    query: Any, keys: Any, /, *, temperature: float = 0.1, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of telling each query's own key, in the same row, from all the others."""
    if not temperature > 0:
        raise ArgumentError(f"info_nce: temperature must be positive; got {temperature}")
    q, k = pair("info_nce", query, keys)
    if q.ndim != 2:
        raise ShapeError(f"info_nce: query and keys must be [N, D]; got {q.shape}")
    q = q / select.maximum(norm.norm(q, axis=-1, keepdims=True), 1e-12)
    k = k / select.maximum(norm.norm(k, axis=-1, keepdims=True), 1e-12)
    logits = linalg.matmul(q, shape.permute_dims(k, (1, 0))) / temperature
    own = reduce.sum(q * k, axis=-1) / temperature
    return reduced("info_nce", logsumexp.logsumexp(logits, axis=-1) - own, reduction)


def distillation(
    student: Any,
    teacher: Any,
    target: Any = None,
    /,
    *,
    temperature: float = 2.0,
    alpha: float = 0.5,
) -> Tensor:
    """alpha T^2 KL(teacher, student) at temperature T, plus (1 - alpha) cross entropy."""
    if not temperature > 0:
        raise ArgumentError(f"distillation: temperature must be positive; got {temperature}")
    s, t = pair("distillation", student, teacher)
    soft = kl_div(
        shape.reshape(softmax.log_softmax(s / temperature), (-1, s.shape[-1])),
        shape.reshape(softmax.log_softmax(t / temperature), (-1, s.shape[-1])),
        log_target=True,
        reduction="batch",
    ) * (temperature * temperature)
    if target is None:
        return soft
    return alpha * soft + (1 - alpha) * cross_entropy(s, target)
