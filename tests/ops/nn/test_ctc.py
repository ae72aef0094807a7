"""The ctc loss: against counting all alignments, its derivatives, and what it refuses."""

import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.ops.nn.ctc import ctc
from retrograd.testing import assert_close, check_grads


def collapsed(path, blank):
    """Repeats merged, then blanks dropped."""
    merged = [c for c, _ in itertools.groupby(path)]
    return [c for c in merged if c != blank]


def by_counting(log_p, labels, blank):
    total = 0.0
    for path in itertools.product(range(log_p.shape[1]), repeat=log_p.shape[0]):
        if collapsed(path, blank) == list(labels):
            total += np.exp(sum(log_p[t, c] for t, c in enumerate(path)))
    return -np.log(total)


def log_chances(rng, steps=5, rows=4, classes=3):
    return np.log(rng.dirichlet(np.ones(classes), size=(steps, rows)))


@pytest.mark.parametrize("blank", [0, 2])
def test_it_is_the_sum_over_all_alignments(rng, blank):
    log_p, other = log_chances(rng), 2 - blank
    labels = np.array([[1, other], [1, 1], [other, 1], [1, other]])
    frames, lengths = np.array([5, 5, 4, 3]), np.array([2, 2, 1, 0])
    found = ctc(log_p, labels, frames=frames, lengths=lengths, blank=blank, reduction="none")
    wanted = [
        by_counting(log_p[: frames[i], i], labels[i, : lengths[i]], blank) for i in range(4)
    ]
    assert_close(found, np.array(wanted))


def test_derivatives_of_both_orders(rng):
    x = rng.normal(size=(5, 2, 3))
    labels = np.array([[1, 1], [2, 1]])
    from retrograd.ops.nn.softmax import log_softmax

    check_grads(lambda v: ctc(log_softmax(v), labels, lengths=np.array([2, 1])), x)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: ctc(p, np.array([[1, 3]])), r"must be \[T, N, C\]"),
        (lambda p: ctc(p, np.ones((4, 2))), "must be integers"),
        (lambda p: ctc(p, np.zeros((4, 2), int)), "not blank"),
        (lambda p: ctc(p, np.ones((4, 2), int), lengths=np.full(4, 9)), "from 0 to 2"),
        (lambda p: ctc(p, np.ones((4, 2), int), blank=7), "not one of the 3 classes"),
    ],
)
def test_refusals(rng, call, sentence):
    with pytest.raises(rg.RetrogradError, match=sentence):
        call(log_chances(rng))


@pytest.mark.peers("torch")
def test_it_agrees_with_pytorch(rng):
    import torch

    x = rng.normal(size=(12, 3, 5))
    labels = rng.integers(1, 5, (3, 4))
    lengths, frames = np.array([4, 2, 3]), np.array([12, 9, 10])
    from retrograd.ops.nn.softmax import log_softmax

    value, grad = rg.value_and_grad(
        lambda v: ctc(log_softmax(v), labels, frames=frames, lengths=lengths)
    )(x)
    t = torch.tensor(x, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        t.log_softmax(-1), *map(torch.from_numpy, (labels, frames, lengths))
    )
    theirs.backward()
    assert_close(value, theirs.detach().numpy())
    assert_close(grad, t.grad.numpy())


def test_classes_without_any_chance_have_no_nan():
    path = [1, 1, 0, 2, 2, 2]
    log_p = np.full((len(path), 1, 3), -np.inf)
    log_p[np.arange(len(path)), 0, path] = 0  # certain: the only way there is
    value, slope = rg.value_and_grad(ctc)(log_p, np.array([[1, 2]]))
    assert_close(value, np.zeros(()))
    assert_close(slope * 2, -np.exp(log_p))  # the mean is over two labels
