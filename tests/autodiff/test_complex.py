"""Complex gradients: the direction in which a real loss grows fastest, as PyTorch has it.

For a real L of z = x + iy, the faces (.grad, rg.grad, rg.vjp, hooks) show dL/dx + i dL/dy.
Inside, rules are plain transposes; the faces conjugate.
"""

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close
from retrograd.testing.compare import DIFFERENCE


def numbers(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def leaf(values):
    return rg.tensor(np.asarray(values), requires_grad=True)


def modulus(z):
    return rg.real(z) ** 2 + rg.imag(z) ** 2


FUNCTIONS = {
    "product": lambda z: z * z * (2 + 1j),
    "quotient": lambda z: (z + 3) / (z * z + 5),
    "exp": rg.exp,
    "log": lambda z: rg.log(z + 4),
    "sqrt": lambda z: rg.sqrt(z + 4),
    "tanh": lambda z: rg.tanh(z * 0.3),
    "sin": rg.sin,
    "power": lambda z: (z + 4) ** 3,
    "conj": lambda z: rg.conj(z) * z * z,
    "real": lambda z: rg.real(z) * z,
    "imag": lambda z: rg.imag(z) * z,
    "abs": lambda z: rg.abs(z + 4) * z,
    "angle": lambda z: rg.angle(z + 4) * z,
    "matmul": lambda z: z @ (z * 1j),
    "sum": lambda z: rg.sum(z, axis=0) * z,
    "mean": lambda z: rg.mean(z, axis=0, keepdims=True) * rg.conj(z),
    "stack": lambda z: rg.stack([z, rg.conj(z)]) * z,
    "index": lambda z: z[0] * z[:, :1],
    "where": lambda z: rg.where(rg.real(z) > 0, z * z, rg.conj(z)),
    "real to complex": lambda z: rg.astype(rg.real(z), np.complex128) * z,
}
functions = pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)


def loss(f, z, w):
    """A real number of f(z), by weights that favour no axis."""
    out = f(z)
    return rg.sum(
        rg.real(out) * w.real[: out.shape[-1]] + rg.imag(out) * w.imag[: out.shape[-1]]
    )


def by_differences(g, z):
    """dL/dx + i dL/dy, by central differences of fourth order."""
    out, eps = np.zeros_like(z), 1e-3
    for at in np.ndindex(z.shape):
        for unit in (1, 1j):
            step = np.zeros_like(z)
            step[at] = eps * unit
            a, b, c, d = (float(g(rg.asarray(z + k * step))) for k in (-2, -1, 1, 2))
            out[at] += unit * (a - 8 * b + 8 * c - d) / (12 * eps)
    return out


@functions
def test_the_gradient_points_uphill(f, rng):
    """rg.grad and .grad are dL/dx + i dL/dy, held to differences."""
    z, w = numbers(rng, 2, 2), numbers(rng, 2)
    g = lambda z: loss(f, z, w)
    found = rg.grad(g)(rg.asarray(z))
    assert found.dtype == np.complex128
    assert_close(found, by_differences(g, z), tolerance=DIFFERENCE)
    x = leaf(z)
    g(x).backward()
    assert x.grad.numpy().tobytes() == found.numpy().tobytes()


@functions
def test_forward_and_reverse_agree(f, rng):
    """The derivative along t is Re(conj(grad) t), summed."""
    z, w, t = numbers(rng, 2, 2), numbers(rng, 2), numbers(rng, 2, 2)
    g = lambda z: loss(f, z, w)
    _, pushed = rg.jvp(g, (rg.asarray(z),), (rg.asarray(t),))
    gradient = rg.grad(g)(rg.asarray(z)).numpy()
    assert_close(pushed, np.real(np.sum(np.conj(gradient) * t)))
    assert_close(rg.linearize(g, rg.asarray(z))[1](rg.asarray(t)), pushed)


