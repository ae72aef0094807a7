"""ctc agrees with torch's, and its second order with counting all paths in torch."""

import itertools

import numpy as np
import pytest
from peers.against import F, agree, agree_twice, torch
from peers.shapes import dtypes, each, over

from retrograd import nn

pytestmark = pytest.mark.peers("torch")
REDUCTIONS = ("mean", "sum", "none")


def repeats(row):
    return int(np.sum(row[1:] == row[:-1]))


def drawn(rng, steps, n, classes, most, blank):
    """Logits, labels, and as many frames and labels of each row as fit each other.

    With few classes labels repeat, and a repeat needs a frame more. What is beyond a row's
    length is filled with anything that is a class.
    """
    others = [c for c in range(classes) if c != blank]
    labels = rng.choice(others, size=(n, most)) if most else np.zeros((n, 0), int)
    lengths = rng.integers(0, most + 1, n)
    for i, row in enumerate(labels):
        while lengths[i] + repeats(row[: lengths[i]]) > steps:
            lengths[i] -= 1
    least = [max(1, k + repeats(row[:k])) for k, row in zip(lengths, labels, strict=True)]
    frames = np.array([rng.integers(low, steps + 1) for low in least])
    return rng.normal(size=(steps, n, classes)) * 2, labels, frames, lengths


def ours(labels, frames, lengths, blank, reduction):
    """Of logits: torch's gradient is one of chances that sum to one, and of no others."""
    options = {"frames": frames, "lengths": lengths, "blank": blank, "reduction": reduction}
    return lambda x: nn.ctc(nn.log_softmax(x), labels, **options)


def theirs(labels, frames, lengths, blank, reduction):
    found = [torch.tensor(a) for a in (labels, frames, lengths)]
    options = {"blank": blank, "reduction": reduction}
    return lambda x: F.ctc_loss(F.log_softmax(x, -1), *found, **options)


def collapsed(path, blank):
    """Repeats merged, then blanks dropped."""
    return [c for c, _ in itertools.groupby(path) if c != blank]


def counted(labels, frames, lengths, blank, reduction):
    """The sum over every path that collapses to the labels, each written out."""

    def call(x):
        log_p, rows = F.log_softmax(x, -1), []
        for i, (t, k) in enumerate(zip(frames, lengths, strict=True)):
            every = itertools.product(range(x.shape[2]), repeat=int(t))
            paths = [p for p in every if collapsed(p, blank) == list(labels[i, :k])]
            chances = log_p[torch.arange(int(t)), i, torch.tensor(paths)]  # [paths, time]
            rows.append(-torch.logsumexp(chances.sum(-1), 0))
        each = torch.stack(rows)
        if reduction == "mean":
            return (each / torch.tensor(lengths).clamp(min=1)).mean()
        return each.sum() if reduction == "sum" else each

    return call


SIZES = [  # frames, rows, classes, labels at most, blank
    (1, 1, 2, 1, 0),
    (1, 3, 3, 0, 0),
    (6, 2, 2, 3, 1),
    (7, 4, 3, 3, 2),
    (9, 3, 5, 4, 0),
    (12, 5, 4, 5, 3),
    (25, 2, 6, 9, 2),
    (31, 1, 3, 12, 1),
]


@each("sizes", SIZES)
@over("reduction", REDUCTIONS)
@over("round", range(3))
@dtypes
def test_torch(sizes, reduction, round, dtype, rng):
    x, *own = drawn(rng, *sizes)
    own = [*own, sizes[-1], reduction]
    agree(ours(*own), theirs(*own), [x.astype(dtype)], [0], peer="torch", what=f"ctc {own[:3]}")


@each(
    "sizes",
    [(1, 2, 2, 1, 0), (1, 2, 3, 0, 1), (4, 3, 2, 2, 1), (5, 2, 3, 3, 2), (4, 2, 4, 3, 0)],
)
@over("reduction", REDUCTIONS)
def test_second_order(sizes, reduction, rng):
    """torch has none of its own."""
    x, *own = drawn(rng, *sizes)
    own = [*own, sizes[-1], reduction]
    agree_twice(ours(*own), counted(*own), [x], peer="torch", what=f"ctc {own[:3]}")


@over("reduction", REDUCTIONS)
def test_all_frames_and_labels_count_by_default(reduction, rng):
    x, labels = rng.normal(size=(6, 2, 4)), np.array([[1, 2, 3], [3, 3, 1]])
    mine = lambda x: nn.ctc(nn.log_softmax(x), labels, reduction=reduction)
    whole = np.full(2, 6), np.full(2, 3)
    agree(mine, theirs(labels, *whole, 0, reduction), [x], [0], peer="torch", what="ctc")


def test_no_frames_hold_no_labels():
    """A row without frames and without labels is certain."""
    own = [np.ones((2, 1), int), np.array([0, 3]), np.array([0, 1]), 0, "none"]
    x = np.random.default_rng(0).normal(size=(3, 2, 2))
    agree(ours(*own), theirs(*own), [x], [0], peer="torch", what="ctc of nothing")
