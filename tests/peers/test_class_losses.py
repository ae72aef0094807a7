"""Losses over classes and vectors agree with torch's and jax's, to second order."""

import itertools

import numpy as np
import pytest
from peers.against import F, agree_twice, jnn, jnp, torch
from peers.shapes import cast, dtypes, each, over

from retrograd import nn

REDUCTIONS = ("mean", "sum", "none")
reductions = over("reduction", REDUCTIONS)
GEOMETRIES = [  # logits, and the axis of the classes
    ((5,), 0),
    ((4, 6), 1),
    ((3, 7), 0),
    ((0, 3), 1),
    ((3, 1), -1),
    ((2, 3, 5), -1),
    ((2, 3, 5), 1),
    ((3, 2, 1, 4), 0),
    ((2, 2, 3, 2, 3), 3),
]
geometries = each(("shape", "axis"), GEOMETRIES)
TWO = [(3, 7), 1], [(2, 3, 5), -1]  # where each option is tried with each


def second(x, axis):
    """Classes where torch has them: on the second axis, of the vectors on the only one."""
    return x.movedim(axis, 1) if x.ndim > 1 else x


def classes(rng, shape, axis, ignore=None):
    """Class numbers, of which about a third are to be ignored; the first never is."""
    counts = tuple(np.delete(shape, axis))
    found = np.asarray(rng.integers(0, shape[axis], counts))
    if ignore is not None and counts:
        found.flat[1:][rng.random(max(found.size - 1, 0)) < 0.3] = ignore
    return found


def needs_elements(shape, reduction):
    if reduction == "mean" and not np.prod(shape):
        pytest.skip("we refuse the mean of nothing")


# -- cross entropy ---------------------------------------------------------------------------

HARD = [
    {"weight": w, "ignore": i, "smoothing": s}
    for w, i, s in itertools.product((False, True), (None, -100, 0), (0.0, 0.1, 1.0))
]
FEW = [HARD[0], HARD[4], HARD[-2], HARD[-1]]
CASES = [(*g, o) for g in GEOMETRIES for o in FEW]
CASES += [(*g, o) for g in TWO for o in HARD if o not in FEW]


def hard(rng, shape, axis, options, reduction, dtype="float64"):
    """Our cross entropy of class numbers, torch's, and the logits."""
    ignore, smoothing = options["ignore"], options["smoothing"]
    target = classes(rng, shape, axis, ignore)
    if ignore == 0:  # the first counts
        target.flat[:1] = shape[axis] - 1
    w = rng.uniform(0.5, 2, shape[axis]).astype(dtype) if options["weight"] else None
    numbers = torch.tensor(target)
    weight = None if w is None else torch.tensor(w)
    common = {"reduction": reduction}

    def ours(x):
        own = {"axis": axis, "weight": w, "ignore": ignore, "smoothing": smoothing}
        return nn.cross_entropy(x, target, **own, **common)

    def theirs(x):
        own = {"weight": weight, "ignore_index": -100 if ignore is None else ignore}
        own["label_smoothing"] = smoothing
        return F.cross_entropy(second(x, axis), numbers, **own, **common)

    return ours, theirs, cast([rng.normal(size=shape) * 2], dtype)


@pytest.mark.peers("torch")
@over(("shape", "axis", "options"), CASES, ids=lambda c: str(c).replace(" ", ""))
@reductions
@dtypes
def test_cross_entropy(shape, axis, options, reduction, dtype, rng):
    """All options of class numbers, among them one class, and ignored ones in the mean."""
    needs_elements(shape, reduction)
    ours, theirs, xs = hard(rng, shape, axis, options, reduction, dtype)
    agree_twice(ours, theirs, xs, peer="torch", what=f"cross_entropy {options}")


