"""Equal layers: found, planned once, and the plan laid over all of them."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from retrograd.memory import frontier as search
from retrograd.memory.evict import scheduled
from retrograd.memory.frontier import cheapest, frontier
from retrograd.memory.layers import Layers, _Kind, _readers, alike, laid_over
from retrograd.memory.problem import Problem, Schedule, Unit

ENDLESS = 1 << 62


def network(count, dear=8.0, cheap=1.0, sizes=(1024, 512, 256)):
    """A layer has three results that its backward reads; two can be made of the first.

    The first comes by a dear unit of what the layer before ended with.
    """
    nbytes, units, kept = [64], [], []

    def made(size):
        nbytes.append(size)
        return len(nbytes) - 1

    x = 0
    for _ in range(count):
        a, b, c = (made(s) for s in sizes)
        units += [Unit((x,), (a,), dear), Unit((a,), (b,), cheap), Unit((b,), (c,), cheap)]
        kept.append((a, b, c))
        x = c
    for a, b, c in reversed(kept):
        g = made(256)
        units.append(Unit((a, b, c, x), (g,), dear))
        x = g
    return Problem(tuple(units), tuple(nbytes), frozenset({0, x}))


def order_of(problem):
    return list(range(len(problem.units)))


def kind_of(problem):
    order = order_of(problem)
    return _Kind(problem, order, _readers(problem, order), alike(problem, order)[0])


def test_repeated_units_are_layers():
    problem = network(20)
    found = alike(problem, order_of(problem))
    assert found == [Layers(first=1, period=3, count=19), Layers(first=60, period=1, count=19)]


def test_different_units_are_not_layers():
    problem = network(6)
    units = [replace(u, cost=1.0 + k) for k, u in enumerate(problem.units)]
    problem = replace(problem, units=tuple(units))
    assert not alike(problem, order_of(problem))
    assert not list(laid_over(problem, order_of(problem), 8))


def test_the_plan_of_a_layer_does_not_depend_on_their_number():
    few, many = kind_of(network(8)).savings, kind_of(network(80)).savings
    assert few == many
    assert len(few) > 1


def test_what_frees_more_for_its_cost_goes_first():
    savings = kind_of(network(12)).savings
    rates = [(b.cost - a.cost) / (a.nbytes - b.nbytes) for a, b in itertools.pairwise(savings)]
    assert rates == sorted(rates)
    dropped = [s.dropped for s in savings]
    assert all(a < b for a, b in itertools.pairwise(dropped))


def test_layers_do_the_same():
    """In the last step before groups every layer lets go of the same values."""
    problem = network(30)
    kind = kind_of(problem)
    *_, furthest, _ = laid_over(problem, order_of(problem), 8)
    for j in range(kind.layers.count):
        values = dict(kind.values(j))
        assert {values[v] for v in furthest if v in values} == kind.savings[-1].dropped


def test_more_is_let_go_of_with_every_step():
    problem = network(30)
    order = order_of(problem)
    whole = Schedule(problem, tuple(order))
    runs = [
        scheduled(problem, ENDLESS, order, 1.0, None, drops)
        for drops in laid_over(problem, order, 8)
    ]
    assert all(run is not None and run.works() for run in runs)
    lives = [whole.live, *(run.live for run in runs)]
    costs = [whole.cost, *(run.cost for run in runs)]
    assert lives == sorted(lives, reverse=True)
    assert costs == sorted(costs)


def test_many_layers_have_plans_between_all_and_the_smallest(monkeypatch):
    """Where the work allowed is a few walks, plans of one layer fill the gap."""
    problem = network(120)
    monkeypatch.setattr(search, "WORK", 30_000)
    laid = frontier(problem)
    monkeypatch.setattr(search, "laid_over", lambda *args: iter(()))
    walked = frontier(problem)
    top = max(c.size for c in walked)
    shares = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6]
    ours = [cheapest(laid, int(top * s)).cost for s in shares]
    theirs = [cheapest(walked, int(top * s)).cost for s in shares]
    assert sum(ours) < sum(theirs)


@given(
    st.integers(3, 9),
    st.tuples(*[st.sampled_from([64, 128, 320, 1024])] * 3),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.sampled_from([0.5, 2.0]),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_any_layers_run_as_planned(count, sizes, dear, cheap, replays):
    """Also where some units must not run again."""
    problem = network(count, dear, cheap, sizes)
    units = [
        replace(u, replays=replays[k % 3] if k < 3 * count else True)
        for k, u in enumerate(problem.units)
    ]
    problem = replace(problem, units=tuple(units))
    order = order_of(problem)
    for drops in laid_over(problem, order, 4):
        run = scheduled(problem, ENDLESS, order, 1.0, None, drops)
        assert run is None or run.works()
    assert all(choice.schedule.works() for choice in frontier(problem))
