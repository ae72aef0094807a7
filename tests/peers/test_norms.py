"""Norms agree with torch's and jax's over many geometries: values, gradients, second order."""

import numpy as np
import pytest
from peers.against import F, Lazy, agree_twice, jnn, torch
from peers.shapes import dtypes, each, over

from retrograd import nn

affine = over("affine", ["", "w", "wb"], ids=["plain", "w", "w and b"])
Spectral = Lazy("torch.nn.utils.parametrizations", "_SpectralNorm")


def drawn(rng, *shapes, dtype="float64"):
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def first(f):
    """torch's channels-first function on our channels-last arguments."""
    return lambda x, *rest: f(x.movedim(-1, 1), *rest).movedim(1, -1)


# -- over the last axes, or any --------------------------------------------------------------

LAST = [  # shape, and how many of the last axes are standardised
    ((5,), 1),
    ((4, 7), 1),
    ((4, 7), 2),
    ((0, 3), 1),
    ((3, 1), 1),
    ((3, 1, 5), 2),
    ((2, 3, 4, 5), 1),
    ((2, 3, 4, 5), 3),
    ((2, 1, 3, 2, 3), 1),
    ((2, 1, 3, 2, 3), 4),
]
last = each(("shape", "many"), LAST)


@pytest.mark.peers("torch")
@last
@affine
@over(("dtype", "eps"), [("float64", 1e-5), ("float64", 0.1), ("float32", 1e-3)])
def test_layer_norm(shape, many, affine, dtype, eps, rng):
    inner = shape[-many:]
    axis = tuple(range(-many, 0))
    xs = drawn(rng, shape, *[inner] * len(affine), dtype=dtype)
    ours = lambda x, *more: nn.layer_norm(x, *more, axis=axis, eps=eps)
    theirs = lambda x, *more: F.layer_norm(x, inner, *more, eps=eps)
    agree_twice(ours, theirs, xs, peer="torch", what="layer_norm")


@pytest.mark.peers("torch")
@last
@affine
@over(("dtype", "eps"), [("float64", 1e-6), ("float64", 0.1), ("float32", 1e-3)])
def test_rms_norm(shape, many, affine, dtype, eps, rng):
    """torch's has no bias: it is added."""
    inner = shape[-many:]
    axis = tuple(range(-many, 0))
    xs = drawn(rng, shape, *[inner] * len(affine), dtype=dtype)
    ours = lambda x, *more: nn.rms_norm(x, *more, axis=axis, eps=eps)

    def theirs(x, w=None, b=0):
        return F.rms_norm(x, inner, w, eps) + b

    agree_twice(ours, theirs, xs, peer="torch", what="rms_norm")


@pytest.mark.peers("torch")
@over("name", ["layer_norm", "rms_norm"])
@each("shape", [(5,), (4, 7), (0, 3), (2, 1, 6), (2, 3, 4, 5)])
@affine
def test_residual_and_norm(name, shape, affine, rng):
    """Both results: the norm of a sum, and the sum."""
    xs = drawn(rng, shape, shape, *[shape[-1:]] * len(affine))

    def theirs(x, y, w=None, b=0):
        if name == "layer_norm":
            return F.layer_norm(x + y, shape[-1:], w, eps=1e-5) + b, x + y
        return F.rms_norm(x + y, shape[-1:], w, 1e-6) + b, x + y

    agree_twice(getattr(nn, f"add_{name}"), theirs, xs, peer="torch", what=name)


AXES = [((5,), 0), ((4, 3), 0), ((0, 3, 2), 1), ((3, 1, 5), (0, 1)), ((2, 3, 4, 5), (1, 3))]


@pytest.mark.peers("jax")
@each(("shape", "axis"), AXES)
@over("eps", [1e-5, 0.1])
def test_layer_norm_along_any_axis_by_jax(shape, axis, eps, rng):
    agree_twice(
        lambda x: nn.layer_norm(x, axis=axis, eps=eps),
        lambda x: jnn.standardize(x, axis, epsilon=eps),
        drawn(rng, shape),
        peer="jax",
        what="standardize",
    )


