"""grad, jvp, jacobians, Hessians, vmap and scan of whole programs, against jax's.

A program is a function of a namespace, which is ours or jax.numpy, and of arrays: the names
are the same. Derivatives of every kind are compared in float64.
"""

import numpy as np
import pytest
from peers.against import F, jax, jnp, jsp, lax, torch

import retrograd as rg
from retrograd.core import tree
from retrograd.testing.compare import assert_close

pytestmark = pytest.mark.peers("jax")


def special(xp):
    """Where a namespace keeps its special functions."""
    return rg.special if xp is rg else jsp


def arrays(*shapes, low=None, high=2.0, seed=0):
    rng = np.random.default_rng(seed)
    if low is None:
        return [rng.normal(size=s) for s in shapes]
    return [rng.uniform(low, high, s) for s in shapes]


def plain(x):
    """A tree of tensors or jax's arrays, as NumPy's."""
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (tuple, list)) else np.asarray(x)


def tensors(x):
    return tree.map(rg.asarray, x)


def same(ours, theirs, what=""):
    assert_close(plain(ours), plain(theirs), what=what)


# -- a small network -------------------------------------------------------------------------


def network(seed=0):
    rng = np.random.default_rng(seed)
    sizes = [(3, 4), (4, 4), (4, 2)]
    model = {
        f"layer{i}": {"w": rng.normal(size=s), "b": rng.normal(size=s[1])}
        for i, s in enumerate(sizes)
    }
    return model, rng.normal(size=(5, 3)), rng.normal(size=(5, 2))


def predicted(xp, model, x):
    h = xp.tanh(x @ model["layer0"]["w"] + model["layer0"]["b"])
    h = xp.sin(h @ model["layer1"]["w"] + model["layer1"]["b"])
    return h @ model["layer2"]["w"] + model["layer2"]["b"]


def loss(xp, model, x, y):
    return xp.mean((predicted(xp, model, x) - y) ** 2) + 0.1 * xp.sum(model["layer0"]["w"] ** 2)


def both_ways(transform):
    """A transform of the loss, by us and by jax, on the same arguments."""
    args = network()
    ours = transform(rg, lambda m, x, y: loss(rg, m, x, y))(*tensors(args))
    theirs = jax.jit(transform(jax, lambda m, x, y: loss(jnp, m, x, y)))(*args)
    same(ours, theirs)


def test_network_value_and_grad():
    both_ways(lambda ad, f: ad.value_and_grad(f, (0, 1)))


def test_network_grad_with_aux():
    both_ways(lambda ad, f: ad.grad(lambda *a: (f(*a), {"twice": 2 * f(*a)}), has_aux=True))


def test_network_hessian():
    both_ways(
        lambda ad, f: (
            lambda m, x, y: ad.hessian(
                lambda b, w: f({**m, "layer0": {"w": w, "b": b}}, x, y), argnums=(0, 1)
            )(m["layer0"]["b"], m["layer0"]["w"])
        )
    )


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_network_jacobians(name):
    model, x, _ = network()
    ours = getattr(rg, name)(lambda m, x: predicted(rg, m, x), (0, 1))(*tensors((model, x)))
    theirs = jax.jit(getattr(jax, name)(lambda m, x: predicted(jnp, m, x), (0, 1)))(model, x)
    same(ours, theirs)


def test_network_hessian_times_vector():
    model, x, y = network()
    along = network(1)[0]
    ours = rg.hvp(lambda m: loss(rg, m, x, y), (tensors(model),), (tensors(along),))
    f = lambda m: loss(jnp, m, x, y)
    same(ours, jax.jit(lambda m, t: jax.jvp(jax.grad(f), (m,), (t,))[1])(model, along))


def test_network_jvp_and_linearize():
    model, x, y = network()
    along = network(1)[0]
    f, g = (lambda m, xp=xp: loss(xp, m, x, y) for xp in (rg, jnp))
    theirs = jax.jit(lambda m, t: jax.jvp(g, (m,), (t,)))(model, along)
    same(rg.jvp(f, (tensors(model),), (tensors(along),)), theirs)
    out, push = rg.linearize(f, tensors(model))
    same([out, push(tensors(along))], theirs)


