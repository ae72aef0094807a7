"""Resizing, sampling, shuffles and ssim agree with PyTorch on values and gradients."""

import numpy as np
import pytest
from peers.against import F, Lazy, agree, agree_twice, jax, torch

from retrograd.ops.nn import grid_sample as g
from retrograd.ops.nn import resize as r
from retrograd.ops.nn import vision as v
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("torch")
map_coordinates = Lazy("jax.scipy.ndimage", "map_coordinates")
WORDS = {1: "linear", 2: "bilinear", 3: "trilinear"}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def same(mine, theirs, arrays, what, moving=None):
    moving = list(range(len(arrays))) if moving is None else moving
    agree(mine, theirs, arrays, moving, peer="torch", what=what)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("new", [(5, 7), (2, 3), (8, 1), (1, 1), (4, 6), (12, 18)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact", "area"])
def test_resize(mode, new, aligned):
    if aligned and not mode.startswith("bi"):
        pytest.skip("corners are aligned between elements only")
    corners = aligned if mode.startswith("bi") else None
    same(
        lambda x: r.resize(x, new, mode=mode, align_corners=aligned, layout="NCHW"),
        lambda x: F.interpolate(x, new, mode=mode, align_corners=corners),
        [numbers(2, 3, 4, 6)],
        f"resize {mode} {new} {aligned}",
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "area"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_resize_in_all_dimensions(mode, axes):
    x, new = numbers(2, 2, *(5, 4, 3)[:axes]), (7, 3, 5)[:axes]
    word = WORDS[axes] if mode == "linear" else mode
    layout = ("NCL", "NCHW", "NCDHW")[axes - 1]
    same(
        lambda x: r.resize(x, new, mode=mode, layout=layout),
        lambda x: F.interpolate(x, new, mode=word),
        [x],
        f"resize {mode} in {axes}",
    )


@pytest.mark.parametrize("scale", [2, 1.7, 0.6, (3, 0.5)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "area"])
def test_resize_by_a_factor(mode, scale):
    same(
        lambda x: r.resize(x, scale=scale, mode=mode, layout="NCHW"),
        lambda x: F.interpolate(x, scale_factor=scale, mode=mode),
        [numbers(1, 2, 7, 5)],
        f"resize {mode} by {scale}",
    )


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("sizes", [(5, 4), (2, 7), (1, 3)])
def test_grid_sample(mode, padding, aligned, sizes):
    x, grid = numbers(2, 3, *sizes), numbers(2, 3, 6, 2, seed=1) * 1.3
    options = {"mode": mode, "align_corners": aligned}
    same(
        lambda x, p: g.grid_sample(x, p, padding=padding, layout="NCHW", **options),
        lambda x, p: F.grid_sample(x, p, padding_mode=padding, **options),
        [x, grid],
        f"grid_sample {mode} {padding} {aligned}",
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_volumes(padding):
    same(
        lambda x, p: g.grid_sample(x, p, padding=padding, layout="NCDHW"),
        lambda x, p: F.grid_sample(x, p, padding_mode=padding, align_corners=False),
        [numbers(2, 2, 3, 4, 5), numbers(2, 2, 3, 2, 3, seed=1)],
        f"grid_sample 3-D {padding}",
    )


# torch's grid_sample is differentiated once only; what follows is differentiated twice

GRIDS = [  # sizes of the image, of the grid
    ((5, 4), (3, 6)),
    ((1, 3), (2, 2)),
    ((2, 7), (1, 5)),
    ((3, 4, 2), (2, 1, 3)),
]


def places(grid, sizes, *, aligned):
    """Coordinates from -1 to 1 as places, row first: by their definition."""
    for k, n in enumerate(sizes):
        at = (grid[..., len(sizes) - 1 - k] + 1) / 2
        yield at * (n - 1) if aligned else at * n - 0.5


def hat(d):
    """What bilinear reading weighs a neighbour at distance d with."""
    return (1 - abs(d)).clamp(min=0)


def cubic(d, a=-0.75):
    """The same for bicubic reading: Keys's kernel, with torch's parameter."""
    d = abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d < 1, near, torch.where(d < 2, far, 0 * d))


@pytest.mark.parametrize(("sizes", "points"), GRIDS)
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_twice(mode, sizes, points, aligned):
    """Outside are zeros: the sum over all elements, each with the weight of its distance."""
    axes, kernel = len(sizes), hat if mode == "bilinear" else cubic
    x, grid = numbers(2, *sizes, 3), numbers(2, *points, axes, seed=1) * 0.8

    def theirs(x, grid):
        out = x.reshape(2, *(1,) * axes, *sizes, 3)
        for at, n in zip(places(grid, sizes, aligned=aligned), sizes, strict=True):
            w = kernel(at[..., None] - torch.arange(n))  # [2, *points, n]
            rest = out.ndim - axes - 2
            out = (out * w.reshape(*w.shape, *(1,) * rest)).sum(axes + 1)
        return out

    ours = lambda x, p: g.grid_sample(x, p, mode=mode, align_corners=aligned)
    agree_twice(ours, theirs, [x, grid], peer="torch", what=f"grid_sample {mode}")


PADDED = [  # and the number of the grid: few, since jax takes seconds to compile each
    ("zeros", False, 0),
    ("zeros", True, 2),
    ("border", False, 2),
    ("border", True, 1),
    ("reflection", False, 0),
    ("reflection", True, 2),
]


@pytest.mark.peers("jax")
@pytest.mark.parametrize(("padding", "aligned", "grid"), PADDED)
def test_grid_sample_twice_by_map_coordinates(padding, aligned, grid):
    """jax's reading of one image at places, which pads as an array is padded."""
    sizes, points = GRIDS[grid]
    axes, mirror = len(sizes), "mirror" if aligned else "reflect"
    word = {"zeros": "constant", "border": "nearest", "reflection": mirror}[padding]
    x, grid = numbers(2, *sizes, 2), numbers(2, *points, axes, seed=1) * 0.8

    def theirs(x, grid):
        at = list(places(grid, sizes, aligned=aligned))
        one = lambda x, *at: map_coordinates(x, at, order=1, mode=word)
        channels = jax.vmap(one, (-1, *(None,) * axes), -1)
        return jax.vmap(channels)(x, *at)

    ours = lambda x, p: g.grid_sample(x, p, padding=padding, align_corners=aligned)
    agree_twice(ours, theirs, [x, grid], peer="jax", what=f"grid_sample {padding}")


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (1, 2), (2, 3, 4)])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
def test_affine_grid(size, aligned):
    axes = len(size)
    same(
        lambda t: g.affine_grid(t, size, align_corners=aligned),
        lambda t: F.affine_grid(t, (2, 1, *size), align_corners=aligned),
        [numbers(2, axes, axes + 1)],
        f"affine_grid {size} {aligned}",
    )


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixel_shuffles(factor):
    same(
        lambda x: v.pixel_shuffle(x, factor, layout="NCHW"),
        lambda x: F.pixel_shuffle(x, factor),
        [numbers(2, 2 * factor**2, 3, 2)],
        "pixel_shuffle",
    )
    same(
        lambda x: v.pixel_unshuffle(x, factor, layout="NCHW"),
        lambda x: F.pixel_unshuffle(x, factor),
        [numbers(2, 2, 3 * factor, 2 * factor)],
        "pixel_unshuffle",
    )


def test_ssim():
    x, y = (np.random.default_rng(s).uniform(size=(2, 3, 14, 13)) for s in (0, 1))

    def theirs(x, y):
        line = torch.exp(-((torch.arange(11, dtype=x.dtype) - 5) ** 2) / (2 * 1.5**2))
        line = line / line.sum()
        k = (line[:, None] * line).expand(3, 1, 11, 11)
        mean = lambda t: F.conv2d(t, k, groups=3)
        mx, my = mean(x), mean(y)
        vx, vy = mean(x * x) - mx**2, mean(y * y) - my**2
        both = mean(x * y) - mx * my
        c, d = 0.01**2, 0.03**2
        top = (2 * mx * my + c) * (2 * both + d)
        return (top / ((mx**2 + my**2 + c) * (vx + vy + d))).mean()

    same(lambda x, y: v.ssim(x, y, layout="NCHW"), theirs, [x, y], "ssim")
    assert_close(v.ssim(x, x, window=3), np.array(1.0))
