"""What the tests of scans share: a loss over all results, and its gradients."""

import numpy as np
import pytest

import retrograd as rg


def everything(f, args, seed=5):
    """Values of f and cotangents of all args, for fixed random cotangents of the results."""
    arrays = [rg.asarray(a) for a in args]
    outs, pull = rg.vjp(lambda *xs: list(f(*xs)), *arrays)
    draw = np.random.default_rng(seed)
    grads = pull([rg.asarray(draw.normal(size=o.shape).astype(str(o.dtype))) for o in outs])
    return [np.asarray(o) for o in outs], [np.asarray(g) for g in grads]


@pytest.fixture(name="everything")
def fixture():
    return everything