@pytest.mark.peers("torch")
@geometries
@over("smoothing", [0.0, 0.2, 1.0])
@over("weighed", [False, True], ids=["plain", "weighed"])
@reductions
def test_cross_entropy_of_probabilities(shape, axis, smoothing, weighed, reduction, rng):
    """Targets move too."""
    needs_elements(shape, reduction)
    t = np.moveaxis(
        rng.dirichlet(np.ones(shape[axis]), tuple(np.delete(shape, axis))), -1, axis
    )
    w = rng.uniform(0.5, 2, shape[axis]) if weighed else None
    weight = None if w is None else torch.tensor(w)
    agree_twice(
        lambda x, t: nn.cross_entropy(
            x, t, axis=axis, weight=w, smoothing=smoothing, reduction=reduction
        ),
        lambda x, t: F.cross_entropy(
            second(x, axis),
            second(t, axis),
            weight,
            label_smoothing=smoothing,
            reduction=reduction,
        ),
        [rng.normal(size=shape) * 2, t],
        peer="torch",
        what="cross_entropy",
    )


@pytest.mark.peers("jax")
@each(("shape", "axis"), GEOMETRIES[1:7:2])
def test_cross_entropy_by_jax(shape, axis, rng):
    target = classes(rng, shape, axis)

    def theirs(x):
        chosen = jnn.one_hot(target, shape[axis], axis=axis, dtype=x.dtype)
        return -jnp.sum(chosen * jnn.log_softmax(x, axis), axis)

    ours = lambda x: nn.cross_entropy(x, target, axis=axis, reduction="none")
    agree_twice(ours, theirs, [rng.normal(size=shape)], peer="jax", what="cross_entropy")


@pytest.mark.peers("torch")
@each("shape", [(5,), (4, 6), (0, 3), (3, 1), (2, 3, 5), (2, 1, 2, 3, 4)])
@over("ignore", [None, -1])
@over("weighed", [False, True], ids=["plain", "weighed"])
@reductions
def test_nll(shape, ignore, weighed, reduction, rng):
    needs_elements(shape, reduction)
    target = classes(rng, shape, -1, ignore)
    numbers, w = torch.tensor(target), rng.uniform(0.5, 2, shape[-1]) if weighed else None
    own = {"weight": None if w is None else torch.tensor(w), "reduction": reduction}
    own["ignore_index"] = -100 if ignore is None else ignore
    agree_twice(
        lambda x: nn.nll(x, target, weight=w, ignore=ignore, reduction=reduction),
        lambda x: F.nll_loss(second(x, -1), numbers, **own),
        [rng.normal(size=shape)],
        peer="torch",
        what="nll",
    )


# -- margins ---------------------------------------------------------------------------------


def reduced(each, reduction):
    return {"none": lambda: each, "sum": each.sum, "mean": each.mean}[reduction]()


@pytest.mark.peers("torch")
@each("shape", [(5,), (4, 6), (0, 3), (3, 1), (2, 3, 4)])
@over("margin", [0.5, 1.0, 2.0])
@over("power", [1, 2])
@reductions
def test_multi_margin(shape, margin, power, reduction, rng):
    """Scores that differ by multiples of 0.37: off the corners. torch has no second order."""
    needs_elements(shape, reduction)
    scores = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.37
    target = classes(rng, shape, -1)
    numbers = torch.tensor(target)

    def theirs(x):
        rows, options = x.reshape(-1, shape[-1]), {"p": power, "margin": margin}
        found = F.multi_margin_loss(rows, numbers.flatten(), reduction="none", **options)
        return reduced(found.reshape(shape[:-1]), reduction)

    def parts(x):
        own = x.gather(-1, numbers[..., None])
        gap = (margin - own + x).clamp(min=0) ** power
        others = 1 - F.one_hot(numbers, shape[-1])
        return reduced((gap * others).sum(-1) / shape[-1], reduction)

    own = {"margin": margin, "power": power, "reduction": reduction}
    ours = lambda x: nn.multi_margin(x, target, **own)
    agree_twice(ours, theirs, [scores], peer="torch", what="multi_margin", twice=parts)


VECTORS = [(3,), (4, 6), (0, 3), (5, 1), (2, 3, 5), (2, 1, 2, 3, 4)]


def vectors(rng, shape, many):
    """Coordinates at least 0.3 from 0, so that vectors are not short."""
    found = rng.normal(size=(many, *shape))
    return list(found + np.sign(found) * 0.3)