@functions
def test_second_order(f, rng):
    """The gradient's own derivative along t, both ways and by the tape."""
    z, w, t = rg.asarray(numbers(rng, 2, 2)), numbers(rng, 2), rg.asarray(numbers(rng, 2, 2))
    g = lambda z: loss(f, z, w)
    forward = rg.hvp(g, (z,), (t,))
    inner = lambda z: rg.sum(rg.real(rg.grad(g)(z) * rg.conj(t)))
    assert_close(rg.grad(inner)(z), forward)
    x = leaf(z.numpy())
    g(x).backward(create_graph=True)
    rg.sum(rg.real(x.grad * rg.conj(t))).backward(accumulate=False)
    assert_close(x.grad, forward)
    assert_close(
        rg.vmap(rg.grad(g))(rg.stack([z, t])),
        np.stack([rg.grad(g)(v).numpy() for v in (z, t)]),
    )


def test_real_arguments_have_real_gradients(rng):
    """A real input of a complex program gets the real part, in its own dtype."""
    x, z = rng.normal(size=3), numbers(rng, 3)
    g = lambda x, z: rg.sum(modulus(x * z + 1j * x))
    gx, gz = rg.grad(g, (0, 1))(rg.asarray(x), rg.asarray(z))
    assert (gx.dtype, gz.dtype) == (np.float64, np.complex128)
    t = leaf(x)
    g(t, rg.asarray(z)).backward()
    assert_close(t.grad, gx)
    _, pushed = rg.jvp(lambda x: g(x, rg.asarray(z)), (rg.asarray(x),), (rg.asarray(x),))
    assert_close(pushed, np.sum(gx.numpy() * x))


def test_complex64_stays_complex64(rng):
    """Single precision is not widened, nor are real parts of it."""
    z = rg.asarray(numbers(rng, 3).astype(np.complex64))
    r = rg.asarray(rng.normal(size=3).astype(np.float32))
    gz, gr = rg.grad(lambda z, r: rg.sum(modulus(z * r * 2)), (0, 1))(z, r)
    assert (gz.dtype, gr.dtype) == (np.complex64, np.float32)


def test_seeds_and_hooks_speak_the_same_convention(rng):
    """A complex seed is the gradient of the result; hooks see and return gradients."""
    z, w = numbers(rng, 3), numbers(rng, 3)
    seen = []
    whole, cut = leaf(z), leaf(z)
    y = rg.exp(whole)
    y.register_hook(seen.append)
    y.retain_grad()
    rg.sum(modulus(y * w)).backward()
    rg.exp(cut).backward(seen[0])
    assert_close(cut.grad, whole.grad)
    assert_close(y.grad, seen[0])
    replaced = leaf(z)
    y = rg.exp(replaced)
    y.register_hook(lambda g: rg.asarray(seen[0]))
    y.backward(rg.ones_like(y))
    assert_close(replaced.grad, whole.grad)
    _, pull = rg.vjp(rg.exp, rg.asarray(z))
    assert_close(pull(seen[0])[0], whole.grad)


def test_a_complex_number_alone_can_start_backward(rng):
    """The gradient of a complex scalar with the seed one, as PyTorch takes it."""
    z = leaf(numbers(rng))
    (z * z).backward(np.asarray(1.0 + 0j))
    assert_close(z.grad, np.conj(2 * z.numpy()))


def test_leaf_hooks_see_the_face(rng):
    """The backward-wide hook gets what .grad gets."""
    z, seen = leaf(numbers(rng, 2)), []
    with rg.leaf_hook(lambda node, g: seen.append(g)):
        rg.sum(modulus(z * z)).backward()
    assert_close(seen[0], z.grad)


