"""Clipping of gradients."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.ops.nn.clip import clip_global_norm, clip_values
from retrograd.testing import assert_close, check_grads


def grads(rng):
    return {"w": rng.normal(size=(3, 4)), "b": [rng.normal(size=5)]}


def flat(tree):
    return np.concatenate([np.ravel(np.asarray(x)) for x in rg.tree.leaves(tree)])


def test_the_norm_of_all_together_is_bounded(rng):
    given = grads(rng)
    size = np.linalg.norm(flat(given))
    small, before = clip_global_norm(given, size / 2)
    assert_close(before, size)
    assert_close(flat(small), flat(given) / 2)
    same, _ = clip_global_norm(given, size * 2)
    assert_close(flat(same), flat(given))
    nothing, zero = clip_global_norm({}, 1.0)
    assert nothing == {}
    assert float(zero) == 0


def test_Y33_a_norm_that_is_not_finite_is_never_passed_over(rng):
    for bad in (np.nan, np.inf):
        given = grads(rng)
        given["w"][0, 0] = bad
        clipped, _ = clip_global_norm(given, 1.0)
        assert np.isnan(flat(clipped)).all()
        with pytest.raises(rg.NonFiniteError, match="norm of the gradients"):
            clip_global_norm(given, 1.0, error_if_nonfinite=True)


def test_values_are_bounded_and_small_ones_stay():
    assert_close(clip_values([np.array([-3.0, 0.5, 3.0])], 1.0), [np.array([-1.0, 0.5, 1.0])])


def test_it_can_be_differentiated(rng):
    check_grads(lambda x: clip_global_norm(x, 0.5)[0], rng.normal(size=4))


@pytest.mark.parametrize("call", [lambda: clip_global_norm([], 0), lambda: clip_values([], -1)])
def test_refusals(call):
    with pytest.raises(rg.ArgumentError, match="must"):
        call()
