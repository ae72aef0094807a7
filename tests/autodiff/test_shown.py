"""Complex cotangents that are not conjugated on their way: what ops with an adjoint do."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import fft
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Linear
from retrograd.core.spec import spec_of
from retrograd.testing.compare import assert_close

STRAIGHT = [c for c in REGISTRY.values() if issubclass(c, Linear) and c.adjoint is not None]


def numbers(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def leaf(values):
    return rg.tensor(values, requires_grad=True)


def test_transforms_have_adjoints():
    assert {c.name for c in STRAIGHT} >= {"fourier", "real_fourier"}


@pytest.mark.parametrize("cls", STRAIGHT, ids=lambda c: c.name)
def test_an_adjoint_is_the_transpose_between_conjugates(cls, rng):
    for op, x in cls.samples(rng):
        y = apply(op, x)
        g = numbers(rng, *y.shape)
        wanted = op.transpose(rg.asarray(g.conj()), spec_of(x))
        assert_close(op.adjoint(rg.asarray(g), spec_of(x)), np.conj(wanted.array))


CHAINS = {
    "one": fft.fft,
    "two": lambda z: fft.ifft(fft.fft(z, axis=0), norm="ortho"),
    "two axes": fft.fft2,
    "after another op": lambda z: fft.fftn(z * (2 - 1j)),
    "before another op": lambda z: fft.fft(z) * (2 - 1j),
    "around another op": lambda z: fft.ifft(rg.conj(fft.fft(z)) * z),
    "half, of real numbers": lambda z: fft.rfft(rg.real(z) * 3),
    "of real numbers": lambda z: fft.fft(rg.imag(z)),
}
chains = pytest.mark.parametrize("f", CHAINS.values(), ids=CHAINS)


def gradient(f, z, g):
    """By a loss that is real, whose gradient is conjugated where it always was."""
    return rg.grad(lambda z: rg.sum(rg.real(f(z) * g.conj())))(rg.asarray(z)).array


@chains
@pytest.mark.parametrize("shape", [(3, 4), (64, 512)])
def test_backward_gives_what_a_real_loss_gives(f, shape, rng):
    z = numbers(rng, *shape)
    x = leaf(z)
    y = f(x)
    g = numbers(rng, *y.shape)
    y.backward(g, retain_graph=True)
    assert_close(x.grad, gradient(f, z, g))
    y.backward(g)  # added to what is there
    assert_close(x.grad, 2 * gradient(f, z, g))


@chains
def test_hooks_see_and_change_it(f, rng):
    z, seen = numbers(rng, 3, 4), []
    x = leaf(z)
    y = f(x)
    g = numbers(rng, *y.shape)
    y.retain_grad()
    y.register_hook(lambda c: c * 2)
    x.register_hook(lambda c: seen.append(c.array.copy()))
    y.backward(g)
    assert_close(y.grad, 2 * g)
    assert_close(seen[0], 2 * gradient(f, z, g))
    assert_close(x.grad, seen[0])


@chains
def test_the_moment_a_leaf_is_complete(f, rng):
    z, seen = numbers(rng, 3, 4), []
    x = leaf(z)
    y = f(x)
    g = numbers(rng, *y.shape)
    with rg.leaf_hook(lambda _, c: seen.append(c)):
        y.backward(g)
    assert_close(seen[0], gradient(f, z, g))


@chains
def test_it_can_be_differentiated_again(f, rng):
    """The gradient is linear in the cotangent: its own gradient by that is f of what comes."""
    x = leaf(numbers(rng, 3, 4))
    y = f(x)
    g = leaf(numbers(rng, *y.shape))
    y.backward(g, create_graph=True)
    h = numbers(rng, 3, 4)
    again = rg.vjp(lambda g: rg.vjp(f, x.detach())[1](g)[0], g.detach())[1](rg.asarray(h))[0]
    found = x.grad
    g.grad = x.grad = None
    found.backward(h)
    assert_close(g.grad, again.array)


def test_in_a_checkpoint(rng):
    z = numbers(rng, 3, 4)
    x = leaf(z)
    y = rg.checkpoint(lambda z: fft.fft(fft.ifft(z * z)))(x)
    g = numbers(rng, 3, 4)
    y.backward(g)
    assert_close(x.grad, g * np.conj(2 * z))


def test_the_users_cotangent_is_not_written(rng):
    x, g = leaf(numbers(rng, 64, 512)), numbers(rng, 64, 512)
    kept = g.copy()
    given = rg.asarray(g)
    y = fft.fft(x)
    y.backward(given, retain_graph=True)
    y.backward(given)
    assert (given.array == kept).all()
