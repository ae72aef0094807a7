"""Resizing, sampling, shuffles and ssim agree with PyTorch on values and gradients."""

import numpy as np
import pytest
from peers.against import F, agree, torch

import retrograd as rg
from retrograd.ops.nn import grid_sample as g
from retrograd.ops.nn import resize as r
from retrograd.ops.nn import vision as v
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("torch")
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


def test_grid_sample_twice():
    """The gradient of a function of the gradient; PyTorch has none for this op: differences."""
    x, p = numbers(1, 4, 5, 2), numbers(1, 3, 3, 2, seed=2) * 0.5

    def f(x, p):
        gx, gp = rg.grad(lambda a, b: rg.sum(rg.sin(g.grid_sample(a, b))), argnums=(0, 1))(x, p)
        return rg.sum(gx**2) + rg.sum(gp**2)

    step = numbers(*p.shape, seed=3)
    slope = float(rg.sum(rg.grad(f, argnums=1)(x, p) * step))
    e = 1e-6
    wanted = (float(f(x, p + e * step)) - float(f(x, p - e * step))) / (2 * e)
    np.testing.assert_allclose(slope, wanted, rtol=1e-6)


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
