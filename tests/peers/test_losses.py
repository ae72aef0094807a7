"""Losses of pairs agree with torch's: shapes, options, reductions; to second order."""

import numpy as np
import pytest
from peers.against import F, agree_twice, torch
from peers.shapes import SHAPES, away, cast, dtypes, each, over

from retrograd import nn

pytestmark = pytest.mark.peers("torch")
REDUCTIONS = ("mean", "sum", "none")


def reductions(shapes):
    """Each shape with each reduction; but we refuse the mean of nothing."""
    return [(s, r) for s in shapes for r in REDUCTIONS if r != "mean" or np.prod(s)]


def apart(*kinks):
    """Pairs whose differences are off the kinks."""

    def draw(rng, shape):
        y = rng.normal(size=shape)
        return [y + away(rng, shape, kinks), y]

    return draw


def chance(rng, shape):
    return rng.uniform(0.1, 0.9, shape)


def bits(rng, shape):
    return rng.integers(0, 2, shape)


def positive(rng, shape):
    return rng.uniform(0.3, 3, shape)


def counts(rng, shape):
    return rng.poisson(2, shape)


def floats(rng, shape):
    return counts(rng, shape) * 1.0


def drawn(*parts):
    """One array by each of the functions."""
    return lambda rng, shape: [np.asarray(part(rng, shape)) for part in parts]


def signed(margin):
    """Predictions off the corner margin = target * prediction, and targets -1 and 1."""

    def draw(rng, shape):
        t = rng.choice([-1.0, 1.0], size=shape)
        return [t * (margin - away(rng, shape, [0])), t]

    return draw


def reduced(each, reduction):
    """What torch has no loss for, each: reduced as its losses are."""
    return {"none": lambda: each, "sum": each.sum, "mean": each.mean}[reduction]()


def focal(x, t, *, reduction, gamma, alpha=None):
    """As torchvision has it."""
    t = t.to(x.dtype)
    p = torch.sigmoid(x)
    right = p * t + (1 - p) * (1 - t)
    found = F.binary_cross_entropy_with_logits(x, t, reduction="none") * (1 - right) ** gamma
    if alpha is not None:
        found = found * (alpha * t + (1 - alpha) * (1 - t))
    return reduced(found, reduction)


def bce(p, t, *, weight=1.0, reduction):
    """For the second order: torch's adds 1e-12 to a denominator."""
    return reduced(-weight * (t * p.log() + (1 - t) * (-p).log1p()), reduction)


def poisson(x, t, *, reduction, **options):
    """The whole of it: torch's `full` is Stirling's approximation.

    Of counts, since torch's trigamma, the second order in t, is good to 5e-10.
    """
    part = F.poisson_nll_loss(x, t, reduction="none", **options)
    return reduced(part + torch.lgamma(t.to(x.dtype) + 1), reduction)


def typed(f):
    """f, of targets that are floats."""
    return lambda x, t, **options: f(x, t.to(x.dtype), **options)


# ours, theirs (of the same arrays, and a reduction), and how the arrays are drawn
ROWS = {
    "mse": (nn.mse, F.mse_loss, apart()),
    "mae": (nn.mae, F.l1_loss, apart(0)),
    "bce": (nn.bce, F.binary_cross_entropy, drawn(chance, chance)),
    "bce of bits": (nn.bce, typed(F.binary_cross_entropy), drawn(chance, bits)),
    "bce_logits": (
        nn.bce_logits,
        F.binary_cross_entropy_with_logits,
        drawn(away, chance),
    ),
    "bce_logits of bits": (
        nn.bce_logits,
        typed(F.binary_cross_entropy_with_logits),
        drawn(away, bits),
    ),
    "kl_div": (nn.kl_div, F.kl_div, drawn(away, chance)),
    "kl_div of logs": (
        lambda x, t, **o: nn.kl_div(x, t, log_target=True, **o),
        lambda x, t, **o: F.kl_div(x, t, log_target=True, **o),
        drawn(away, lambda rng, shape: np.log(chance(rng, shape))),
    ),
    "poisson_nll": (nn.poisson_nll, F.poisson_nll_loss, drawn(away, floats)),
    "poisson_nll of rates": (
        lambda x, t, **o: nn.poisson_nll(x, t, log_input=False, **o),
        lambda x, t, **o: F.poisson_nll_loss(x, t, log_input=False, **o),
        drawn(positive, floats),
    ),
    "poisson_nll in full": (
        lambda x, t, **o: nn.poisson_nll(x, t, full=True, **o),
        poisson,
        drawn(away, counts),
    ),
    "poisson_nll of rates in full": (
        lambda x, t, **o: nn.poisson_nll(x, t, log_input=False, full=True, eps=0.1, **o),
        lambda x, t, **o: poisson(x, t, log_input=False, eps=0.1, **o),
        drawn(positive, counts),
    ),
}
TWICE = {"bce": bce, "bce of bits": bce}  # instead of theirs, for the second order
for size in (0.4, 1.0, 2.5):
    ROWS[f"huber {size}"] = (
        lambda x, y, d=size, **o: nn.huber(x, y, delta=d, **o),
        lambda x, y, d=size, **o: F.huber_loss(x, y, delta=d, **o),
        apart(-size, 0, size),
    )
for size in (0.0, 0.4, 1.0, 2.5):
    ROWS[f"smooth_l1 {size}"] = (
        lambda x, y, b=size, **o: nn.smooth_l1(x, y, beta=b, **o),
        lambda x, y, b=size, **o: F.smooth_l1_loss(x, y, beta=b, **o),
        apart(-size, 0, size),
    )
