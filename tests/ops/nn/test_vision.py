"""Vision: shuffles, resizing, sampling, boxes; plain twins, both orders, and refusals."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import ArgumentError, ShapeError, TraceError
from retrograd.ops.nn import detection as d
from retrograd.ops.nn import grid_sample as g
from retrograd.ops.nn import resize as r
from retrograd.ops.nn import vision as v
from retrograd.testing import assert_close, check, check_grads


@pytest.mark.parametrize("cls", [r.Resample, r.ResampleBack, d.Survivors])
def test_ops(cls, rng):
    for op, *arrays in cls.samples(rng):
        check.check_op(op, *arrays)
    for op, *arrays, sentence in cls.refuses(rng):
        check.check_refuses(op, arrays, sentence)


def test_shuffles_are_inverse_and_keep_nothing(rng):
    x = rng.normal(size=(2, 3, 5, 8))
    assert v.pixel_shuffle(x, 2).shape == (2, 6, 10, 2)
    assert_close(v.pixel_unshuffle(v.pixel_shuffle(x, 2), 2), x)
    check_grads(lambda a: v.pixel_shuffle(a, 2), x)
    leaf = rg.asarray(x).requires_grad_()
    assert rg.debug.graph(rg.sum(v.pixel_shuffle(leaf, 2))).nbytes == 0


def test_Y21_pixel_shuffle_refuses_channels_that_do_not_divide():
    with pytest.raises(ShapeError, match="6 channels of x"):
        v.pixel_shuffle(np.zeros((1, 2, 2, 6)), 2)
    with pytest.raises(ShapeError, match="must divide by 2"):
        v.pixel_unshuffle(np.zeros((1, 3, 2, 1)), 2)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_Y34_resize_is_differentiable_in_every_transform(mode, rng):
    x = rng.normal(size=(3, 4, 5, 2))
    f = lambda a: r.resize(a, (7, 3), mode=mode)
    check_grads(f, x)
    one_by_one = np.stack([f(a[None])[0].numpy() for a in x])
    assert_close(f(x), one_by_one)
    assert_close(rg.vmap(lambda a: f(a[None])[0])(x), one_by_one)
    leaf = rg.asarray(x).requires_grad_()
    assert rg.debug.graph(rg.sum(f(leaf))).nbytes == 0


def test_resizing_keeps_constants_and_area_keeps_the_mean(rng):
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        assert_close(r.resize(np.ones((1, 5, 4, 1)), (8, 3), mode=mode), np.ones((1, 8, 3, 1)))
    x = rng.normal(size=(1, 6, 4, 1))
    assert_close(rg.mean(r.resize(x, (3, 2), mode="area")), np.mean(x))
    assert_close(r.resize(x, (6, 4), mode="bicubic"), x)
    assert_close(r.upsample(x, 2), x.repeat(2, 1).repeat(2, 2))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_grid_sample_has_both_orders(mode, padding, aligned, rng):
    x = rng.normal(size=(2, 4, 5, 2))
    # places between elements, up to two outside: away from the kinks at whole ones
    sizes = np.array([5, 4])
    at = rng.integers(-2, sizes + 1, (2, 3, 2, 2)) + rng.uniform(0.1, 0.4, (2, 3, 2, 2))
    grid = 2 * at / (sizes - 1) - 1 if aligned else (2 * at + 1) / sizes - 1
    options = {"mode": mode, "padding": padding, "align_corners": aligned}
    check_grads(lambda a, b: g.grid_sample(a, b, **options), x, grid)


def test_the_identity_grid_reads_the_image(rng):
    x = rng.normal(size=(2, 4, 5, 3))
    same = np.broadcast_to(np.eye(2, 3), (2, 2, 3))
    for aligned in (False, True):
        grid = g.affine_grid(same, (4, 5), align_corners=aligned)
        for mode in ("bilinear", "nearest", "bicubic"):
            found = g.grid_sample(x, grid, mode=mode, align_corners=aligned)
            np.testing.assert_allclose(found.numpy(), x, atol=1e-12)
    check_grads(lambda t: g.affine_grid(t, (2, 3)), rng.normal(size=(2, 2, 3)))


def overlap(a, b):
    side = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(side, 0))
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def test_nms_is_the_greedy_choice(rng):
    low = rng.uniform(size=(40, 2))
    boxes, scores = (
        np.concatenate([low, low + rng.uniform(0.1, 0.5, (40, 2))], 1),
        rng.random(40),
    )
    wanted = []
    for i in np.argsort(-scores):
        if all(overlap(boxes[i], boxes[j]) <= 0.3 for j in wanted):
            wanted.append(int(i))
    assert d.nms(boxes, scores, threshold=0.3).tolist() == wanted
    found = d.nms(boxes, scores, threshold=0.3, size=50).tolist()
    assert found == wanted + [-1] * (50 - len(wanted))
    assert d.nms(boxes[:0], scores[:0]).shape == (0,)
    both = rg.vmap(lambda b, s: d.nms(b, s, threshold=0.3, size=5))(
        np.stack([boxes, boxes[::-1]]), np.stack([scores, scores[::-1]])
    )
    assert both.tolist() == [wanted[:5], [39 - i for i in wanted[:5]]]


def regions(x, boxes, cells, scale, samples, aligned):
    """roi_align from its definition, sample by sample."""
    _, h, w, c = x.shape
    out = np.zeros((len(boxes), *cells, c))
    for k, (image, *corners) in enumerate(boxes):
        x1, y1, x2, y2 = np.array(corners) * scale - 0.5 * aligned
        high, wide = y2 - y1, x2 - x1
        if not aligned:
            high, wide = max(high, 1.0), max(wide, 1.0)
        for i, j, a, b in np.ndindex(*cells, samples, samples):
            at_y = y1 + high * (i + (a + 0.5) / samples) / cells[0]
            at_x = x1 + wide * (j + (b + 0.5) / samples) / cells[1]
            if not (-1 <= at_y <= h and -1 <= at_x <= w):
                continue
            at_y, at_x = np.clip(at_y, 0, h - 1), np.clip(at_x, 0, w - 1)
            p, q = int(at_y), int(at_x)
            for s, t in np.ndindex(2, 2):
                weight = abs(1 - s - (at_y - p)) * abs(1 - t - (at_x - q))
                pixel = x[int(image), min(p + s, h - 1), min(q + t, w - 1)]
                out[k, i, j] += weight * pixel / samples**2
    return out


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_roi_align(aligned, samples, rng):
    x = rng.normal(size=(2, 6, 7, 3))
    boxes = np.array(
        [[0, 1.3, 2.2, 9.1, 8.7], [1, -4.3, 0.4, 3.3, 15.2], [1, 5.1, 5.2, 5.4, 5.3]]
    )
    options = {"scale": 0.7, "samples": samples, "aligned": aligned}
    found = d.roi_align(x, boxes, (2, 3), **options)
    assert_close(found, regions(x, boxes, (2, 3), **options))
    check_grads(lambda a: d.roi_align(a, boxes, (2, 3), **options), x)
    slopes = rg.grad(lambda b: rg.sum(d.roi_align(x, b, 2, **options) ** 2))(boxes).numpy()
    assert np.isfinite(slopes).all()
    assert slopes[:, 1:].any()
    assert d.roi_align(x, boxes[:0], (2, 3)).shape == (0, 2, 3, 3)


def test_ssim_has_both_orders(rng):
    x, y = rng.uniform(size=(2, 6, 7, 2)), rng.uniform(size=(2, 6, 7, 2))
    check_grads(lambda a, b: v.ssim(a, b, window=5, sigma=1.0, reduction="image"), x, y)
    assert v.ssim(x, y, window=5, reduction="none").shape == (2, 2, 3, 2)
    assert v.ssim(x.astype(np.float32), y.astype(np.float32), window=5).dtype == np.float32


IMAGE = np.zeros((1, 3, 3, 2))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: r.resize(IMAGE, 4, mode="cube"), ArgumentError, "mode 'cube' is not one of"),
        (lambda: r.resize(IMAGE, 4, mode="area", align_corners=True), ArgumentError, "linear"),
        (lambda: r.resize(IMAGE), ArgumentError, "give one of size and scale"),
        (lambda: r.resize(IMAGE, scale=-1), ArgumentError, "one positive number, or 2"),
        (lambda: r.resize(IMAGE, scale=0.1), ShapeError, "none may be empty"),
        (
            lambda: g.grid_sample(IMAGE, np.zeros((1, 2, 2, 3))),
            ShapeError,
            "must be [1, 2 axes",
        ),
        (lambda: g.grid_sample(IMAGE, IMAGE, mode="x"), ArgumentError, "mode 'x' is not"),
        (lambda: g.grid_sample(IMAGE, IMAGE, padding="x"), ArgumentError, "padding 'x' is not"),
        (lambda: g.affine_grid(np.zeros((1, 2, 2)), 3), ShapeError, "[N, 2, 3] or [N, 3, 4]"),
        (lambda: v.pixel_shuffle(IMAGE[0], 2), ShapeError, "must be [N, H, W, C]"),
        (lambda: v.ssim(IMAGE, IMAGE), ShapeError, "at least the window's 11"),
        (lambda: v.ssim(IMAGE, IMAGE, window=3, reduction="x"), ArgumentError, "reduction 'x'"),
        (
            lambda: d.roi_align(IMAGE, np.zeros((1, 4)), 2),
            ShapeError,
            "[N, H, W, C] and [K, 5]",
        ),
        (lambda: rg.vmap(d.nms)(np.zeros((1, 2, 4)), np.zeros((1, 2))), TraceError, "size="),
    ],
)
def test_refusals(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert sentence in str(caught.value)
