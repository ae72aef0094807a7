"""The picture: time of a training step against the memory it takes, a panel for each model."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log2
from typing import Any

from benchmarks.budgets.tables import points
from benchmarks.picture import COLOURS
from benchmarks.steps.peers import TITLES

OURS = "#2a7d4f"
WIDE, HIGH, LEFT, TOP, GAP = 400, 230, 60, 84, 70


def draw(found: list[dict[str, Any]], processor: str) -> str:
    """An SVG, panels in two columns; both axes by doublings."""
    rows = -(-len(found) // 2)
    width, height = 2 * (LEFT + WIDE) + 40, TOP + rows * (HIGH + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )
    parts = [head, *_legend(processor)]
    for k, one in enumerate(found):
        parts += _panel(one, LEFT + (k % 2) * (LEFT + WIDE), TOP + (k // 2) * (HIGH + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _legend(processor: str) -> list[str]:
    title = f"A training step: time against memory beyond weights and data; {processor}"
    parts = [_text(10, 20, title, more=' font-size="14" font-weight="bold"')]
    names = [("ours", OURS), *COLOURS.items()]
    for k, (peer, colour) in enumerate(names):
        at = LEFT + 150 * k
        parts += [_dot(at, 42, colour), _text(at + 10, 46, TITLES[peer])]
    return parts


def _text(x: float, y: float, words: str, *, anchor: str = "start", more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222"{more}>'
        f"{escape(words)}</text>"
    )


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


class _Axis:
    """Doublings between two ends, on so many pixels."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        low, high = log2(min(values)), log2(max(values))
        more = 0.08 * max(high - low, 0.5)
        self.low, self.high, self.start, self.end = low - more, high + more, start, end

    def __call__(self, value: float) -> float:
        share = (log2(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of two, halved where there are few."""
        step = 1.0 if self.high - self.low >= 2 else 0.25
        first, last = ceil(self.low / step), floor(self.high / step)
        return [2 ** (step * n) for n in range(first, last + 1)]


def _panel(found: dict[str, Any], left: float, top: float) -> list[str]:
    mine = sorted(points(found, "ours"), key=lambda p: p["peak"])
    every = [*mine, *points(found)]
    x = _Axis([p["peak"] for p in every], left, left + WIDE)
    y = _Axis([p["best"] * 1e3 for p in every], top + HIGH, top)
    parts = [_text(left, top - 8, found["name"], more=' font-weight="bold"')]
    for n in x.ticks():
        parts.append(_line(x(n), top, x(n), top + HIGH))
        parts.append(_text(x(n), top + HIGH + 16, f"{n:.0f} MB", anchor="middle"))
    for n in y.ticks():
        parts.append(_line(left, y(n), left + WIDE, y(n)))
        parts.append(_text(left - 6, y(n) + 4, f"{n:.0f} ms", anchor="end"))
    path = " ".join(f"{x(p['peak']):.1f},{y(p['best'] * 1e3):.1f}" for p in mine)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{OURS}" stroke-width="2"/>')
    for p in every:
        colour = OURS if p["peer"] == "ours" else COLOURS[p["peer"]]
        parts.append(_dot(x(p["peak"]), y(p["best"] * 1e3), colour))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'
