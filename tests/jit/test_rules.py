"""The table of simplify: every rule is exact, alone and together with all others."""

import importlib
import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.interpret import apply
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.passes.rules_numbers import lossless
from retrograd.jit.passes.table import RULES, rules_of
from retrograd.ops.cast import Astype
from retrograd.ops.extrema import Max
from retrograd.ops.join import Concat
from retrograd.ops.pad import Pad
from retrograd.ops.power import IntegerPower, Pow
from retrograd.ops.shape import BroadcastTo, PermuteDims, Reshape
from retrograd.ops.slices import Slice
from retrograd.ops.turn import Flip
from retrograd.testing.exactly import assert_same_bits

table = importlib.import_module("retrograd.jit.passes.simplify")  # the function has its name
NAMES = sorted({f.__name__ for rules in RULES.values() for f in rules})
FLOATS, NUMBERS = dt.FLOATS, (*dt.FLOATS, *dt.INTEGERS)
EVERY = (*NUMBERS, *dt.COMPLEX)


def nasty(dtype, rng):
    """The special numbers of a dtype beside others, in a matrix."""
    if dtype == dt.bool:
        return rng.integers(0, 2, (4, 12)).astype(bool)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        found = rng.integers(max(ends.min, -9), 9, (4, 12)).astype(dtype)
        found[0, :3] = ends.min, ends.max, 0
        return found
    if dtype.kind == "c":
        found = np.empty((4, 12), dtype)
        found.real = nasty(dt.real_of(dtype), rng)
        found.imag = nasty(dt.real_of(dtype), rng)[:, ::-1]
        return found
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, 6e-8, 3e38, 65504, 1, -1]
    with np.errstate(all="ignore"):
        found = rng.normal(size=(4, 12)) * 10.0 ** rng.integers(-6, 6, (4, 12))
        found[:2] = special, np.roll(special, 5)
        return found.astype(dtype)


# (rule, dtypes, program of x and y that it applies to)
CASES = [
    ("times_one", NUMBERS, lambda x, y: 1 * x + y * 1),
    ("over_one", FLOATS, lambda x, y: x / 1),
    ("plus_nothing", FLOATS, lambda x, y: (x + -0.0) * (-0.0 + y)),
    ("plus_nothing", dt.INTEGERS, lambda x, y: (x + 0) * (0 + y)),
    ("minus_nothing", NUMBERS, lambda x, y: x - 0),
    ("over_a_power_of_two", FLOATS, lambda x, y: (x / 4 + y / -0.125) / 2.0**-14),
    ("negative_of_negative", EVERY, lambda x, y: rg.negative(-x)),
    ("plus_negative", EVERY, lambda x, y: (x + -y) * (-x + y)),
    ("minus_negative", EVERY, lambda x, y: x - -y),
    ("signs_cancel", FLOATS, lambda x, y: (-x * -y) + (-x / -y)),
    ("sign_is_lost", FLOATS, lambda x, y: rg.abs(-x) + rg.square(-y)),
    ("absolute_twice", FLOATS, lambda x, y: rg.abs(rg.abs(x))),
    ("itself", NUMBERS, lambda x, y: +x + rg.stop_gradient(y)),
    ("larger_of_one", NUMBERS, lambda x, y: rg.maximum(x, x) + rg.minimum(y, y)),
    ("not_not", NUMBERS, lambda x, y: rg.logical_not(rg.logical_not(x > y))),
    ("whole_powers", FLOATS, lambda x, y: apply(IntegerPower(1), x)),
    ("whole_powers", NUMBERS, lambda x, y: apply(IntegerPower(2), x)),
    ("known_powers", FLOATS, lambda x, y: apply(Pow(), x, 2.0) + apply(Pow(), y, 1.0)),
    ("known_choice", NUMBERS, lambda x, y: rg.where(True, x, y) + rg.where(x > y, y, y)),
    ("known_choice", NUMBERS, lambda x, y: rg.where(False, x, y[:1])),
    ("turned_choice", NUMBERS, lambda x, y: rg.where(rg.logical_not(x > y), x, y)),
    ("choice_in_choice", NUMBERS, lambda x, y: rg.where(c := x > y, rg.where(c, x, y), 3)),
    ("choice_in_choice", NUMBERS, lambda x, y: rg.where(c := x > y, 3, rg.where(c, x, y))),
    ("cast_to_its_own", dt.ALL, lambda x, y: apply(Astype(x.dtype), x)),
    ("shape_it_has", NUMBERS, lambda x, y: apply(Reshape(x.shape), x)),
    ("shape_it_has", NUMBERS, lambda x, y: apply(BroadcastTo(x.shape), x)),
    ("order_it_has", NUMBERS, lambda x, y: apply(PermuteDims((0, 1)), x)),
    ("nothing_to_flip", NUMBERS, lambda x, y: apply(Flip((0,)), x[:1])),
    ("slice_of_all", NUMBERS, lambda x, y: apply(Slice(((0, 4, 1), (0, 12, 1))), x)),
    ("pad_with_nothing", NUMBERS, lambda x, y: apply(Pad(((0, 0), (0, 0))), x)),
    ("concat_of_one", NUMBERS, lambda x, y: apply(Concat(0), x)),
    ("extreme_of_one", NUMBERS, lambda x, y: apply(Max((0,)), x[:1])),
    ("last_shape_counts", NUMBERS, lambda x, y: x.reshape(48).reshape(6, 8)),
    ("last_shape_counts", NUMBERS, lambda x, y: spread(spread(x[:, :1], 4, 3), 2, 4, 3)),
    ("permuted_twice", NUMBERS, lambda x, y: rg.permute_dims(x[None].mT, (1, 2, 0))),
    ("only_ones_move", NUMBERS, lambda x, y: rg.permute_dims(x[None], (1, 0, 2))),
    ("flipped_twice", NUMBERS, lambda x, y: rg.flip(rg.flip(x, axis=0), axis=(0, 1))),
    ("moved_number", NUMBERS, lambda x, y: rg.full((3, 4), 7, dtype=x.dtype).mT[1:, ::2]),
    ("shaped_number", NUMBERS, lambda x, y: rg.sum(x).reshape(1, 1) * y),
    ("computed_once", FLOATS, lambda x, y: rg.full((3, 4), 7).astype(x.dtype)),
    ("computed_once", FLOATS, lambda x, y: rg.exp(rg.sin(spread(x[0, 3], 5, 9)))),
    ("computed_once", FLOATS, lambda x, y: rg.atan2(spread(x[1, 3], 5, 9), y[2, 2])),
    ("slice_of_shape", NUMBERS, lambda x, y: x[:, None] + y[:1][0]),
    ("broadcasts_by_itself", NUMBERS, lambda x, y: x * spread(y[0], 4, 12) - y),
]


