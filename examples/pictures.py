"""What digits.py shows at the end: its loss, and pictures with the answers it gave."""

import io
import os
from pathlib import Path

import numpy as np

SHOWN = 32


def save_picture(folder, curve, pictures, found, digits) -> Path:
    """Write digits.png, or digits.html where matplotlib is not installed; its path."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        page = as_page(curve, pictures, found, digits)
        return write(folder / "digits.html", page.encode())
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.semilogy(curve, linewidth=0.5)
    axes.set(title="loss", xlabel="step")
    right.suptitle("held-out pictures and answers; wrong ones in red")
    for k, panel in enumerate(right.subplots(4, SHOWN // 4).flat):
        panel.imshow(pictures[k], cmap="gray_r")
        panel.set_title(str(found[k]), color="k" if found[k] == digits[k] else "r", fontsize=9)
        panel.axis("off")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return write(folder / "digits.png", file.getvalue())


def write(path, data) -> Path:
    """The whole file, or nothing."""
    part = path.with_suffix(f"{path.suffix}.part")
    part.write_bytes(data)
    os.replace(part, path)
    return path


def as_page(curve, pictures, found, digits) -> str:
    """The same as a self-contained page, with drawings inside."""
    height = np.log(np.maximum(curve, 1e-4))
    x = np.linspace(0, 400, len(curve))
    y = 150 * (height.max() - height) / max(np.ptp(height), 1e-9)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    shown = zip(pictures[:SHOWN], found[:SHOWN], digits[:SHOWN], strict=True)
    style = (
        "figure{display:inline-block;margin:6px;text-align:center}body{font:14px sans-serif}"
    )
    return (
        f'<!doctype html><meta charset="utf-8"><title>digits</title><style>{style}</style>'
        f'<h1>Loss</h1><svg width="400" height="150"><polyline points="{line}" fill="none" '
        f'stroke="steelblue"/></svg><h1>Held-out pictures and answers</h1>'
        + "".join(_figure(*one) for one in shown)
    )


def _figure(picture, found, digit):
    high, wide = picture.shape
    dots = "".join(
        f'<rect x="{j}" y="{i}" width="1" height="1" opacity="{v:.2f}"/>'
        for (i, j), v in np.ndenumerate(np.clip(picture, 0, 1))
    )
    color = "black" if found == digit else "red"
    return (
        f'<figure style="color:{color}"><svg width="60" height="60" '
        f'viewBox="0 0 {wide} {high}">{dots}</svg><br>{found}</figure>'
    )