for size in (0.0, 1.0, 0.3):
    ROWS[f"hinge {size}"] = (
        lambda x, t, m=size, **o: nn.hinge(x, t, margin=m, **o),
        lambda x, t, m=size, **o: F.margin_ranking_loss(x, 0 * x, t, margin=m, **o),
        signed(size),
    )
for options in ({"gamma": 0.0}, {"gamma": 2.0}, {"gamma": 3.5, "alpha": 0.25}):
    ROWS[f"focal {options}"] = (
        lambda x, t, own=options, **o: nn.focal(x, t, **own, **o),
        lambda x, t, own=options, **o: focal(x, t, **own, **o),
        drawn(away, bits),
    )


@over("name", ROWS)
@each(("shape", "reduction"), reductions(SHAPES))
@dtypes
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
def test_pairs(name, shape, reduction, dtype, rng):
    ours, theirs, draw = ROWS[name]
    twice = TWICE.get(name)
    agree_twice(
        lambda *xs: ours(*xs, reduction=reduction),
        lambda *xs: theirs(*xs, reduction=reduction),
        cast(draw(rng, shape), dtype),
        peer="torch",
        what=f"{name} {reduction}",
        twice=twice and (lambda *xs: twice(*xs, reduction=reduction)),
    )


@each("shape", [s for s in SHAPES if s and s[0]])
@over("log_target", [False, True])
def test_kl_div_by_rows(shape, log_target, rng):
    agree_twice(
        lambda x, t: nn.kl_div(x, t, log_target=log_target, reduction="batch"),
        lambda x, t: F.kl_div(x, t, log_target=log_target, reduction="batchmean"),
        [away(rng, shape), chance(rng, shape)],
        peer="torch",
        what="kl_div",
    )


LOGITS = (nn.bce_logits, F.binary_cross_entropy_with_logits, None, away)
WEIGHED = {  # ours, theirs, theirs twice, x; our words for the weights
    "bce": (nn.bce, F.binary_cross_entropy, bce, chance, "weight"),
    "bce_logits": (*LOGITS, "weight"),
    "bce_logits, ones": (*LOGITS, "positive_weight"),
    "bce_logits, both": (*LOGITS, "weight", "positive_weight"),
}
SIZES = {"one for all": 0, "one for each column": 1, "one for each": 5}  # their rank


@over("name", WEIGHED)
@over("size", SIZES)
@each("shape", [s for s in SHAPES if s and np.prod(s)])
@over("reduction", ["mean", "none"])
def test_weights(name, size, shape, reduction, rng):
    """Of each element, or of the ones: numbers that do not move, since torch's cannot."""
    ours, theirs, twice, draw, *words = WEIGHED[name]
    its = [w.replace("positive", "pos") for w in words]

    def with_weights(f, words):
        return lambda x, t, *ws: f(
            x, t, reduction=reduction, **dict(zip(words, ws, strict=True))
        )

    part = shape[max(len(shape) - SIZES[size], 0) :]
    xs = [draw(rng, shape), chance(rng, shape), *(positive(rng, part) for _ in words)]
    agree_twice(
        with_weights(ours, words),
        with_weights(theirs, its),
        xs,
        [0, 1],
        peer="torch",
        what=name,
        twice=twice and with_weights(twice, its),
    )


ROWED = [(1,), (7,), (4, 6), (5, 5), (0, 5), (3, 1, 5), (2, 3, 4, 3), (2, 1, 3, 2, 5)]


def gaussian(rng, shape, variances, dtype="float64", **options):
    xs = [rng.normal(size=shape), rng.normal(size=shape), positive(rng, variances)]
    agree_twice(
        lambda *xs: nn.gaussian_nll(*xs, **options),
        lambda *xs: F.gaussian_nll_loss(*xs, **options),
        cast(xs, dtype),
        peer="torch",
        what=f"gaussian_nll {options}",
    )


@each(("shape", "reduction"), reductions(ROWED))
@over("full", [False, True])
@over("rows", [False, True], ids=["one for each", "one for each row"])
@dtypes
def test_gaussian_nll(shape, reduction, full, rows, dtype, rng):
    variances = (*shape[:-1], 1) if rows else shape
    gaussian(rng, shape, variances, dtype, full=full, reduction=reduction)


@each("shape", ROWED)
def test_gaussian_nll_of_variances_without_the_last_axis(shape, rng):
    """One for each row, and as many axes as there are rows' axes."""
    gaussian(rng, shape, shape[:-1], reduction="none")


DICED = [((7,), None), ((7,), 0), ((4, 6), 1), ((2, 3, 5), (0, 2)), ((2, 1, 3, 2, 3), None)]


@each(("shape", "axis"), DICED)
@over("smooth", [1.0, 0.1])
@dtypes
def test_dice(shape, axis, smooth, dtype, rng):
    """torch has none: the formula."""
    axes = tuple(range(len(shape))) if axis is None else axis

    def theirs(p, t):
        both = (p * t).sum(axes)
        either = p.sum(axes) + t.sum(axes)
        return (1 - (2 * both + smooth) / (either + smooth)).mean()

    xs = cast([chance(rng, shape), chance(rng, shape)], dtype)
    ours = lambda p, t: nn.dice(p, t, axis=axis, smooth=smooth)
    agree_twice(ours, theirs, xs, peer="torch", what="dice")
