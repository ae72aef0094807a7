"""while_loop, fori_loop and cond: the promises of loops whose end the data decides."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close, check_grads


def root(a, **options):
    """The square root by Newton's steps."""
    start = rg.ones((), dtype=rg.float64)
    state = rg.while_loop(
        lambda s: rg.abs(s[0] * s[0] - s[1]) > 1e-13 * s[1],
        lambda s: ((s[0] + s[1] / s[0]) / 2, s[1]),
        (start, a),
        **options,
    )
    return state[0]


@pytest.mark.parametrize("options", [{}, {"max_steps": 30}])
def test_a_loop_that_ends_by_itself_is_differentiated_any_number_of_times(options):
    def f(a):
        return root(a, **options)

    a = np.float64(2.0)
    assert_close(f(rg.asarray(a)), np.sqrt(a))
    assert_close(rg.grad(f)(a), rg.grad(rg.sqrt)(a))
    assert_close(rg.grad(rg.grad(f))(a), rg.grad(rg.grad(rg.sqrt))(a))
    assert_close(rg.hessian(f)(a), rg.hessian(rg.sqrt)(a))


def test_under_vmap_it_runs_until_all_are_done():
    a = np.array([2.0, 1e-3, 1e6])
    assert_close(rg.vmap(root)(a), np.sqrt(a))
    bounded = rg.vmap(rg.grad(lambda x: root(x, max_steps=60)))
    assert_close(bounded(a), rg.vmap(rg.grad(rg.sqrt))(a))


def test_reverse_inside_vmap_asks_for_a_bound_and_outside_needs_none():
    a = np.array([2.0, 3.0])
    with pytest.raises(rg.DerivativeError, match="max_steps"):
        rg.vmap(rg.grad(root))(a)
    assert_close(rg.grad(lambda x: rg.sum(rg.vmap(root)(x)))(a), rg.vmap(rg.grad(rg.sqrt))(a))


def test_the_tape_face_goes_through_loops():
    a, w = rg.tensor(np.float64(3.0), requires_grad=True), rg.tensor(2.0, requires_grad=True)
    (root(a) * w).backward()
    assert_close(a.grad, 2 * rg.grad(rg.sqrt)(np.float64(3.0)))


def test_a_loop_of_no_steps_is_the_identity():
    def f(x):
        return rg.while_loop(lambda c: rg.sum(c) < -1e9, lambda c: c * 2, x)

    x = np.array([1.0, 2.0])
    assert_close(f(rg.asarray(x)), x)
    check_grads(f, x)


def test_fori_loop_is_a_loop(rng):
    x = rng.normal(size=3)

    def f(x):
        return rg.fori_loop(2, 6, lambda i, c: rg.sin(c) * x + i, x)

    plain = rg.asarray(x)
    for i in range(2, 6):
        plain = rg.sin(plain) * rg.asarray(x) + i
    assert_close(f(rg.asarray(x)), plain)
    check_grads(f, x)
    traced_bound = rg.fori_loop(0, rg.asarray(4), lambda i, c: c * 2.0, rg.ones(2))
    assert_close(traced_bound, rg.ones(2) * 16)
    assert_close(rg.fori_loop(3, 1, lambda i, c: c * 2, rg.ones(2)), rg.ones(2))


def branches(x):
    return rg.cond(rg.sum(x) > 0, lambda x: rg.sin(x) * 2, lambda x: x * x, x)


def test_cond_runs_one_branch_and_differentiates_it(rng):
    x = rng.uniform(1, 2, size=4)
    check_grads(branches, x)
    check_grads(branches, -x)
    ran = []
    rg.cond(True, lambda x: (ran.append("yes"), x)[1], lambda x: (ran.append("no"), x)[1], x)
    assert ran == ["yes", "no"], "each branch is traced once; only the chosen graph is run"


def test_cond_under_vmap_selects(rng):
    x = rng.uniform(1, 2, size=(1, 4)) * np.array([[1.0], [-1.0]])
    assert_close(rg.vmap(branches)(x), np.where(x > 0, 2 * np.sin(x), x * x))
    found = rg.vmap(rg.grad(lambda v: rg.sum(branches(v))))(x)
    assert_close(found, np.where(x > 0, 2 * np.cos(x), 2 * x))


def test_what_the_branches_capture_is_differentiated():
    c = np.array([3.0, 4.0])

    def f(c, x):
        return rg.sum(rg.cond(x > 0, lambda: c * c, lambda: c))

    assert_close(rg.grad(f)(c, 1.0), 2 * c)
    assert_close(rg.grad(f)(c, -1.0), np.ones(2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rg.cond(rg.ones(2) > 0, lambda: 1.0, lambda: 2.0), "one truth value"),
        (
            lambda: rg.cond(True, lambda: rg.ones(2), lambda: rg.ones(3)),
            "same shapes and dtypes",
        ),
        (lambda: rg.cond(True, lambda: (rg.ones(2),), lambda: [rg.ones(2)]), "one structure"),
        (lambda: rg.while_loop(lambda c: c, lambda c: c, rg.ones(())), "one truth value"),
        (
            lambda: rg.while_loop(lambda c: c < 1, lambda c: rg.stack([c, c]), rg.ones(())),
            "the carry is",
        ),
        (
            lambda: rg.while_loop(lambda c: c < 1, lambda c: c, rg.ones(()), max_steps=-1),
            "must be a count",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rg.RetrogradError, match=sentence):
        call()