def test_network_gradient_for_each_row():
    """vmap of grad: the model is shared, the rows of x and y are mapped."""
    model, x, y = network()
    ours = rg.vmap(rg.grad(lambda m, x, y: loss(rg, m, x, y)), in_axes=(None, 0, 0))
    theirs = jax.vmap(jax.grad(lambda m, x, y: loss(jnp, m, x, y)), in_axes=(None, 0, 0))
    same(ours(*tensors((model, x, y))), jax.jit(theirs)(model, x, y))


def test_network_gradient_for_each_model():
    """The other way: several models side by side, mapped along their last axes."""
    model, x, y = network()
    many = tree.map(lambda a: np.stack([a, 0.5 * a, -a], axis=-1), model)
    ours = rg.vmap(rg.grad(lambda m: loss(rg, m, x, y)), in_axes=-1, out_axes=1)
    theirs = jax.vmap(jax.grad(lambda m: loss(jnp, m, x, y)), in_axes=-1, out_axes=1)
    same(ours(tensors(many)), jax.jit(theirs)(many))


@pytest.mark.peers("torch")
def test_network_descends_as_torch_does():
    """The tape face: twenty steps of gradient descent, each in the other's footsteps."""
    model, x, y = network()
    leaves, shape = tree.flatten(model)
    ours = [rg.tensor(a, requires_grad=True) for a in leaves]
    theirs = [torch.tensor(a, requires_grad=True) for a in leaves]
    for _ in range(20):
        mine = loss(rg, tree.unflatten(shape, ours), x, y)
        mine.backward()
        other = loss(torch, tree.unflatten(shape, theirs), *map(torch.tensor, (x, y)))
        other.backward()
        same([mine], [other.detach()])
        same([p.grad for p in ours], [p.grad for p in theirs])
        ours = [rg.tensor(p.array - 0.05 * p.grad.array, requires_grad=True) for p in ours]
        theirs = [(p - 0.05 * p.grad).detach().requires_grad_() for p in theirs]


# -- programs: every derivative of each ------------------------------------------------------


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def recurrent(xp, x, w):
    def step(h, v):
        h = xp.tanh(w @ h + v)
        return h, h * v

    scan = rg.scan if xp is rg else lax.scan
    last, all_ = scan(step, 0.1 * x[0], x)
    return xp.concatenate([last, xp.reshape(all_, (-1,))])


def attention(xp, q, k, v):
    weights = softmax(xp, xp.einsum("ti,si->ts", q, k) / 2.0)
    return xp.einsum("ts,sj->tj", weights, v)


PROGRAMS = {  # each to a vector or matrix; its arguments
    "exp(sin(x)) / (1 + x * x)": (
        lambda xp, x: xp.exp(xp.sin(x)) / (1 + x * x),
        arrays((4,)),
    ),
    "x**y, negative powers": (lambda xp, x, y: x**y + x**-2, arrays((3,), (3,), low=0.5)),
    "softmax": (softmax, arrays((2, 3))),
    "attention": (attention, arrays((3, 2), (4, 2), (4, 2))),
    "logsumexp of rows": (
        lambda xp, x: xp.stack([(rg.logsumexp if xp is rg else jsp.logsumexp)(x, axis=1)]),
        arrays((3, 3)),
    ),
    "prod and cumprod at zeros": (
        lambda xp, x: xp.concatenate([xp.cumprod(x, axis=0), xp.stack([xp.prod(x)])]),
        [np.array([1.5, 0.0, -2.0, 0.0, 0.7])],
    ),
    "var, std and norms": (
        lambda xp, x: xp.concatenate(
            [xp.var(x, axis=0), xp.std(x, axis=1), xp.sqrt(xp.sum(x * x, axis=0))]
        ),
        arrays((3, 4)),
    ),
    "sort, max, where, clip": (
        lambda xp, x: xp.concatenate(
            [
                xp.sort(x**3),
                xp.stack([xp.max(x * x), xp.min(xp.sin(x))]),
                xp.where(x > 0, x**2, xp.exp(x)),
                xp.clip(x * x, 0.1, 1.3),
            ]
        ),
        arrays((5,)),
    ),
    "matrix products": (
        lambda xp, a, b: xp.matmul(xp.matmul(a, b), xp.tanh(a)) @ b[:, 0],
        arrays((3, 3), (3, 3)),
    ),
    "indexing": (
        lambda xp, x: x[np.array([0, 2, 2])] ** 2 * x.at[np.array([1, 1])].add(x[1:3])[1:4],
        arrays((5,)),
    ),
    "shapes": (
        lambda xp, x: (
            xp.roll(xp.flip(xp.pad(x, ((1, 1), (0, 2)), mode="reflect"), axis=0), 2)
            * xp.tile(xp.reshape(xp.sum(x, axis=1), (-1, 1)), (2, 1))[:4]
        ),
        arrays((2, 3)),
    ),
    "special functions": (
        lambda xp, x: (
            special(xp).erf(x) * special(xp).gammaln(x)
            + special(xp).digamma(x) * special(xp).log_ndtr(x)
        ),
        arrays((4,), low=0.5),
    ),
    "atan2 and hypot": (
        lambda xp, x, y: xp.arctan2(x, y) * xp.hypot(x, y) + xp.logaddexp(x, y),
        arrays((3,), (2, 1)),
    ),
    "arc and area functions": (
        lambda xp, x: xp.arcsin(x / 3) + xp.arctan(x) + xp.arcsinh(x) * xp.arctanh(x / 3),
        arrays((4,), low=0.3),
    ),
    "a quantile": (
        lambda xp, x: xp.stack([xp.quantile(x * x, 0.3), xp.median(x**3)]),
        arrays((6,)),
    ),
    "a scan": (recurrent, arrays((4, 3), (3, 3))),
}
CASES = [pytest.param(f, xs, id=name) for name, (f, xs) in PROGRAMS.items()]


