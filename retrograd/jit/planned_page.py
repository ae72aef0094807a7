"""Pictures of a plan: bytes over the program, what the peak is made of, time against bytes."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from retrograd.core.extras import extra
from retrograd.jit.explain_page import STYLE
from retrograd.memory.sizes import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["figure", "page"]

WIDE, HIGH, MARGIN = 980, 360, 70
MOST = 1500  # bands in the picture, the largest
COLOURS = {"kept": "#4a7ebb", "recomputed": "#c7683c", "spilled": "#6b8f5e", "space": "#bbb"}


def page(plan: Any) -> str:
    """The whole page, self-contained."""
    title = f"{escape(plan.who)}: {shown(plan.peak)}, {plan.seconds * 1e3:.3g} ms a call"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1>{_tiles(plan)}{_arena(plan)}{_curve(plan)}"
        f"{_peak(plan)}{_runs(plan)}</html>"
    )


def _tiles(plan: Any) -> str:
    facts = [
        ("none" if plan.budget is None else shown(plan.budget), "budget"),
        (shown(plan.arena), "arena"),
        (shown(plan.outputs), "results in new memory"),
        (shown(plan.scratch), "scratch of the threads"),
        (shown(plan.minimum), "smallest budget found"),
        (shown(plan.bound), "no budget below"),
        (f"{plan.again} of {len(plan.runs)}", "runs are recomputations"),
    ]
    tiles = "".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in facts)
    return f'<div class="tiles">{tiles}</div>'


def _arena(plan: Any) -> str:
    """Each stay of a value as a rectangle: runs across, bytes of the arena upwards."""
    used = {b.fate for b in plan.bands}
    keys = "".join(
        f'<span class="key" style="background:{c}"></span>{k}'
        for k, c in COLOURS.items()
        if k in used
    )
    top = max(plan.arena, plan.room or 0, 1)
    count = max(1, len(plan.runs))
    across, up = (WIDE - MARGIN) / count, (HIGH - 30) / top
    drawn = sorted(plan.bands, key=lambda b: -b.nbytes)[:MOST]
    rects = "".join(_rect(b, across, up) for b in drawn)
    line = ""
    if plan.room is not None:
        y = HIGH - 20 - plan.room * up
        line = (
            f'<line x1="{MARGIN}" x2="{WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#b3364b" '
            f'stroke-dasharray="6 4"/><text x="{MARGIN + 4}" y="{y - 4:.1f}">budget</text>'
        )
    return (
        f"<h2>The arena over the program</h2><p>{keys}</p>"
        f"{_svg(HIGH, rects + line + _scale(top, up))}"
        f"<p>Runs from left to right; hover for what a band is and the line that made it.</p>"
    )


def _rect(b: Any, across: float, up: float) -> str:
    x, w = MARGIN + b.first * across, (b.last - b.first + 1) * across
    h = b.nbytes * up
    y = HIGH - 20 - b.offset * up - h
    note = escape(f"{shown(b.nbytes)} {b.what}, {b.fate}, runs {b.first} to {b.last} {b.where}")
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{max(h, 0.4):.2f}" '
        f'fill="{COLOURS[b.fate]}" fill-opacity=".75" stroke="#fff" stroke-width=".4">'
        f"<title>{note}</title></rect>"
    )


def _scale(top: int, up: float) -> str:
    marks = [top * k // 4 for k in range(5)]
    return "".join(
        f'<text class="s" x="{MARGIN - 6}" y="{HIGH - 16 - m * up:.1f}" text-anchor="end">'
        f"{shown(m)}</text>"
        for m in marks
    )


def _curve(plan: Any) -> str:
    """Predicted time against budget."""
    points: Sequence[Any] = plan.curve
    low, high = min(p.nbytes for p in points), max(p.nbytes for p in points)
    least, most = min(p.seconds for p in points), max(p.seconds for p in points)
    tall = HIGH - 60

    def at(nbytes: float, seconds: float) -> tuple[float, float]:
        x = MARGIN + (nbytes - low) / max(high - low, 1) * (WIDE - MARGIN - 80)
        y = HIGH - 40 - (seconds - 0.95 * least) / max(most - 0.95 * least, 1e-12) * tall
        return x, y

    steps = []
    for p, q in pairwise(points):
        (x, y), (x2, y2) = at(p.nbytes, p.seconds), at(q.nbytes, q.seconds)
        steps.append(f"M{x:.1f} {y:.1f}H{x2:.1f}V{y2:.1f}")
    dots = "".join(_dot(*at(p.nbytes, p.seconds), p) for p in points)
    x, y = at(plan.peak, plan.seconds)
    mine = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="#b3364b"/>'
    ends = (
        f'<text class="s" x="{MARGIN}" y="{HIGH - 8}">{shown(low)}</text>'
        f'<text class="s" x="{WIDE - 80}" y="{HIGH - 8}" text-anchor="end">{shown(high)}</text>'
    )
    path = f'<path d="{"".join(steps)}" class="roof"/>'
    return (
        f"<h2>Time against budget</h2><p>The predicted time of a call, from the smallest "
        f"budget found to the one that recomputes nothing. The ring is this plan.</p>"
        f"{_svg(HIGH, path + dots + mine + ends)}"
    )


def _dot(x: float, y: float, p: Any) -> str:
    note = f"{shown(p.nbytes)}: {p.seconds * 1e3:.3g} ms, {p.again} runs again"
    label = f'<text class="s" x="{x + 6:.1f}" y="{y - 5:.1f}">{p.seconds * 1e3:.3g} ms</text>'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#4a7ebb"><title>{note}</title></circle>'
        f"{label}"
    )


def _peak(plan: Any) -> str:
    rows = "".join(
        f'<tr><td class="n">{shown(b.nbytes)}</td><td>{escape(b.what)}</td><td>{b.fate}</td>'
        f"<td><code>{escape(b.where)}</code></td></tr>"
        for b in plan.at_peak()[:40]
    )
    return (
        "<h2>What the peak consists of</h2><table><tr><th class='n'>bytes</th><th>value</th>"
        f"<th></th><th>line</th></tr>{rows}</table>"
    )


def _runs(plan: Any) -> str:
    rows = "".join(f"<li>{escape(r)}</li>" for r in plan.runs[:2000])
    return f"<details><summary>All runs in order</summary><ol>{rows}</ol></details>"


def _svg(high: int, inner: str) -> str:
    return f'<svg viewBox="0 0 {WIDE} {high}" width="{WIDE}" role="img">{inner}</svg>'


def figure(plan: Any) -> Any:
    """Bytes over the program as a matplotlib figure."""
    pyplot = extra("plan.plot", "matplotlib.pyplot", "plot")
    fig, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4), width_ratios=(2, 1))
    for b in sorted(plan.bands, key=lambda b: -b.nbytes)[:MOST]:
        left.broken_barh(
            [(b.first, b.last - b.first + 1)],
            (b.offset / 2**20, b.nbytes / 2**20),
            facecolors=COLOURS[b.fate],
            edgecolor="white",
            linewidth=0.3,
        )
    if plan.room is not None:
        left.axhline(plan.room / 2**20, color="#b3364b", linestyle="--")
    left.set(xlabel="run", ylabel="arena, MiB", title=plan.who)
    right.step(
        [p.nbytes / 2**20 for p in plan.curve],
        [p.seconds * 1e3 for p in plan.curve],
        where="post",
        marker="o",
    )
    right.set(xlabel="budget, MiB", ylabel="ms a call, predicted")
    fig.tight_layout()
    return fig