@pytest.mark.peers("torch")
@each(("shape", "axis"), AXES)
@over("name", ["layer_norm", "rms_norm"])
def test_any_axis_by_turning(name, shape, axis, rng):
    axes = axis if isinstance(axis, tuple) else (axis,)
    end, inner = tuple(range(-len(axes), 0)), [shape[a] for a in axes]
    eps = {"eps": 1e-3}

    def theirs(x, w, *b):
        if name == "layer_norm":
            return F.layer_norm(x.movedim(axes, end), inner, w, *b, **eps).movedim(end, axes)
        return F.rms_norm(x.movedim(axes, end), inner, w, **eps).movedim(end, axes)

    xs = drawn(rng, shape, inner, *[inner] * (name == "layer_norm"))
    ours = lambda x, *more: getattr(nn, name)(x, *more, axis=axis, **eps)
    agree_twice(ours, theirs, xs, peer="torch", what=name)


# -- over space: group and instance ----------------------------------------------------------

GROUPS = [  # shape, channels last, and groups
    ((4, 6), 2),
    ((3, 5), 1),
    ((0, 4), 2),
    ((2, 7, 6), 3),
    ((2, 1, 6), 1),
    ((1, 5, 3), 3),
    ((0, 5, 4), 2),
    ((2, 3, 5, 4), 4),
    ((3, 1, 2, 9), 3),
    ((2, 2, 3, 1, 6), 2),
    ((1, 3, 2, 3, 5), 5),
]


@pytest.mark.peers("torch")
@each(("shape", "groups"), GROUPS)
@affine
@dtypes
def test_group_norm(shape, groups, affine, dtype, rng):
    xs = drawn(rng, shape, *[shape[-1:]] * len(affine), dtype=dtype)
    ours = lambda x, *more: nn.group_norm(x, groups, *more, eps=1e-3)
    theirs = first(lambda x, *more: F.group_norm(x, groups, *more, eps=1e-3))
    agree_twice(ours, theirs, xs, peer="torch", what="group_norm")


SPACES = [(2, 7, 3), (1, 5, 1), (0, 3, 2), (3, 2, 1, 4), (2, 5, 3, 3), (1, 3, 5, 2)]
SPACES += [(2, 2, 3, 4, 2), (1, 2, 1, 3, 4)]


@pytest.mark.peers("torch")
@each("shape", SPACES)
@affine
@dtypes
def test_instance_norm(shape, affine, dtype, rng):
    """torch's has no weight for an empty batch, and wrong gradients for one of a single
    image with its channels last: for these, as many groups as channels."""
    xs = drawn(rng, shape, *[shape[-1:]] * len(affine), dtype=dtype)
    ours = lambda x, *more: nn.instance_norm(x, *more, eps=1e-3)

    def theirs(x, w=None, b=None):
        if len(x) < 2:
            return F.group_norm(x, shape[-1], w, b, eps=1e-3)
        return F.instance_norm(x, weight=w, bias=b, eps=1e-3)

    agree_twice(ours, first(theirs), xs, peer="torch", what="instance_norm")


NOTHING = {
    "layer_norm": ((3, 0), nn.layer_norm, lambda x: F.layer_norm(x, (0,))),
    "rms_norm": ((3, 0), nn.rms_norm, lambda x: F.rms_norm(x, (0,))),
    "group_norm of no space": (
        (2, 0, 4),
        lambda x: nn.group_norm(x, 2),
        first(lambda x: F.group_norm(x, 2)),
    ),
    "group_norm of no channels": (
        (2, 3, 0),
        lambda x: nn.group_norm(x, 1),
        first(lambda x: F.group_norm(x, 1)),
    ),
    "instance_norm": ((2, 0, 3), nn.instance_norm, first(F.instance_norm)),
}


@pytest.mark.peers("torch")
@over("name", NOTHING)
def test_over_an_axis_of_length_0(name):
    shape, ours, theirs = NOTHING[name]
    agree_twice(ours, theirs, [np.zeros(shape)], peer="torch", what=name)


# -- over the batch --------------------------------------------------------------------------

BATCHES = [(5, 3), (2, 1), (1, 7, 2), (3, 1, 4), (2, 3, 5, 3), (2, 1, 3, 2, 4)]


def running(rng, channels, dtype):
    """A mean and a variance."""
    return rng.normal(size=channels).astype(dtype), rng.uniform(0.5, 2, channels).astype(dtype)


