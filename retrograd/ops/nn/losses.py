"""Losses: one number from predictions and targets, every one a composition of ops.

`reduction` is "mean" (the default), "sum" or "none". Targets are differentiated too where
they are floats; indices are integers.
"""

from __future__ import annotations

from typing import Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import elementary, logarithmic, magnitude, reduce, select, shape, special

__all__ = [
    "bce",
    "bce_logits",
    "dice",
    "focal",
    "gaussian_nll",
    "hinge",
    "huber",
    "kl_div",
    "mae",
    "mse",
    "poisson_nll",
    "smooth_l1",
]


def reduced(who: str, each: Any, reduction: str) -> Tensor:
    """The mean, the sum, or each."""
    if reduction == "none":
        return each
    if reduction == "sum":
        return reduce.sum(each)
    if reduction != "mean":
        raise ArgumentError(f"{who}: reduction must be mean, sum or none; got {reduction!r}")
    if not each.size:
        raise ShapeError(f"{who}: the mean of no elements; got shape {each.shape}")
    return reduce.mean(each)


def pair(who: str, prediction: Any, target: Any) -> tuple[Any, Any]:
    """Both as tensors of one shape."""
    a, b = lift(prediction), lift(target)
    if a.shape != b.shape:
        raise ShapeError(
            f"{who}: prediction {a.shape} and target {b.shape} must have one shape; "
            f"broadcasting here is nearly always a mistake"
        )
    return a, b


def mse(prediction: Any, target: Any, /, *, reduction: str = "mean") -> Tensor:
    """The squared difference."""
    a, b = pair("mse", prediction, target)
    d = a - b
    return reduced("mse", d * d, reduction)


def mae(prediction: Any, target: Any, /, *, reduction: str = "mean") -> Tensor:
    """The absolute difference; its slope at 0 is 0."""
    a, b = pair("mae", prediction, target)
    return reduced("mae", magnitude.abs(a - b), reduction)


def huber(
    prediction: Any, target: Any, /, *, delta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Half the squared difference up to delta, then straight with slope delta."""
    if not delta > 0:
        raise ArgumentError(f"huber: delta must be positive; got {delta}")
    a, b = pair("huber", prediction, target)
    far = magnitude.abs(a - b)
    near = select.minimum(far, delta)
    return reduced("huber", near * (far - near * 0.5), reduction)


def smooth_l1(
    prediction: Any, target: Any, /, *, beta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """huber over beta: slope 1 far away; beta = 0 is the absolute difference."""
    if not beta >= 0:
        raise ArgumentError(f"smooth_l1: beta must not be negative; got {beta}")
    if beta == 0:
        return mae(prediction, target, reduction=reduction)
    return huber(prediction, target, delta=beta, reduction=reduction) / beta


def bce(
    probability: Any, target: Any, /, *, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """-t log p - (1 - t) log(1 - p), with 0 log 0 = 0."""
    p, t = pair("bce", probability, target)
    t = _like(p, t)
    each = -logarithmic.xlogy(t, p) - logarithmic.xlog1py(1 - t, -p)
    return reduced("bce", each if weight is None else each * lift(weight), reduction)


@whole
def bce_logits(
    logits: Any,
    target: Any,
    /,
    *,
    weight: Any = None,
    positive_weight: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """bce of sigmoid(logits), without computing it: right for logits of any size."""
    x, t = pair("bce_logits", logits, target)
    t = _like(x, t)
    if positive_weight is None:
        each = elementary.softplus(x) - t * x
    else:
        positive = lift(positive_weight) * t
        each = positive * elementary.softplus(-x) + (1 - t) * elementary.softplus(x)
    return reduced("bce_logits", each if weight is None else each * lift(weight), reduction)


def _like(x: Any, target: Any) -> Any:
    """Truth values and class numbers as floats of x's dtype."""
    return target if dt.is_inexact(target.dtype) else target.astype(x.dtype)


def focal(
    logits: Any,
    target: Any,
    /,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    reduction: str = "mean",
) -> Tensor:
    """bce_logits, with what is already right counting less: times (1 - p_t) ** gamma."""
    x, t = pair("focal", logits, target)
    t = _like(x, t)
    each = elementary.softplus(x) - t * x
    wrong = elementary.sigmoid(x * (1 - 2 * t))  # 1 - p of the true class
    each = each * wrong**gamma
    if alpha is not None:
        each = each * (alpha * t + (1 - alpha) * (1 - t))
    return reduced("focal", each, reduction)


def dice(probability: Any, target: Any, /, *, axis: Any = None, smooth: float = 1.0) -> Tensor:
    """1 - 2 |p t| / (|p| + |t|) over `axis` (all by default), then the mean."""
    p, t = pair("dice", probability, target)
    t = _like(p, t)
    both = reduce.sum(p * t, axis=axis)
    either = reduce.sum(p, axis=axis) + reduce.sum(t, axis=axis)
    return reduce.mean(1 - (2 * both + smooth) / (either + smooth))


def kl_div(
    log_probability: Any,
    target: Any,
    /,
    *,
    log_target: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """target * (log target - log_probability), with 0 log 0 = 0; "batch" divides by rows."""
    q, t = pair("kl_div", log_probability, target)
    each = elementary.exp(t) * (t - q) if log_target else logarithmic.xlogy(t, t) - t * q
    if reduction == "batch":
        return reduce.sum(each) / (each.shape[0] if each.ndim else 1)
    return reduced("kl_div", each, reduction)


def hinge(
    prediction: Any, target: Any, /, *, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target * prediction) for targets -1, 1; the corner's slope is 0."""
    x, t = pair("hinge", prediction, target)
    gap = margin - _like(x, t) * x
    return reduced("hinge", select.where(gap > 0, gap, 0), reduction)


def gaussian_nll(
    mean: Any,
    target: Any,
    variance: Any,
    /,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """-log of a normal density at the target; `full` adds the constant log(2 pi) / 2."""
    m, t = pair("gaussian_nll", mean, target)
    var = select.maximum(lift(variance), eps)
    if var.shape not in (m.shape, (*m.shape[:-1], 1), m.shape[:-1], ()):
        raise ShapeError(f"gaussian_nll: variance {var.shape} does not fit mean {m.shape}")
    if var.shape == m.shape[:-1] and m.ndim:
        var = shape.reshape(var, (*var.shape, 1))  # one for each row
    d = m - t
    each = 0.5 * (elementary.log(var) + d * d / var)
    return reduced("gaussian_nll", each + (HALF_LOG_2PI if full else 0.0), reduction)


HALF_LOG_2PI = 0.9189385332046727


def poisson_nll(
    prediction: Any,
    target: Any,
    /,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """-log of a Poisson law at the target; `prediction` is the log of the rate, or the rate.

    `full` adds log(target!), which the derivative by the prediction does not see.
    """
    x, t = pair("poisson_nll", prediction, target)
    t = _like(x, t)
    each = elementary.exp(x) - t * x if log_input else x - t * elementary.log(x + eps)
    if full:
        each = each + special.lgamma(t + 1)
    return reduced("poisson_nll", each, reduction)
