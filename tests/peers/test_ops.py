"""Every op that torch or jax also has agrees with them, on values and on gradients."""

import os
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from peers.against import agree, floating
from peers.table import PEERS, Row

import retrograd  # noqa: F401 - fills the registry
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Elementwise

# How much of each: jax compiles a program for every new shape, which takes a tenth of a second.
SEEDS = {"torch": 4, "jax": 2}  # of samples
FURTHER = {"torch": 12, "jax": 2}  # samples of the table's own
SHAPES = {"torch": 6, "jax": 1}  # that broadcast, for each of
SAMPLES = {"torch": 9, "jax": 2}  # so many samples


# compared in test_special.py and test_distances.py
ELSEWHERE = {"Bessel", "Betainc", "Gammainc", "Gammaincc", "Zeta", "PairSum", "PairSumPull"}


def ours():
    """The ops of the basic families, whatever else has been imported by now.

    Sub-packages (nn, ssm, decompose, ...) have files of their own beside this one.
    """
    listed = (
        "import retrograd as rg; from retrograd.core.op import REGISTRY\n"
        "for name in rg.__all__: getattr(rg, name)\n"
        "basic = [n for n, c in REGISTRY.items() if c.__module__.count('.') == 2]\n"
        "print(*basic)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", listed], env=env, capture_output=True, check=True
    )
    return set(found.stdout.decode().split())


def pairs():
    for name, row in PEERS.items():
        for peer in ("torch", "jax"):
            if isinstance(row, Row) and getattr(row, peer) is not None:
                yield pytest.param(
                    name, peer, marks=pytest.mark.peers(peer), id=f"{name}-{peer}"
                )


@pytest.mark.peers("numpy")  # no peer is needed to compare two lists of names
def test_every_op_has_a_row():
    """An op without a row: say how torch or jax is asked for it, or why neither can be."""
    assert ours() - PEERS.keys() - ELSEWHERE == set()


@pytest.mark.peers("numpy")
def test_every_row_has_an_op():
    assert PEERS.keys() - ours() == set()


@pytest.mark.peers("numpy")
def test_rows_say_something():
    for name, row in PEERS.items():
        if isinstance(row, str):
            assert len(row.split()) > 4, f"{name}: a reason is a sentence"
        else:
            assert row.torch or row.jax, f"{name}: neither peer, and no reason"


def broadcasting(op, arrays, rng):
    """Other shapes, which broadcast, of numbers that are near the sample's own."""
    ndim = int(rng.integers(0, 5))
    whole = tuple(int(n) for n in rng.integers(1, 4, ndim))
    found = []
    for a in arrays:
        keep = int(rng.integers(0, ndim + 1))
        shape = tuple(1 if rng.integers(4) == 0 else n for n in whole[ndim - keep :])
        b = rng.choice(a.reshape(-1), shape)
        if b.dtype.kind in "fc":  # away from ties, which hold their own table
            b = b * (1 + 1e-3 * rng.uniform(-1, 1, shape))
        found.append(np.asarray(b, a.dtype))
    return op, *found


def cases(name, peer):
    """Samples of an op by several seeds, and in further shapes."""
    for seed in range(SEEDS[peer]):
        yield from REGISTRY[name].samples(np.random.default_rng(seed))
    rng, cls, row = np.random.default_rng(100), REGISTRY[name], PEERS[name]
    if row.more:
        yield from islice(row.more(rng), FURTHER[peer])
    if issubclass(cls, Elementwise):
        whole = [s for s in cls.samples(rng) if all(np.asarray(a).size for a in s[1:])]
        kinds = {np.asarray(arrays[-1]).dtype: (op, *arrays) for op, *arrays in whole[::-1]}
        for op, *arrays in [*kinds.values(), *whole][: SAMPLES[peer]]:
            for _ in range(SHAPES[peer]):
                yield broadcasting(op, [np.asarray(a) for a in arrays], rng)


@pytest.mark.parametrize(("name", "peer"), list(pairs()))
def test_op(name, peer):
    row = PEERS[name]
    f = getattr(row, peer)
    compiled = {}
    for seed, (op, *arrays) in enumerate(cases(name, peer)):
        if row.where and not row.where(peer, op, *arrays):
            continue
        arrays = [np.asarray(a) for a in arrays]
        slopes = not (op.no_derivative or (row.values_only or {}).get(peer))
        moving = [i for i in floating(arrays) if i in op.moving(len(arrays))]
        agree(
            lambda *xs, op=op: apply(op, *xs),
            lambda *xs, op=op: f(op, *xs),
            arrays,
            moving,
            peer=peer,
            seed=seed,
            slopes=slopes,
            what=f"{op} on {[a.shape for a in arrays]}",
            compiled=compiled.setdefault(op, {}),
        )
