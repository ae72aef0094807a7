"""cdist and pdist agree with PyTorch on values and gradients, float64 and float32."""

import numpy as np
import pytest
from peers.against import F, agree, torch

import retrograd as rg
from retrograd.ops.distances.condensed import pdist
from retrograd.ops.distances.pairwise import cdist
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("torch")
POWERS = [1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 1)])
@pytest.mark.parametrize(("n", "m", "d"), [(5, 4, 3), (1, 6, 1), (30, 28, 9), (0, 3, 2)])
@pytest.mark.parametrize("save", ["distances", "recompute"])
def test_cdist(p, lead, n, m, d, save):
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=(*lead, k, d)) for k in (n, m)]
    agree(
        lambda x, y: cdist(x, y, metric="minkowski", p=p, save=save),
        lambda x, y: torch.cdist(x, y, p=p),
        arrays,
        [0, 1],
        peer="torch",
        what=f"cdist p={p}",
    )


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("n", "d"), [(5, 3), (2, 1), (12, 8)])
def test_pdist(p, n, d):
    x = np.random.default_rng(4).normal(size=(n, d))
    agree(
        lambda x: pdist(x, metric="minkowski", p=p),
        lambda x: F.pdist(x, p=p),
        [x],
        [0],
        peer="torch",
        what=f"pdist p={p}",
    )


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_angles(metric):
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(4, 6)), rng.normal(size=(5, 6))]

    def theirs(x, y):
        if metric == "correlation":
            x, y = (t - t.mean(-1, keepdim=True) for t in (x, y))
        return 1 - F.cosine_similarity(x[:, None], y[None], dim=-1)

    agree(
        lambda x, y: cdist(x, y, metric=metric),
        theirs,
        arrays,
        [0, 1],
        peer="torch",
        what=metric,
    )


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("d", [3, 8])
def test_second_order(p, d):
    """The gradient of the squared gradient; by PyTorch through the norm of differences."""
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(5, d)), rng.normal(size=(4, d))

    def ours(x, y):
        f = lambda u, v: rg.sum(rg.sin(cdist(u, v, metric="minkowski", p=p)))
        return rg.sum(rg.grad(f)(x, y) ** 2)

    x, y = (torch.tensor(t, requires_grad=True) for t in (a, b))
    far = torch.linalg.vector_norm(x[:, None] - y, ord=p, dim=-1)
    (first,) = torch.autograd.grad(far.sin().sum(), x, create_graph=True)
    wanted = torch.autograd.grad((first**2).sum(), (x, y))
    found = rg.grad(ours, argnums=(0, 1))(a, b)
    assert_close([t.numpy() for t in found], [t.numpy() for t in wanted])