def test_custom_rules_are_plain_transposes(rng):
    """A rule of one's own sees cotangents without conjugation: z -> 2z has slope 2z."""
    square = rg.custom_vjp(lambda z: z * z).defvjp(
        lambda z: (z * z, z), lambda z, g: (2 * z * g,)
    )
    z = rg.asarray(numbers(rng, 3))
    assert_close(
        rg.grad(lambda z: rg.sum(modulus(square(z) + 1)))(z),
        rg.grad(lambda z: rg.sum(modulus(z * z + 1)))(z),
    )


def test_holomorphic_jacobians(rng):
    """jacfwd of a holomorphic function is its complex derivative, jacrev the conjugate."""
    z = rg.asarray(numbers(rng, 3))
    slope = np.diag(np.exp(z.numpy()))
    assert_close(rg.jacfwd(rg.exp)(z), slope)
    assert_close(rg.jacrev(rg.exp)(z), np.conj(slope))


# -- peers -----------------------------------------------------------------------------------


def _torch_functions(torch):
    return {
        "product": lambda z: z * z * (2 + 1j),
        "quotient": lambda z: (z + 3) / (z * z + 5),
        "exp": torch.exp,
        "log": lambda z: torch.log(z + 4),
        "sqrt": lambda z: torch.sqrt(z + 4),
        "tanh": lambda z: torch.tanh(z * 0.3),
        "sin": torch.sin,
        "power": lambda z: (z + 4) ** 3,
        "conj": lambda z: torch.conj(z) * z * z,
        "real": lambda z: torch.real(z) * z,
        "imag": lambda z: torch.imag(z) * z,
        "abs": lambda z: torch.abs(z + 4) * z,
        "angle": lambda z: torch.angle(z + 4) * z,
        "matmul": lambda z: z @ (z * 1j),
        "sum": lambda z: torch.sum(z, 0) * z,
        "mean": lambda z: torch.mean(z, 0, keepdim=True) * torch.conj(z),
        "stack": lambda z: torch.stack([z, torch.conj(z)]) * z,
        "index": lambda z: z[0] * z[:, :1],
        "where": lambda z: torch.where(torch.real(z) > 0, z * z, torch.conj(z)),
        "real to complex": lambda z: torch.real(z).to(torch.complex128) * z,
    }


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_pytorch_says_the_same(name, rng):
    """.grad of a complex leaf, with a complex seed, equals PyTorch's."""
    import torch

    z = numbers(rng, 2, 2)
    ours = leaf(z)
    y = FUNCTIONS[name](ours)
    seed = numbers(rng, *y.shape)
    y.backward(seed)
    theirs = torch.tensor(z, requires_grad=True)
    out = _torch_functions(torch)[name](theirs)
    out.backward(torch.tensor(seed))
    assert_close(y.detach(), out.detach().numpy())
    assert_close(ours.grad, theirs.grad.resolve_conj().numpy())


@pytest.mark.peers("jax")
@pytest.mark.parametrize("name", ["product", "quotient", "exp", "conj", "abs", "matmul"])
def test_jax_says_the_conjugate(name, rng):
    """JAX's grad is the conjugate of ours, and its jvp the same."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    table = {
        "product": lambda z: z * z * (2 + 1j),
        "quotient": lambda z: (z + 3) / (z * z + 5),
        "exp": jnp.exp,
        "conj": lambda z: jnp.conj(z) * z * z,
        "abs": lambda z: jnp.abs(z + 4) * z,
        "matmul": lambda z: z @ (z * 1j),
    }
    z, t = numbers(rng, 2, 2), numbers(rng, 2, 2)
    ours = rg.grad(lambda z: rg.sum(modulus(FUNCTIONS[name](z))))(rg.asarray(z))
    theirs = jax.grad(lambda z: jnp.sum(jnp.abs(table[name](z)) ** 2))(z)
    assert_close(ours, np.conj(theirs))
    _, pushed = rg.jvp(FUNCTIONS[name], (rg.asarray(z),), (rg.asarray(t),))
    assert_close(pushed, np.asarray(jax.jvp(table[name], (z,), (t,))[1]))