@pytest.mark.parametrize(("f", "xs"), CASES)
def test_jacobians(f, xs):
    every = tuple(range(len(xs)))
    theirs = jax.jit(jax.jacrev(lambda *a: f(jnp, *a), every))(*xs)
    for name in ("jacfwd", "jacrev"):
        same(getattr(rg, name)(lambda *a: f(rg, *a), every)(*tensors(xs)), theirs, name)


@pytest.mark.parametrize(("f", "xs"), CASES)
def test_hessians(f, xs):
    """Second order, of a nonlinear function of the program, by every order of modes."""
    every = tuple(range(len(xs)))
    mine, other = (lambda *a, xp=xp: xp.sum(xp.cos(f(xp, *a))) for xp in (rg, jnp))
    wanted = jax.jit(jax.hessian(other, every))(*xs)
    same(rg.hessian(mine, every)(*tensors(xs)), wanted)
    same(rg.jacrev(rg.grad(mine, every), every)(*tensors(xs)), wanted, "reverse over reverse")
    same(rg.jacrev(rg.jacfwd(mine, every), every)(*tensors(xs)), wanted, "reverse over forward")


@pytest.mark.parametrize(("f", "xs"), CASES[::3])
def test_vmap(f, xs):
    """The program mapped, and its gradient mapped; of several arguments the first is shared."""
    axes = tuple(None if i == 0 and len(xs) > 1 else 0 for i in range(len(xs)))
    given = [x if a is None else np.stack([x, 1.1 * x]) for x, a in zip(xs, axes, strict=True)]
    mine, other = (lambda *a, xp=xp: f(xp, *a) for xp in (rg, jnp))
    same(rg.vmap(mine, in_axes=axes)(*tensors(given)), jax.jit(jax.vmap(other, axes))(*given))
    slope = lambda ad, xp, g: ad.vmap(ad.grad(lambda *a: xp.sum(g(*a) ** 2)), in_axes=axes)
    same(slope(rg, rg, mine)(*tensors(given)), jax.jit(slope(jax, jnp, other))(*given))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_high_derivatives_of_one_number(order):
    def derivative(ad, xp):
        f = lambda x: xp.sin(x) * xp.exp(-x * x) + xp.tanh(x) ** 3 / (1 + x**2)
        for _ in range(order):
            f = ad.grad(f)
        return f

    same(
        [derivative(rg, rg)(rg.asarray(np.float64(0.7)))], [jax.jit(derivative(jax, jnp))(0.7)]
    )


