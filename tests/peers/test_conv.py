"""Convolutions and pools agree with torch's and jax's over many geometries, to second order."""

import itertools

import numpy as np
import pytest
from peers.against import F, agree, agree_twice, jnp, lax, torch

from retrograd.ops.nn import adaptive_pool, conv, deform, patches, pool

ROUNDS = 25  # geometries for each number of spatial axes


def first(x):
    """Channels second, as torch has them."""
    return x.movedim(-1, 1)


def last(y):
    return y.movedim(1, -1)


def both_orders(mine, theirs, arrays, what, seed=0):
    agree_twice(mine, theirs, arrays, peer="torch", seed=seed, what=what)


def draw(rng, axes):
    """Options and sizes that fit each other: kernel, stride, dilation, padding, sizes."""
    some = lambda low, high: tuple(int(v) for v in rng.integers(low, high, axes))
    kernel, stride, dilation, padding = some(1, 4), some(1, 4), some(1, 4), some(0, 3)
    sizes = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + int(rng.integers(0, 5))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    return kernel, stride, dilation, padding, sizes


def convs(name):
    return [getattr(F, f"{name}{n}d") for n in (1, 2, 3)]


@pytest.mark.peers("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv(axes):
    rng = np.random.default_rng(axes)
    for seed in range(ROUNDS):
        kernel, stride, dilation, padding, sizes = draw(rng, axes)
        groups = int(rng.integers(1, 4))
        deep, wide = (groups * int(rng.integers(1, 4)) for _ in range(2))
        x = rng.normal(size=(seed % 3, *sizes, deep))
        w, b = rng.normal(size=(*kernel, deep // groups, wide)), rng.normal(size=wide)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

        def theirs(x, w, b, options=options):
            w = w.movedim((-1, -2), (0, 1))
            return last(convs("conv")[axes - 1](first(x), w, b, **options))

        mine = lambda x, w, b, options=options: conv.conv(x, w, b, **options)
        both_orders(mine, theirs, [x, w, b], f"conv {x.shape} {w.shape} {options}", seed)


@pytest.mark.peers("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv_transpose(axes):
    rng = np.random.default_rng(10 + axes)
    for seed in range(ROUNDS):
        kernel, stride, dilation, padding, sizes = draw(rng, axes)
        more = tuple(
            int(rng.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True)
        )
        reach = [
            (n - 1) * s + d * (k - 1) + 1 - 2 * p + m
            for n, s, d, k, p, m in zip(
                sizes, stride, dilation, kernel, padding, more, strict=True
            )
        ]
        if min(reach) < 1:
            continue
        groups = int(rng.integers(1, 4))
        deep, wide = (groups * int(rng.integers(1, 4)) for _ in range(2))
        x = rng.normal(size=(seed % 3, *sizes, deep))
        w, b = rng.normal(size=(*kernel, deep // groups, wide)), rng.normal(size=wide)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        options["output_padding"] = more

        def theirs(x, w, b, options=options, groups=groups):
            *kernel, deep, wide = w.shape  # theirs are [in, out / groups, *kernel]
            w = w.reshape(*kernel, deep, groups, wide // groups)
            w = w.movedim((-2, -3, -1), (0, 1, 2)).reshape(groups * deep, -1, *kernel)
            w = w.contiguous()  # else torch fails on its own gradient
            return last(convs("conv_transpose")[axes - 1](first(x), w, b, **options))

        mine = lambda x, w, b, options=options: conv.conv_transpose(x, w, b, **options)
        what = f"conv_transpose {x.shape} {w.shape} {options}"
        both_orders(mine, theirs, [x, w, b], what, seed)


@pytest.mark.peers("torch")
def test_depthwise_and_separable():
    rng = np.random.default_rng(20)
    for many, stride, dilation in itertools.product((1, 2, 3), (1, 2), (1, 2)):
        x, w = rng.normal(size=(2, 7, 6, 3)), rng.normal(size=(3, 2, 1, 3 * many))
        point = rng.normal(size=(3 * many, 4))
        options = {"stride": stride, "padding": 1, "dilation": dilation}

        def theirs(x, w, options=options):
            return last(F.conv2d(first(x), w.movedim((-1, -2), (0, 1)), groups=3, **options))

        mine = lambda x, w, options=options: conv.depthwise_conv(x, w, **options)
        both_orders(mine, theirs, [x, w], f"depthwise {many} {options}")
        agree(
            lambda x, w, p, options=options: conv.separable_conv(x, w, p, **options),
            lambda x, w, p, theirs=theirs: theirs(x, w) @ p,
            [x, w, point],
            [0, 1, 2],
            peer="torch",
        )


@pytest.mark.peers("torch")
def test_float32():
    rng = np.random.default_rng(21)
    x, w = (rng.normal(size=s).astype("f") for s in ((2, 9, 8, 5), (3, 3, 5, 7)))
    theirs = lambda x, w: last(F.conv2d(first(x), w.movedim((-1, -2), (0, 1)), padding=1))
    agree(lambda x, w: conv.conv(x, w, padding=1), theirs, [x, w], [0, 1], peer="torch")


@pytest.mark.peers("jax")
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_same_and_valid_are_those_of_jax(padding):
    rng = np.random.default_rng(22)
    for stride, dilation, n in ((1, 2, 5), (2, 1, 6), (3, 1, 7), (2, 2, 8)):
        x, w = rng.normal(size=(2, n, n + 1, 4)), rng.normal(size=(3, 2, 2, 6))

        def theirs(x, w, stride=stride, dilation=dilation):
            return lax.conv_general_dilated(
                jnp.asarray(x),
                jnp.asarray(w),
                (stride, stride),
                padding,
                rhs_dilation=(dilation, dilation),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=2,
            )

        mine = lambda x, w, stride=stride, dilation=dilation: conv.conv(
            x, w, stride=stride, dilation=dilation, padding=padding.lower(), groups=2
        )
        agree(mine, theirs, [x, w], [0, 1], peer="jax", what=f"{padding} {stride} {dilation}")


@pytest.mark.peers("torch")
def test_im2col_and_col2im():
    rng = np.random.default_rng(23)
    for _ in range(10):
        kernel, stride, dilation, padding, sizes = draw(rng, 2)
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        x = rng.normal(size=(2, *sizes, 3))
        mine = lambda x, k=kernel, o=options: patches.im2col(x, k, **o)
        rows = np.asarray(mine(x))

        def unfold(x, kernel=kernel, options=options, rows=rows):
            y = F.unfold(first(x), kernel, **options)  # [N, C * places, windows]
            y = y.reshape(2, 3, -1, y.shape[-1]).movedim((3, 2), (1, 2))
            return y.reshape(rows.shape)

        def fold(y, kernel=kernel, options=options, sizes=sizes):
            y = y.reshape(2, -1, kernel[0] * kernel[1], 3).movedim((3, 2), (1, 2))
            return last(F.fold(y.reshape(2, -1, y.shape[-1]), sizes, kernel, **options))

        agree(mine, unfold, [x], [0], peer="torch", what=f"im2col {options}")
        back = lambda y, k=kernel, o=options, s=sizes: patches.col2im(y, s, k, **o)
        agree(back, fold, [rows], [0], peer="torch", what=f"col2im {options}")


@pytest.mark.peers("torch")
def test_deform_conv_by_grid_sample():
    """torch has no deformable convolution; one grid_sample for each place makes one."""
    rng = np.random.default_rng(24)
    for groups, many, stride, dilation, padding in (
        (1, 1, 1, 1, 1),
        (2, 1, 2, 1, 0),
        (1, 2, 1, 2, 2),
        (2, 2, 2, 2, 1),
    ):
        x, w = rng.normal(size=(2, 6, 7, 4)), rng.normal(size=(2, 3, 4 // groups, 6))
        options = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
        counts = conv.conv(x, w, **options).shape[1:-1]
        offset = rng.uniform(-2, 2, (2, *counts, many * 12))
        mask = rng.normal(size=(2, *counts, many * 6))

        def theirs(x, offset, w, mask, own=(groups, many, stride, dilation, padding, counts)):
            groups, many, stride, dilation, padding, (high, wide) = own
            offset = offset.reshape(2, high, wide, many, 2, 3, 2)
            mask = mask.reshape(2, high, wide, many, 2, 3)
            rows = torch.arange(high)[:, None] * stride - padding
            columns = torch.arange(wide)[None, :] * stride - padding
            total = []
            for i, j in itertools.product(range(2), range(3)):
                parts = []
                for g in range(many):
                    y = offset[:, :, :, g, i, j, 0] + rows + i * dilation
                    z = offset[:, :, :, g, i, j, 1] + columns + j * dilation
                    grid = torch.stack([2 * z / 6 - 1, 2 * y / 5 - 1], -1)
                    part = first(x)[:, g * 4 // many : (g + 1) * 4 // many]
                    seen = F.grid_sample(part, grid, align_corners=True)
                    parts.append(seen * mask[:, None, :, :, g, i, j])
                total.append(torch.cat(parts, 1))
            cols = torch.stack(total, -1).reshape(2, 4, high * wide, 6)
            kernel = w.reshape(6, 4 // groups, 6).movedim((2, 1, 0), (0, 1, 2))
            out = F.conv2d(cols, kernel[:, :, None], groups=groups)
            return last(out.reshape(2, 6, high, wide))

        mine = lambda x, o, w, m, options=options: deform.deform_conv(
            x, o, w, mask=m, **options
        )
        agree(mine, theirs, [x, offset, w, mask], [0, 1, 2, 3], peer="torch", what=f"{options}")


# -- pools -------------------------------------------------------------------------------------


def apart(rng, sizes):
    """Numbers that are far from each other."""
    return rng.permutation(int(np.prod(sizes))).reshape(sizes) * 0.25 - 3.1


@pytest.mark.peers("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_pool(axes):
    rng = np.random.default_rng(30 + axes)
    for seed in range(ROUNDS):
        kernel, stride, dilation, _, sizes = draw(rng, axes)
        padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
        sizes = tuple(n + 2 * d for n, d in zip(sizes, dilation, strict=True))
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        options["ceil_mode"] = bool(seed % 2)
        x = apart(rng, (2, *sizes, 2))
        theirs = lambda x, k=kernel, o=options: last(
            convs("max_pool")[axes - 1](first(x), k, **o)
        )
        mine = lambda x, k=kernel, o=options: pool.max_pool(x, k, **o)
        both_orders(mine, theirs, [x], f"max_pool {x.shape} {kernel} {options}", seed)
        ties = rng.integers(0, 3, x.shape) * 1.0
        _, where = pool.max_pool(ties, kernel, return_indices=True, **options)
        f = convs("max_pool")[axes - 1]
        _, there = f(first(torch.tensor(ties)), kernel, return_indices=True, **options)
        assert np.array_equal(np.asarray(where), last(there).numpy())


@pytest.mark.peers("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_avg_pool(axes):
    rng = np.random.default_rng(40 + axes)
    for seed in range(ROUNDS):
        kernel, stride, _, _, sizes = draw(rng, axes)
        padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
        sizes = tuple(max(n, k) for n, k in zip(sizes, kernel, strict=True))
        options = {"stride": stride, "padding": padding, "ceil_mode": bool(seed % 2)}
        options["count_include_pad"] = bool(seed % 3)
        x = rng.normal(size=(2, *sizes, 2))
        theirs = lambda x, k=kernel, o=options: last(
            convs("avg_pool")[axes - 1](first(x), k, **o)
        )
        mine = lambda x, k=kernel, o=options: pool.avg_pool(x, k, **o)
        both_orders(mine, theirs, [x], f"avg_pool {x.shape} {kernel} {options}", seed)


@pytest.mark.peers("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_adaptive_pools(axes):
    rng = np.random.default_rng(50 + axes)
    for seed in range(ROUNDS):
        sizes, to = (tuple(int(v) for v in rng.integers(1, 8, axes)) for _ in range(2))
        x = apart(rng, (2, *sizes, 2))
        for name in ("adaptive_avg_pool", "adaptive_max_pool"):
            f, g = convs(name)[axes - 1], getattr(adaptive_pool, name)
            both_orders(
                lambda x, g=g, to=to: g(x, to),
                lambda x, f=f, to=to: last(f(first(x), to)),
                [x],
                f"{name} {x.shape} {to}",
                seed,
            )


@pytest.mark.peers("torch")
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_lp_pool(p):
    """Of positive numbers: torch takes powers of negative ones, not of their magnitude."""
    rng = np.random.default_rng(60)
    x = rng.uniform(0.5, 2, (2, 7, 6, 3))
    for window, stride in (((2, 3), (1, 2)), ((3, 2), (3, 2)), ((1, 1), (2, 1))):
        both_orders(
            lambda x, w=window, s=stride: pool.lp_pool(x, p, w, stride=s),
            lambda x, w=window, s=stride: last(F.lp_pool2d(first(x), p, w, s)),
            [x],
            f"lp_pool {p} {window}",
        )


@pytest.mark.peers("torch")
def test_max_unpool():
    rng = np.random.default_rng(61)
    x = apart(rng, (2, 6, 4, 3))
    y, where = pool.max_pool(x, 2, return_indices=True)
    there = first(torch.tensor(np.asarray(where)))
    agree(
        lambda y: pool.max_unpool(y, where, (6, 4)),
        lambda y: last(F.max_unpool2d(first(y), there, 2)),
        [np.asarray(y)],
        [0],
        peer="torch",
    )