def spread(x, *to):
    return rg.broadcast_to(x, to)


def traced(f, dtype, rng):
    arrays = [nasty(dtype, rng), nasty(dtype, rng)[::-1]]
    return trace(lambda *xs: [f(*xs)], [spec_of(a) for a in arrays])[0], arrays


@pytest.fixture
def only(monkeypatch):
    """Leave one rule in the table."""

    def choose(name):
        found = lambda kind: [f for f in rules_of(kind) if f.__name__ == name]
        monkeypatch.setattr(table, "rules_of", found)

    return choose


@pytest.mark.parametrize(("name", "dtypes", "f"), CASES, ids=[c[0] for c in CASES])
def test_the_rule_applies_and_is_exact(name, dtypes, f, only, rng):
    only(name)
    for dtype in dtypes:
        graph, arrays = traced(f, dtype, rng)
        after = verify(table.simplify(graph))
        assert after != graph, f"{name} does not apply to {dtype}"
        assert_same_bits(graph, after, arrays)


@pytest.mark.parametrize("first", dt.ALL, ids=str)
def test_conversions_in_which_nothing_is_lost(first, only, rng):
    """Also of numbers that the last dtype does not hold: there the rule stays away."""
    only("cast_of_cast")
    for middle, last in itertools.product(dt.ALL, repeat=2):
        if lossless(first, middle):
            f = lambda x, y, m=middle, n=last: apply(Astype(n), apply(Astype(m), x))
            graph, arrays = traced(f, first, rng)
            assert_same_bits(graph, verify(table.simplify(graph)), arrays)


def test_a_way_there_and_back_is_nothing(only, rng):
    graph, _ = traced(lambda x, y: x.astype(rg.float64).astype(x.dtype), dt.float32, rng)
    assert table.simplify(graph).outputs == (0,)


def test_every_rule_has_a_case():
    assert sorted({name for name, *_ in CASES} | {"cast_of_cast"}) == NAMES


# What looks alike and is not: signs of zero, infinities, rounding.
TRAPS = [
    (FLOATS, lambda x, y: x + 0.0),
    (FLOATS, lambda x, y: x - -0.0),
    (FLOATS, lambda x, y: 0.0 - x),
    (FLOATS, lambda x, y: x * 0.0),
    (FLOATS, lambda x, y: x / 3),
    (FLOATS, lambda x, y: x / 2.0**-149),
    (FLOATS, lambda x, y: x / 2.0**127),
    (FLOATS, lambda x, y: (x + y) - y),
    (FLOATS, lambda x, y: rg.sum(x[:1], axis=0)),
    (FLOATS, lambda x, y: rg.sum(spread(x[0], 3, 12), axis=0)),
    (FLOATS, lambda x, y: apply(Pow(), x, rg.full((4, 12), 2, dtype=x.dtype))),
    (dt.COMPLEX, lambda x, y: (x * 1) / 1 + 0.0),
    (dt.COMPLEX, lambda x, y: -x * -y),
    (NUMBERS, lambda x, y: rg.logical_not(rg.logical_not(x))),
    (NUMBERS, lambda x, y: rg.where(rg.logical_not(x), x, y)),
    (NUMBERS, lambda x, y: spread(x[:, :1], 4, 3).reshape(3, 4)),
    (NUMBERS, lambda x, y: rg.where(x[0, 0] > 0, x, x[:1])),
]


@pytest.mark.parametrize(("dtypes", "f"), [*TRAPS, *((c[1], c[2]) for c in CASES)])
def test_all_rules_together_are_exact(dtypes, f, rng):
    for dtype in dtypes:
        graph, arrays = traced(f, dtype, rng)
        assert_same_bits(graph, verify(table.simplify(graph)), arrays)


def test_lines_and_checkpoints_stay_with_what_remains(rng):
    def f(x, y):
        return rg.checkpoint(lambda z: rg.sin(rg.negative(-z)) / 4)(x)  # here

    graph, _ = traced(f, dt.float32, rng)
    after = table.simplify(graph)
    kept = [n for n in after.nodes if n.inputs]
    assert [n.op.name for n in kept] == ["negative", "sin", "multiply"]
    assert all("# here" in str(n.where) for n in after.nodes)
    assert all(n.tags == graph.nodes[0].tags for n in kept)
