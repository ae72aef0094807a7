"""The registry is the test table: no op is named here, and none is exempt."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.op import REGISTRY
from retrograd.testing import check

for namespace in rg.__all__:
    getattr(rg, namespace)  # those that are loaded when first asked for fill the registry too

OURS = [cls for cls in REGISTRY.values() if cls.__module__.startswith("retrograd.")]
CASES = [(op, xs) for cls in OURS for op, *xs in cls.samples(np.random.default_rng(7))]
IDS = [f"{repr(op)[:60]}-{i}" for i, (op, _) in enumerate(CASES)]
REFUSALS = [
    (op, arrays, sentence)
    for cls in OURS
    for op, *arrays, sentence in cls.refuses(np.random.default_rng(7))
]


@pytest.mark.parametrize(("op", "arrays"), CASES, ids=IDS)
def test_op(op, arrays):
    check.check_op(op, *arrays)


@pytest.mark.parametrize(("op", "arrays"), CASES, ids=IDS)
def test_batch_rule_is_its_own(op, arrays):
    """None of ours is mapped one by one."""
    assert hasattr(op, "batch") or not arrays or hasattr(op, "expand"), (
        f"{op} has no batch rule"
    )


@pytest.mark.parametrize(("op", "arrays", "sentence"), REFUSALS)
def test_refuses(op, arrays, sentence):
    check.check_refuses(op, arrays, sentence)
