"""The page that graph().save writes: bytes by line, and the tape as a drawing."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from retrograd.jit.explain_text import size

DRAWN = 300  # more boxes than this nobody looks at; the table says it all
WIDTH, HEIGHT, GAP_X, GAP_Y = 170, 44, 24, 34

STYLE = """
body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:left;
border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{background:#4a7ebb;height:.8em;display:inline-block}code{font-size:13px}
svg text{font:12px system-ui,sans-serif}svg .s{fill:#555;font-size:10.5px}
"""


@dataclass
class Item:
    """One node of the tape, as the picture shows it."""

    number: int
    name: str
    spec: str
    where: str
    kept: list[tuple[str, int]]  # what is kept, and its bytes if nobody before keeps it
    inputs: list[int] = field(default_factory=list)
    depth: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that stay because of this node."""
        return sum(n for _, n in self.kept)


def page(items: list[Item], lines: list[tuple[str, int, int]]) -> str:
    """The whole page, self-contained."""
    title = f"tape: {len(items)} nodes keep {size(sum(i.bytes for i in items))}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1>{_table(lines)}{_drawing(items)}</html>"
    )


def _table(lines: list[tuple[str, int, int]]) -> str:
    most = max(1, *(b for _, b, _ in lines))
    rows = "".join(
        f'<tr><td><code>{html.escape(line)}</code></td><td class="n">{count}</td>'
        f'<td class="n">{size(b)}</td><td><span class="bar" '
        f'style="width:{200 * b / most:.0f}px"></span></td></tr>'
        for line, b, count in lines[:40]
    )
    return (
        "<h2>Bytes kept, by line</h2><table><tr><th>line</th><th>nodes</th><th>bytes</th>"
        f"<th></th></tr>{rows}</table>"
    )


def _drawing(everything: list[Item]) -> str:
    items = everything[-DRAWN:]
    note = "" if len(items) == len(everything) else f" (the last {DRAWN} nodes)"
    places = _places(items)
    wide = max(x for x, _ in places.values()) + WIDTH + GAP_X
    high = max(y for _, y in places.values()) + HEIGHT + GAP_Y
    most = max(1, *(i.bytes for i in items))
    edges = "".join(_edge(places, i, j) for i in items for j in i.inputs if j in places)
    boxes = "".join(_box(places[i.number], i, most) for i in items)
    return (
        f"<h2>The tape{note}</h2><p>Darker boxes keep more bytes.</p>"
        f'<svg width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">{edges}{boxes}</svg>'
    )


def _places(items: list[Item]) -> dict[int, tuple[int, int]]:
    """A column for each node of a depth, a row for each depth."""
    low = min(i.depth for i in items)
    used: dict[int, int] = {}
    out = {}
    for item in items:
        column = used.get(item.depth, 0)
        used[item.depth] = column + 1
        x = GAP_X + column * (WIDTH + GAP_X)
        out[item.number] = (x, GAP_Y + (item.depth - low) * (HEIGHT + GAP_Y))
    return out


def _edge(places: dict[int, tuple[int, int]], item: Item, source: int) -> str:
    (x1, y1), (x2, y2) = places[source], places[item.number]
    x1, x2, y1 = x1 + WIDTH // 2, x2 + WIDTH // 2, y1 + HEIGHT
    middle = (y1 + y2) // 2
    return (
        f'<path d="M{x1},{y1} C{x1},{middle} {x2},{middle} {x2},{y2}" fill="none" '
        f'stroke="#999"/>'
    )


def _box(place: tuple[int, int], item: Item, most: int) -> str:
    x, y = place
    shade = 97 - round(42 * item.bytes / most)
    kept = ", ".join(f"{n} {size(b)}" for n, b in item.kept) or "keeps nothing"
    tip = html.escape(f"{item.where}\nkeeps: {kept}")
    return (
        f"<g><title>{tip}</title>"
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
        f'fill="hsl(213,60%,{shade}%)" stroke="#567"/><text x="{x + 8}" y="{y + 18}">'
        f"{html.escape(item.name)} {html.escape(item.spec)}</text>"
        f'<text class="s" x="{x + 8}" y="{y + 34}">{html.escape(item.where[:28])}</text></g>'
    )