@pytest.mark.peers("torch")
@each("shape", BATCHES)
@over("momentum", [0.0, 0.1, 0.7, 1.0])
@affine
@dtypes
def test_batch_norm_in_training(shape, momentum, affine, dtype, rng):
    """The result and both running statistics; torch moves its own in place."""
    mean, var = running(rng, shape[-1:], dtype)
    xs = drawn(rng, shape, *[shape[-1:]] * len(affine), dtype=dtype)

    def ours(x, *more):
        options = {"training": True, "momentum": momentum, "eps": 1e-3}
        return nn.batch_norm(x, mean, var, *more, **options)

    def theirs(x, *more):
        state = torch.tensor(mean), torch.tensor(var)
        options = {"training": True, "momentum": momentum, "eps": 1e-3}
        norm = first(lambda x, *more: F.batch_norm(x, *state, *more, **options))
        return norm(x, *more), *state

    agree_twice(ours, theirs, xs, peer="torch", what="batch_norm")


@pytest.mark.peers("torch")
@each("shape", [*BATCHES, (1, 3), (0, 3), (0, 2, 4)])
@affine
@dtypes
def test_batch_norm_in_use(shape, affine, dtype, rng):
    mean, var = running(rng, shape[-1:], dtype)
    xs = drawn(rng, shape, *[shape[-1:]] * len(affine), dtype=dtype)
    state = torch.tensor(mean), torch.tensor(var)
    ours = lambda x, *more: nn.batch_norm(x, mean, var, *more, training=False)[0]
    theirs = first(lambda x, *more: F.batch_norm(x, *state, *more, training=False))
    agree_twice(ours, theirs, xs, peer="torch", what="batch_norm")


@pytest.mark.peers("torch")
@each("shape", BATCHES)
def test_batch_norm_in_its_statistics(shape, rng):
    """In use they may be differentiated; torch's own call has no gradients in them."""
    xs = [*drawn(rng, shape), *running(rng, shape[-1:], "float64")]
    ours = lambda x, mean, var: nn.batch_norm(x, mean, var, training=False, eps=0.1)[0]
    theirs = lambda x, mean, var: (x - mean) / (var + 0.1).sqrt()
    agree_twice(ours, theirs, xs, peer="torch", what="batch_norm")


# -- of weights ------------------------------------------------------------------------------

WEIGHTS = [(5,), (3, 4), (1, 6), (7, 1), (2, 3, 5), (3, 2, 1, 4), (2, 3, 2, 2, 3)]
SLICES = [(s, a) for s in WEIGHTS for a in range(len(s))]


@pytest.mark.peers("torch")
@each(("shape", "axis"), SLICES)
@dtypes
def test_weight_norm(shape, axis, dtype, rng):
    """torch's gradient takes the length for a constant: the second order is by its parts."""
    xs = drawn(rng, shape, shape[axis : axis + 1], dtype=dtype)
    xs[0] += np.sign(xs[0]) / 2  # no length near 0, where the direction jumps
    beside = [n if a == axis else 1 for a, n in enumerate(shape)]
    theirs = lambda v, g: torch._weight_norm(v, g.reshape(beside), axis)
    parts = lambda v, g: v * (g.reshape(beside) / torch.norm_except_dim(v, 2, axis))
    ours = lambda v, g: nn.weight_norm(v, g, axis=axis)
    agree_twice(ours, theirs, xs, peer="torch", what="weight_norm", twice=parts)


@pytest.mark.peers("torch")
@each("shape", WEIGHTS[1:])
@over("steps", [0, 1, 4])
@dtypes
def test_spectral_norm(shape, steps, dtype, rng):
    """By torch's parametrization of the matrix, begun at our vector; u moves with it."""
    w, u = drawn(rng, shape, shape[-1:], dtype=dtype)
    u /= np.linalg.norm(u)

    def theirs(w):
        matrix = w.reshape(-1, shape[-1])
        norm = Spectral(matrix, n_power_iterations=max(steps, 1))
        norm.train(steps > 0)
        norm._v = torch.tensor(u)
        norm._u = F.normalize(matrix.detach() @ norm._v, dim=0)
        return norm(matrix).reshape(w.shape), norm._v

    ours = lambda w: nn.spectral_norm(w, u, steps=steps)
    agree_twice(ours, theirs, [w], peer="torch", what="spectral_norm")
