"""The planner on abstract problems: within budgets, exact where that can be checked."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrograd.memory.bound import proven
from retrograd.memory.evict import Meter, scheduled
from retrograd.memory.exact import smallest
from retrograd.memory.frontier import WORK, cheapest, frontier
from retrograd.memory.layout import layout
from retrograd.memory.orders import early
from retrograd.memory.problem import Problem, Schedule, Span, Unit, rounded


@st.composite
def problems(draw, most=12, limit=3):
    """Units that read earlier values, write one or two new ones, and keep some for the end."""
    count = draw(st.integers(1, most))
    sizes = [draw(st.sampled_from([64, 128, 320, 1024])) for _ in range(2)]
    held = {0}
    units = []
    for _ in range(count):
        known = len(sizes)
        reads = draw(st.lists(st.integers(0, known - 1), min_size=1, max_size=3, unique=True))
        made = [v for u in units for v in u.writes]
        reads = [v for v in reads if v in made or v in held] or [0]
        writes = [known + k for k in range(draw(st.integers(1, 2)))]
        sizes += [draw(st.sampled_from([64, 128, 192, 640, 1024])) for _ in writes]
        units.append(
            Unit(
                tuple(reads),
                tuple(writes),
                draw(st.sampled_from([0.5, 1.0, 4.0])),
                draw(st.sampled_from([0, 0, 64])),
                draw(st.sampled_from([True, True, True, False])),
            )
        )
    outputs = draw(st.sets(st.sampled_from([v for u in units for v in u.writes]), max_size=2))
    return Problem(tuple(units), tuple(sizes), frozenset(held | outputs), limit=limit)


def chain(n, size=1024):
    """n steps forwards that keep their states, and n backwards that read them."""
    units = [Unit((k,), (k + 1,)) for k in range(n)]
    sizes = [size] * (n + 1)
    g = n
    for k in reversed(range(n)):
        sizes.append(size)
        units.append(Unit((k, g), (len(sizes) - 1,)))
        g = len(sizes) - 1
    return Problem(tuple(units), tuple(sizes), frozenset([0, g]))


def no_overlap(spans, offsets):
    return all(
        a is b
        or a.last < b.first
        or b.last < a.first
        or offsets[a.name] + rounded(a.nbytes) <= offsets[b.name]
        or offsets[b.name] + rounded(b.nbytes) <= offsets[a.name]
        for a in spans
        for b in spans
    )


@given(problems())
def test_plans_work_and_are_as_large_as_they_say(problem):
    for choice in frontier(problem):
        schedule, spans = choice.schedule, choice.schedule.spans
        assert schedule.works()
        assert no_overlap(spans, choice.offsets)
        ends = [choice.offsets[s.name] + rounded(s.nbytes) for s in spans]
        assert max(ends, default=0) == choice.size
        assert choice.size >= schedule.live >= problem.bound


@given(problems(most=20), st.lists(st.integers(0, 20_000), min_size=2, max_size=20))
def test_more_budget_never_recomputes_more(problem, budgets):
    choices = frontier(problem)
    found = [cheapest(choices, b) for b in sorted(budgets)]
    costs = [float("inf") if c is None else c.cost for c in found]
    assert costs == sorted(costs, reverse=True)
    for b, c in zip(sorted(budgets), found, strict=True):
        assert c is None or c.size <= b


@pytest.mark.parametrize("length", [20, 200, 1000, 2500])
def test_the_work_of_a_search_is_bounded_whatever_the_size(length, monkeypatch):
    """Times follow from counts: all walks together look at so many operands, and then end."""
    spent = []
    spend = Meter.spend

    def counted(self, work):
        spent.append(work)
        spend(self, work)

    monkeypatch.setattr(Meter, "spend", counted)
    choices = frontier(chain(length))
    assert sum(spent) <= WORK + max(spent)
    assert choices[0].size < choices[-1].size / 4


@given(problems(most=30), st.integers(64, 8000))
def test_what_is_scheduled_fits_in_the_room(problem, room):
    found = scheduled(problem, room, range(len(problem.units)), 1.0)
    if found is not None:
        assert found.works()
        assert found.live <= room
        runs = np.bincount(found.runs, minlength=len(problem.units))
        assert runs.max() <= problem.limit
        once = [u for u, unit in enumerate(problem.units) if not unit.replays]
        assert all(runs[u] == 1 for u in once)


@given(problems(most=30), st.integers(64, 8000))
def test_with_a_file_everything_fits_that_can(problem, room):
    problem = replace(problem, disk=1e-9, sizes=tuple(1024 * s for s in problem.sizes))
    found = scheduled(problem, 1024 * room, range(len(problem.units)), 1.0)
    if 1024 * room >= problem.bound + max(problem.nbytes, default=0):
        assert found is not None
    if found is not None:
        assert found.works()
        assert found.live <= 1024 * room


@given(problems(most=20), st.booleans())
def test_the_early_order_is_an_order(problem, updates):
    order = early(problem, updates=updates)
    assert sorted(order) == list(range(len(problem.units)))
    assert Schedule(problem, tuple(order)).works()


def test_no_gradient_waits_for_all_others():
    """Weights that are updated where they are: each as soon as nothing reads the old one."""
    depth, size, held = 12, 1024, set()
    units, sizes = [], [size] * (depth + 1)  # what layers make
    weights = range(depth + 1, 2 * depth + 1)
    sizes += [size] * depth
    units += [Unit((k, weights[k]), (k + 1,), 10.0) for k in range(depth)]
    blame, updates = depth, []
    for k in reversed(range(depth)):
        grad, new, below = range(len(sizes), len(sizes) + 3)
        sizes += [size] * 3
        units.append(Unit((k, blame), (grad,), 10.0))
        units.append(Unit((weights[k], blame), (below,), 10.0))
        updates.append(Unit((weights[k], grad), (new,), 1.0, 0, False, (weights[k],)))
        held |= {weights[k], new}
        blame = below
    problem = Problem((*units, *updates), tuple(sizes), frozenset({0, blame, *held}))
    order = early(problem, updates=True)
    assert Schedule(problem, tuple(order)).works()
    assert frontier(problem)[0].size <= 6 * size  # fewer than there are gradients


# -- the smallest budget, by brute force -----------------------------------------------------


def every_schedule(problem, most):
    """Every sequence that works, of at most so many runs."""
    stack = [()]
    while stack:
        runs = stack.pop()
        if set(runs) == set(range(len(problem.units))):
            yield Schedule(problem, runs)
        if len(runs) == most:
            continue
        made = {v for u in runs for v in problem.units[u].writes}
        for u, unit in enumerate(problem.units):
            given = problem.held - set(problem.makers)
            if set(unit.reads) <= made | given and (unit.replays or u not in runs):
                stack.append((*runs, u))


def smallest_layout(spans):
    """The least bytes of any layout: spans in any order, each as low as it fits."""
    best = float("inf")
    for order in permutations(spans):
        placed, size = [], 0
        for s in order:
            low = 0
            for start, end, other in sorted(placed, key=lambda p: p[0]):
                if other.last < s.first or s.last < other.first:
                    continue
                if low + rounded(s.nbytes) <= start:
                    break
                low = max(low, end)
            placed.append((low, low + rounded(s.nbytes), s))
            size = max(size, low + rounded(s.nbytes))
        best = min(best, size)
    return best if spans else 0


@given(problems(most=4))
def test_the_smallest_budget_is_that_of_brute_force(problem):
    found = frontier(problem)[0]
    best = float("inf")
    for schedule in every_schedule(problem, len(problem.units) + 2):
        if schedule.live < best and len(schedule.spans) <= 6:
            best = min(best, smallest_layout(schedule.spans))
    assert found.size <= best
    if len(found.schedule.runs) <= len(problem.units) + 2 and len(found.schedule.spans) <= 6:
        assert found.size == best


@given(st.integers(1, 3), problems(most=3, limit=2))
def test_one_byte_less_than_the_smallest_is_refused(less, problem):
    choices = frontier(problem)
    assert cheapest(choices, choices[0].size) is not None
    assert cheapest(choices, choices[0].size - less) is None


@given(problems(most=5))
def test_nothing_is_below_the_proven_bound(problem):
    """All schedules with two runs more than there are units, and whatever was found."""
    bound = proven(problem)
    assert problem.bound <= bound <= frontier(problem)[0].size
    most = len(problem.units) + (2 if len(problem.units) < 5 else 1)
    assert all(s.live >= bound for s in every_schedule(problem, most))


def test_what_lives_beside_a_step_is_in_the_bound():
    """A gradient lives while the value that it will meet is made again."""
    problem = chain(20)
    space = tuple(replace(u, workspace=1024) if u.writes[0] <= 20 else u for u in problem.units)
    problem = replace(problem, units=space)
    assert problem.bound == 3 * 1024  # each step by itself
    assert proven(problem) == 4 * 1024
    filed = replace(problem, disk=1e-9, sizes=(1 << 14,) * len(problem.sizes))
    assert proven(filed) == filed.bound


def test_what_runs_once_and_is_read_later_is_in_the_bound():
    units = (Unit((0,), (1,), replays=False), Unit((1,), (2,)), Unit((2,), (3,)))
    problem = Problem((*units, Unit((1, 3), (4,))), (64, 1024, 64, 2048, 64), frozenset({0, 4}))
    assert problem.bound == 1024 + 2048
    assert proven(problem) == 1024 + 64 + 2048


def test_a_small_chain_is_solved_exactly():
    problem = chain(3, 64)
    assert len(problem.units) == 6
    found = smallest(problem)
    assert layout(found.spans)[1] == min(
        layout(Schedule(problem, runs).spans)[1]
        for runs in {c.schedule.runs for c in frontier(problem)}
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from([64, 128, 192, 320])),
        min_size=1,
        max_size=6,
    )
)
def test_small_layouts_are_the_smallest(rows):
    spans = [Span(i, n, first, first + more) for i, (first, more, n) in enumerate(rows)]
    offsets, size = layout(spans)
    assert no_overlap(spans, offsets)
    assert size == smallest_layout(spans)


# -- large problems ----------------------------------------------------------------------


def test_long_chains_need_little_memory():
    choices = frontier(chain(64))
    smallest_found, whole = choices[0], choices[-1]
    assert whole.schedule.again == 0
    assert smallest_found.size < whole.size / 4
    quarter = cheapest(choices, whole.size // 4)
    assert quarter.schedule.again < 64  # less than one more forward pass


def test_five_thousand_units_are_planned():
    choices = frontier(chain(2500))
    assert len(choices) > 3
    assert choices[0].size < choices[-1].size / 8
    assert all(c.schedule.works() for c in choices)


def test_what_a_dropped_value_is_made_of_stays_until_then():
    """Layers that write a product and what a spare makes of it: half of it fits in half."""
    depth, size = 12, 1024
    product = [2 * k + 1 for k in range(depth)]  # and after each, what is made of it
    units = [Unit((2 * k,), (2 * k + 1, 2 * k + 2), 10.0) for k in range(depth)]
    sizes, blame = [size] * (2 * depth + 1), 2 * depth
    for k in reversed(range(depth)):  # the slope reads the product, the weights what went in
        sizes += [size, 64]
        units.append(Unit((blame, product[k]), (len(sizes) - 2,), 10.0))
        units.append(Unit((2 * k, len(sizes) - 2), (len(sizes) - 1,), 10.0))
        blame = len(sizes) - 2
    spares = tuple(Unit((v,), (v + 1,), 1.0) for v in product[:-1])
    held = frozenset({0, *(v for v, s in enumerate(sizes) if s == 64)})
    problem = Problem(tuple(units), tuple(sizes), held, spares)
    plans = frontier(problem)
    half = cheapest(plans, (depth + 4) * size)
    assert half is not None
    assert plans[-1].size >= 2 * (depth - 1) * size
    assert all(half.schedule.runs.count(u) == 1 for u in range(len(units)))
    assert half.cost <= plans[-1].cost + depth