@pytest.mark.peers("torch")
@each("shape", VECTORS)
@over("p", [1.0, 2.0, 3.0, float("inf")])
@over("margin", [0.2, 1.0])
@reductions
def test_triplet(shape, p, margin, reduction, rng):
    needs_elements(shape, reduction)
    options = {"margin": margin, "p": p, "reduction": reduction}
    agree_twice(
        lambda *xs: nn.triplet(*xs, **options),
        lambda *xs: F.triplet_margin_loss(*xs, **options, eps=0),
        vectors(rng, shape, 3),
        peer="torch",
        what=f"triplet {options}",
    )


@pytest.mark.peers("torch")
@each("shape", VECTORS)
@over("margin", [0.5, 2.0])
@reductions
def test_contrastive(shape, margin, reduction, rng):
    """torch has none: by its distance."""
    needs_elements(shape, reduction)
    same = np.asarray(rng.integers(0, 2, shape[:-1]))
    alike = torch.tensor(same) == 1

    def theirs(x, y):
        d = F.pairwise_distance(x, y, eps=0)
        return reduced(torch.where(alike, d**2, (margin - d).clamp(min=0) ** 2) / 2, reduction)

    ours = lambda x, y: nn.contrastive(x, y, same, margin=margin, reduction=reduction)
    agree_twice(ours, theirs, vectors(rng, shape, 2), peer="torch", what="contrastive")


@pytest.mark.peers("torch")
@each("shape", VECTORS)
@dtypes
def test_cosine(shape, dtype, rng):
    theirs = lambda x, y: F.cosine_similarity(x, y, dim=-1)
    agree_twice(
        nn.cosine, theirs, cast(vectors(rng, shape, 2), dtype), peer="torch", what="cosine"
    )


@pytest.mark.peers("torch")
@each("shape", [(3,), (4, 6), (0, 3), (5, 1), (9, 2)])
@over("margin", [0.0, 0.3, -0.5])
@reductions
def test_cosine_embedding(shape, margin, reduction, rng):
    needs_elements(shape, reduction)
    signs = np.asarray(rng.choice([-1, 1], shape[:-1]))
    numbers, options = torch.tensor(signs), {"margin": margin, "reduction": reduction}
    agree_twice(
        lambda x, y: nn.cosine_embedding(x, y, signs, **options),
        lambda x, y: F.cosine_embedding_loss(x, y, numbers, **options),
        [3 * x for x in vectors(rng, shape, 2)],  # torch adds 1e-12 to squared lengths
        peer="torch",
        what="cosine_embedding",
    )


# -- contrast and distillation: torch's parts ------------------------------------------------


@pytest.mark.peers("torch")
@each("shape", [(4, 6), (1, 3), (0, 3), (5, 1), (7, 2)])
@over("temperature", [0.1, 1.0, 3.0])
@reductions
def test_info_nce(shape, temperature, reduction, rng):
    needs_elements(shape, reduction)

    def theirs(q, k):
        logits = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT / temperature
        return F.cross_entropy(logits, torch.arange(len(q)), reduction=reduction)

    ours = lambda q, k: nn.info_nce(q, k, temperature=temperature, reduction=reduction)
    agree_twice(ours, theirs, vectors(rng, shape, 2), peer="torch", what="info_nce")


@pytest.mark.peers("torch")
@each("shape", [(5,), (4, 6), (3, 1), (2, 3, 5), (2, 1, 2, 3, 4)])
@over("temperature", [1.0, 2.0, 5.0])
@over("alpha", [None, 0.0, 0.3, 1.0])
def test_distillation(shape, temperature, alpha, rng):
    target = classes(rng, shape, -1)
    numbers, named = torch.tensor(target), {"temperature": temperature}

    def theirs(s, t):
        rows = [F.log_softmax(x.reshape(-1, shape[-1]) / temperature, -1) for x in (s, t)]
        soft = F.kl_div(*rows, reduction="batchmean", log_target=True) * temperature**2
        if alpha is None:
            return soft
        return alpha * soft + (1 - alpha) * F.cross_entropy(second(s, -1), numbers)

    def ours(s, t):
        if alpha is None:
            return nn.distillation(s, t, **named)
        return nn.distillation(s, t, target, alpha=alpha, **named)

    xs = [rng.normal(size=shape) * 2 for _ in range(2)]
    agree_twice(ours, theirs, xs, peer="torch", what="distillation")
