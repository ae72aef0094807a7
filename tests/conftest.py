"""What all tests share: seeds, sizes, and which tests run.

RETROGRAD_TEST_ALL=1      everything, at full size (make test-all)
RETROGRAD_TEST_SAMPLE=7   otherwise: the seed that chooses the sample (1 unless told)
"""

import hashlib
import importlib.util
import os
from itertools import cycle, groupby, product

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

FULL = os.environ.get("RETROGRAD_TEST_ALL", "0") not in ("", "0")
SAMPLE = os.environ.get("RETROGRAD_TEST_SAMPLE", "1")
PEERS = ("torch", "jax")

RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=30, suppress_health_check=RELAXED
)
settings.register_profile(
    "all", deadline=None, max_examples=500, print_blob=True, suppress_health_check=RELAXED
)
settings.load_profile("all" if FULL else "ci")


def generator(*words):
    """A NumPy generator that depends on the words and on nothing else."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def sample(items, n, *, key):
    """At most n of the items, in their order, chosen by seed and key; all at full size."""
    items = list(items)
    if FULL or len(items) <= n:
        return items
    chosen = generator(SAMPLE, key).choice(len(items), size=n, replace=False)
    return [items[i] for i in sorted(chosen)]


def covering(first, *others, times=2):
    """Each of the first so many times, with the combinations of the others in turn."""
    combinations = cycle(product(*others))
    return [(x, *next(combinations)) for x in first for _ in range(times)]


@pytest.fixture
def rng(request):
    """Random numbers that are this test's own: the seed is its node id."""
    return generator(request.node.nodeid)


@pytest.fixture
def full_size():
    """Whether this run is the full one."""
    return FULL


def pytest_collection_modifyitems(config, items):
    missing = {name for name in PEERS if importlib.util.find_spec(name) is None}
    for item in items:
        if not FULL and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: RETROGRAD_TEST_ALL=1 runs it"))
        if peers := item.get_closest_marker("peers"):
            absent = sorted(missing & set(peers.args or PEERS))
            if absent:
                reason = f"needs {' and '.join(absent)}: make test-peers"
                item.add_marker(pytest.mark.skip(reason=reason))
    kept = list(_sampled(items))
    if len(kept) < len(items):
        left = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = kept


def _sampled(items):
    """The items, less those that a test marked `sampled(n)` has beyond n."""
    for name, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        marker = cases[0].get_closest_marker("sampled")
        yield from sample(cases, marker.args[0], key=name) if marker else cases
