"""The picture of the README: for each training step, how many times as fast as each other."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log2
from typing import Any

from benchmarks.steps.peers import PEERS, TITLES

COLOURS = {"eager": "#e07b39", "compile": "#b5442e", "jax": "#3b6fb6"}
LEFT, TOP, WIDE, BAR, GAP, RIGHT = 300, 64, 520, 6, 8, 60


def draw(rows: list[dict[str, Any]], processor: str) -> str:
    """An SVG with three bars for each row, on a scale of doublings."""
    ratios = [[_ratio(r, p) for p in PEERS[1:]] for r in rows]
    flat = [log2(x) for row in ratios for x in row if x]
    low, high = min(-1, floor(min(flat))), max(1, ceil(max(flat)))
    step = 3 * BAR + GAP
    height = TOP + step * len(rows) + 44

    def x(doublings: float) -> float:
        return LEFT + WIDE * (doublings - low) / (high - low)

    parts = [_head(height), *_scale(low, high, x, height), *_legend(processor)]
    for i, (row, group) in enumerate(zip(rows, ratios, strict=True)):
        y = TOP + step * i
        parts.append(_text(LEFT - 10, y + 13, row["name"], anchor="end"))
        for k, (peer, ratio) in enumerate(zip(PEERS[1:], group, strict=True)):
            if ratio:
                parts.append(_bar(x(0), x(log2(ratio)), y + k * BAR, COLOURS[peer]))
    return "\n".join([*parts, "</svg>", ""])


def _ratio(row: dict[str, Any], peer: str) -> float | None:
    other = row["peers"].get(peer, {}).get("best")
    return other / row["peers"]["ours"]["best"] if other else None


def _head(height: int) -> str:
    wide = LEFT + WIDE + RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{wide}" height="{height}" fill="#ffffff"/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222"{more}>'
        f"{escape(words)}</text>"
    )


def _bar(start: float, end: float, y: float, colour: str) -> str:
    left, wide = min(start, end), max(abs(end - start), 0.5)
    return (
        f'<rect x="{left:.1f}" y="{y}" width="{wide:.1f}" height="{BAR - 1}" fill="{colour}"/>'
    )


def _scale(low: int, high: int, x: Any, height: int) -> list[str]:
    parts = []
    for n in range(low, high + 1):
        ink = "#222222" if n == 0 else "#dddddd"
        parts.append(
            f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{TOP - 6}" y2="{height - 36}" '
            f'stroke="{ink}"/>'
        )
        label = f"{2**n}x" if n >= 0 else f"1/{2**-n}"
        parts.append(_text(x(n), height - 20, label, anchor="middle"))
    return parts


def _legend(processor: str) -> list[str]:
    parts = [
        _text(
            10,
            20,
            f"Training steps: times as fast as the others, 2 threads, {processor}",
            more=' font-size="14" font-weight="bold"',
        )
    ]
    for k, peer in enumerate(PEERS[1:]):
        at = LEFT + 130 * k
        parts.append(f'<rect x="{at}" y="34" width="12" height="12" fill="{COLOURS[peer]}"/>')
        parts.append(_text(at + 18, 45, f"{TITLES[peer]}"))
    return parts
