"""Public functions agree with torch's and jax's, on values and gradients, in many shapes."""

import inspect

import numpy as np
import pytest
from peers.against import agree, floating
from peers.functions import PEERS, Row
from peers.test_special import ELSEWHERE, ROWS

import retrograd as rg
from retrograd.core.op import REGISTRY

SEEDS = {"torch": 3, "jax": 1}  # jax compiles for each case


def pairs():
    for name, row in PEERS.items():
        for peer in ("torch", "jax"):
            if isinstance(row, Row) and getattr(row, peer) is not None:
                yield pytest.param(
                    name, peer, marks=pytest.mark.peers(peer), id=f"{name}-{peer}"
                )


def public():
    """Names of functions on tensors: what the families of ops list."""
    for prefix, module in (("", rg), ("special.", rg.special)):
        for name in module.__all__:
            f = getattr(module, name)
            if inspect.isfunction(f) and f.__module__.startswith("retrograd.ops."):
                yield prefix + name


@pytest.mark.peers("numpy")  # no peer is needed to compare two lists of names
def test_every_function_has_a_row():
    """Functions that are one op under its own name have their row among the ops."""
    names = list(public())  # first: asking for rg.special loads its ops
    ops = {cls.name for cls in REGISTRY.values()}
    special = {f"special.{name}" for name in (*ROWS, *ELSEWHERE)}
    missing = {n for n in names if n.rpartition(".")[2] not in ops} - PEERS.keys()
    assert missing - special == set()


@pytest.mark.peers("numpy")
def test_every_row_has_a_function():
    beside = {"getitem", "diff between", "pow of a number"}
    assert {n for n in PEERS if not n.startswith("at.")} - beside - set(public()) == set()


def called(name):
    """The public function of that name."""
    f = rg
    for part in name.split("."):
        f = getattr(f, part)
    return f


@pytest.mark.parametrize(("name", "peer"), list(pairs()))
def test_function(name, peer):
    row = PEERS[name]
    ours = (lambda *xs, **o: row.ours(rg, *xs, **o)) if row.ours else called(name)
    theirs = getattr(row, peer)
    slopes = not (row.values_only or {}).get(peer)
    for seed in range(SEEDS[peer]):
        for i, case in enumerate(row.cases):
            arrays, options = case(np.random.default_rng(1000 * seed + i))
            if row.where and not row.where(peer, options, *arrays):
                continue
            agree(
                lambda *xs, o=options: ours(*xs, **o),
                lambda *xs, o=options: theirs(*xs, **o),
                arrays,
                floating(arrays),
                peer=peer,
                seed=i,
                slopes=slopes,
                what=f"{name}({', '.join(str(a.shape) for a in arrays)}, {options})",
            )
