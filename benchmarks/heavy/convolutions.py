"""Convolutions: plain, strided, dilated, grouped, transposed, deformable; one to three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "conv": "our kernels against oneDNN's",
    "groups": "our kernels against oneDNN's",
    "depthwise": "our kernels against oneDNN's",
    "transpose": "our kernels against oneDNN's",
    "deform": "sampled columns are kept in memory, and sampled again backward",
}
LAST = ("last", "kernel", "last")


def cases() -> Iterator[Case]:
    """All rows of this family."""
    from torch.nn import functional as f

    draw = Draw(2)
    image = draw.normal(8, 56, 56, 64)
    yield from _options(draw, f, image)
    yield from _other_axes(draw, f)
    yield from _transposed(draw, f, image[:, :28, :28].copy())
    yield _deformable(draw, f)


def _options(draw: Draw, f: Any, image: Any) -> Iterator[Case]:
    for name, kind, deep, options in (
        ("conv", "conv", 64, {"padding": 1}),
        ("conv, stride 2,", "conv", 64, {"padding": 1, "stride": 2}),
        ("conv, dilation 2,", "conv", 64, {"padding": 2, "dilation": 2}),
        ("conv, 8 groups,", "groups", 8, {"padding": 1, "groups": 8}),
        ("depthwise conv", "depthwise", 1, {"padding": 1, "groups": 64}),
    ):
        yield Case(
            f"{name} 8x56x56x64, 3x3",
            kind,
            lambda x, w, options=options: rg.nn.conv(x, w, **options),
            lambda x, w, options=options: f.conv2d(x, w, **options),
            [image, draw.normal(3, 3, deep, 64)],
            LAST,
        )
    yield Case(
        "conv 8x56x56x64, 1x1 to 256",
        "conv",
        rg.nn.conv,
        f.conv2d,
        [image, draw.normal(1, 1, 64, 256)],
        LAST,
    )


def _other_axes(draw: Draw, f: Any) -> Iterator[Case]:
    yield Case(
        "conv 16x512x64, 5 to 128",
        "conv",
        lambda x, w: rg.nn.conv(x, w, padding=2),
        lambda x, w: f.conv1d(x, w, padding=2),
        [draw.normal(16, 512, 64), draw.normal(5, 64, 128)],
        LAST,
    )
    yield Case(
        "conv 2x8x16x16x16, 3x3x3 to 32",
        "conv",
        lambda x, w: rg.nn.conv(x, w, padding=1),
        lambda x, w: f.conv3d(x, w, padding=1),
        [draw.normal(2, 8, 16, 16, 16), draw.normal(3, 3, 3, 16, 32)],
        LAST,
    )


def _transposed(draw: Draw, f: Any, image: Any) -> Iterator[Case]:
    yield Case(
        "conv_transpose 8x28x28x64, 4x4, stride 2",
        "transpose",
        lambda x, w: rg.nn.conv_transpose(x, w, stride=2, padding=1),
        lambda x, w: f.conv_transpose2d(x, w, stride=2, padding=1),
        [image, draw.normal(4, 4, 64, 64)],
        ("last", "back", "last"),
    )


def _deformable(draw: Draw, f: Any) -> Case:
    import torch

    offset = draw.uniform(-2, 2, 4, 28, 28, 18)
    mask = draw.uniform(0, 1, 4, 28, 28, 9)
    y, x = (
        t.reshape(1, 1, 1, 28, 28)
        for t in torch.meshgrid(*[torch.arange(28)] * 2, indexing="ij")
    )
    i, j = (
        t.reshape(1, 3, 3, 1, 1) - 1
        for t in torch.meshgrid(*[torch.arange(3)] * 2, indexing="ij")
    )
    base = torch.stack([x + j, y + i], -1).float()

    def theirs(image: Any, offset: Any, w: Any, mask: Any) -> Any:
        moved = offset.reshape(4, 28, 28, 3, 3, 2).permute(0, 3, 4, 1, 2, 5).flip(-1) + base
        grid = (moved * (2 / 27) - 1).reshape(4, 9 * 28, 28, 2)
        cols = f.grid_sample(image, grid, align_corners=True)
        cols = cols.reshape(4, 64, 9, 28 * 28) * mask.reshape(4, 1, 28 * 28, 9).transpose(2, 3)
        out = w.reshape(64, 64 * 9) @ cols.reshape(4, 64 * 9, 28 * 28)
        return out.reshape(4, 64, 28, 28)

    return Case(
        "deform_conv 4x28x28x64, 3x3, mask",
        "deform",
        lambda x, o, w, m: rg.nn.deform_conv(x, o, w, mask=m, padding=1),
        theirs,
        [draw.normal(4, 28, 28, 64), offset, draw.normal(3, 3, 64, 64), mask],
        ("last", "plain", "kernel", "plain", "first"),
    )