def test_custom_derivatives():
    """A function with its own derivative is used with it, as jax's is."""

    def clipped(ad, xp):
        f = ad.custom_vjp(xp.sin)
        f.defvjp(lambda x: (xp.sin(x), x), lambda x, g: (xp.clip(g * xp.cos(x), -0.3, 0.3),))
        return ad.grad(lambda x: xp.sum(f(x * x) * 3))

    (x,) = arrays((5,))
    same([clipped(rg, rg)(rg.asarray(x))], [jax.jit(clipped(jax, jnp))(x)])


def test_a_scan_backwards_with_trees():
    """carry and rows are trees; time runs from the end."""
    (w, x, y) = arrays((3,), (6, 3), (6,))

    def total(ad, xp, scan):
        def f(w, rows):
            def step(c, row):
                h = xp.tanh(w * c["h"] + row["x"])
                n = c["n"] * 0.9 + row["y"] * xp.sum(h)
                return {"h": h, "n": n}, h * n

            start = {"h": 0 * w, "n": 0 * rows["y"][0]}
            last, ys = scan(step, start, rows, reverse=True)
            return xp.sum(ys**2) + last["n"]

        return ad.value_and_grad(f, (0, 1))

    ours = total(rg, rg, rg.scan)(*tensors((w, {"x": x, "y": y})))
    same(ours, jax.jit(total(jax, jnp, lax.scan))(w, {"x": x, "y": y}))


def control(xp):
    """The loops and branches of a namespace, which are called alike."""
    return rg if xp is rg else lax


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_branch(sign):
    (x,) = arrays((4,))
    x = sign * np.abs(x)

    def f(xp):
        yes, no = (lambda y: xp.sin(y) * y), (lambda y: xp.exp(y) - 1)
        return lambda y: xp.sum(control(xp).cond(xp.sum(y) > 0, yes, no, y) ** 2)

    same(
        [rg.grad(f(rg))(x), rg.hessian(f(rg))(x)],
        jax.jit(lambda y: [jax.grad(f(jnp))(y), jax.hessian(f(jnp))(y)])(x),
    )
    many = np.stack([x, -x, 2 * x])
    same([rg.vmap(rg.grad(f(rg)))(many)], [jax.jit(jax.vmap(jax.grad(f(jnp))))(many)])


def test_a_loop_of_known_length():
    (x,) = arrays((3,))

    def f(xp):
        step = lambda i, h: xp.tanh(h) * 1.1 + 0.01 * xp.astype(i, h.dtype) * h
        return lambda y: xp.sum(control(xp).fori_loop(0, 5, step, y) ** 2)

    same([rg.hessian(f(rg))(x)], [jax.jit(jax.hessian(f(jnp)))(x)])


def test_a_loop_until_it_is_done():
    """jax knows the forward mode of it; ours is compared with both of ours."""
    (x, along) = arrays((3,), (3,), low=0.5)

    def f(xp):
        step = lambda h: h + xp.sin(h) ** 2 * 0.3
        return lambda y: control(xp).while_loop(lambda h: xp.sum(h) < 6.0, step, y)

    same(rg.jvp(f(rg), (x,), (along,)), jax.jvp(f(jnp), (x,), (along,)))
    wanted = jax.jacfwd(f(jnp))(x)
    same([rg.jacfwd(f(rg))(x), rg.jacrev(f(rg))(x)], [wanted, wanted])


# -- complex gradients: torch's convention, and jax's with the conversion --------------------

COMPLEX = {  # to any complex or real array; a real number is made of it below
    "z * z": lambda xp, z: z * z,
    "exp(z)": lambda xp, z: xp.exp(z),
    "sin(z) / (2 + z)": lambda xp, z: xp.sin(z) / (2 + z),
    "z**3 - 1j * z": lambda xp, z: z**3 - 1j * z,
    "log and sqrt": lambda xp, z: xp.log(z) * xp.sqrt(z),
    "conj(z) * z * z": lambda xp, z: xp.conj(z) * z * z,
    "abs(z)": lambda xp, z: xp.abs(z),
    "abs(z)**2 * z": lambda xp, z: xp.abs(z) ** 2 * z,
    "real(z) * imag(z)": lambda xp, z: xp.real(z) * xp.imag(z),
    "angle(z)": lambda xp, z: xp.angle(z),
    "real(z) + 1j * conj(z)": lambda xp, z: xp.real(z) + 1j * xp.conj(z),
    "z / conj(z)": lambda xp, z: z / xp.conj(z),
    "tanh(z) @ matrix": lambda xp, z: xp.tanh(z) @ xp.conj(z),
}
TURNED = np.array([[0.5 + 0.3j, -0.7 + 1.1j], [0.4 - 0.9j, 1.2 + 0.2j]])
EVERY = [pytest.param(f, id=name) for name, f in COMPLEX.items()]


def number(xp, y):
    """A real number of complex results: real and imaginary parts weigh differently."""
    return xp.sum(xp.real(y) * 1.5) + (xp.sum(xp.imag(1j * y + 0.5j * y * y)))


@pytest.mark.peers("torch")
@pytest.mark.parametrize("f", EVERY)
def test_complex_gradients_are_torchs(f):
    z = torch.tensor(TURNED, requires_grad=True)
    (first,) = torch.autograd.grad(number(torch, f(torch, z)), z, create_graph=True)
    again = torch.autograd.grad((first.abs() ** 2).sum(), z)[0]
    mine = lambda x: number(rg, f(rg, x))
    leaf = rg.tensor(TURNED, requires_grad=True)
    mine(leaf).backward()
    same([rg.grad(mine)(TURNED), leaf.grad], [first.numpy(force=True)] * 2)
    twice = rg.grad(lambda x: rg.sum(rg.abs(rg.grad(mine)(x)) ** 2))(TURNED)
    same([twice], [again.numpy(force=True)], "the gradient of the gradient's length")


@pytest.mark.parametrize("f", EVERY)
def test_complex_gradients_are_jaxs_conjugated(f):
    mine, other = (lambda z, xp=xp: number(xp, f(xp, z)) for xp in (rg, jnp))
    same([rg.grad(mine)(TURNED)], [np.conj(jax.jit(jax.grad(other))(TURNED))])


@pytest.mark.parametrize("f", EVERY)
def test_complex_tangents_are_jaxs(f):
    """Forward mode has one convention."""
    along = np.random.default_rng(0).normal(size=(2, 2)) * (1 - 0.5j) + 0.3j
    same(
        rg.jvp(lambda z: f(rg, z), (TURNED,), (along,)),
        jax.jit(lambda z, t: jax.jvp(lambda z: f(jnp, z), (z,), (t,)))(TURNED, along),
    )


@pytest.mark.peers("torch")
def test_real_parameters_of_complex_programs_have_real_gradients():
    """Phases of a discrete Fourier sum: real in, complex in between, real out."""

    def f(xp, phase, weight):
        wave = xp.exp(1j * phase[:, None] * weight)
        return xp.sum(xp.abs(xp.sum(wave, axis=0)) ** 2)

    xs = arrays((4,), (3,))
    given = [torch.tensor(x, requires_grad=True) for x in xs]
    wanted = torch.autograd.grad(f(torch, *given), given)
    same(rg.grad(lambda *a: f(rg, *a), (0, 1))(*tensors(xs)), wanted)


@pytest.mark.peers("torch")
def test_layers_of_torch():
    """A step of what torch calls linear, gelu, layer norm and cross entropy, in our ops."""
    x, w, b, scale = arrays((6, 4), (5, 4), (5,), (5,))
    labels = np.array([0, 4, 2, 1, 1, 3])

    def ours(x, w, b, scale):
        h = rg.linear(x, w.mT, b)
        h = h * 0.5 * (1 + rg.special.erf(h / 2**0.5))
        h = (h - rg.mean(h, axis=-1, keepdims=True)) / rg.sqrt(
            rg.var(h, axis=-1, keepdims=True) + 1e-5
        )
        logits = h * scale
        picked = rg.take_along_axis(logits, labels[:, None], axis=1)
        return rg.mean(rg.logsumexp(logits, axis=1, keepdims=True) - picked)

    def theirs(x, w, b, scale):
        h = F.layer_norm(F.gelu(F.linear(x, w, b)), (5,))
        return F.cross_entropy(h * scale, torch.tensor(labels))

    given = [torch.tensor(a, requires_grad=True) for a in (x, w, b, scale)]
    value = theirs(*given)
    found = rg.value_and_grad(ours, (0, 1, 2, 3))(*tensors((x, w, b, scale)))
    same(found, [value.detach(), torch.autograd.grad(value, given)])
