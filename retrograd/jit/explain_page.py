"""The page that explain().save writes: time by step, memory over the steps, the roofline."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from retrograd.jit.explain_text import duration, grouped, rate, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.report import Memory, Report, StepReport, ValueReport

__all__ = ["page"]

WIDE, MARGIN = 980, 60
ROW = 22  # pixels of a bar
DRAWN = 60  # bars, the longest; the table has all
BANDS = 300  # values in the picture of memory, the largest
CODE = 200_000  # characters of a program that a page shows

COLOURS = {  # by the first word of what a step is
    "loops": "#4a7ebb",
    "gemm": "#c7683c",
    "host": "#b3364b",
    "loop": "#6b8f5e",
    "other": "#8566a8",
}
NAMES = {
    "loops": "loops",
    "gemm": "matrix product",
    "host": "call of Python",
    "loop": "loop or branch, with all in it",
    "other": "kernel of an op",
}

STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1060px;padding:0 1em;
color:#222;background:#fff}h1{font-size:1.5em;margin-bottom:.2em}h2{font-size:1.15em;
margin:2em 0 .3em}p{margin:.3em 0;color:#555}
.tiles{display:flex;flex-wrap:wrap;gap:.8em;margin:1.2em 0}
.tile{border:1px solid #ddd;border-radius:6px;padding:.5em 1em;min-width:7em}
.tile b{display:block;font-size:1.3em;font-weight:600}.tile span{color:#666;font-size:12px}
table{border-collapse:collapse;margin:.6em 0;width:100%}
td,th{padding:.2em .7em;text-align:left;border-bottom:1px solid #e5e5e5;vertical-align:top}
th{color:#666;font-weight:500;font-size:12px}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code,pre{font:12px ui-monospace,monospace}td code{color:#666}
pre{background:#f6f6f4;padding:1em;overflow:auto;max-height:32em}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;border-radius:2px}
svg{display:block;margin:.5em 0;max-width:100%}
svg text{font:12px system-ui,sans-serif;fill:#333}svg .s{fill:#777;font-size:11px}
svg .g{stroke:#e5e5e5}svg .roof{stroke:#333;fill:none;stroke-width:1.5}
summary{cursor:pointer;margin:.4em 0}
"""


def page(e: Report) -> str:
    """The whole page, self-contained."""
    title = f"{escape(e.who)}: {duration(e.seconds)} a call"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1>{_once(e)}{_tiles(e)}{_times(e)}{_roofline(e)}"
        f"{_arena(e)}{_table(e.steps)}{_passes(e)}</html>"
    )


def _once(e: Report) -> str:
    said = "Measured in one run, and a cold one, since the program has effects."
    return f"<p>{said}</p>" if e.once else ""


def kind(s: StepReport) -> str:
    """Which colour a step has."""
    word = s.what.partition(":")[0]
    return word if word in COLOURS else "other" if s.roof else "loop"


def _tiles(e: Report) -> str:
    top = [s for s in e.steps if not s.depth]
    m = e.memory
    facts = [
        (str(e.limits.threads), "threads" if e.limits.threads > 1 else "thread"),
        (str(len(top)), "steps"),
        (str(len(e.hosts)), "calls of Python"),
        (f"{rate(sum(s.flops for s in e.steps) / e.seconds) or 0}", "GFLOP/s, all in all"),
        (size(m.arena), "arena"),
        (size(m.arguments), "arguments"),
        (size(m.outputs - m.reused), "outputs in new memory"),
    ]
    tiles = "".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in facts)
    return f'<div class="tiles">{tiles}</div>'


def _legend(steps: Sequence[StepReport]) -> str:
    used = [k for k in COLOURS if any(kind(s) == k for s in steps)]
    keys = (
        f'<span class="key" style="background:{COLOURS[k]}"></span>{NAMES[k]}' for k in used
    )
    return f"<p>{''.join(keys)}</p>"


# -- time ----------------------------------------------------------------------------------


def _times(e: Report) -> str:
    longest = sorted(e.steps, key=lambda s: -s.seconds)[:DRAWN]
    shown = [s for s in e.steps if s in longest]
    if not shown:
        return "<h2>Time</h2><p>There is nothing to do.</p>"
    most = max(s.seconds for s in shown) or 1.0
    total = sum(s.seconds for s in e.steps if not s.depth) or 1.0
    bars = "".join(_bar(i, s, most, total) for i, s in enumerate(shown))
    note = "" if len(shown) == len(e.steps) else f" The {DRAWN} longest are shown."
    return (
        f"<h2>Time of each step</h2><p>In program order; steps of a loop are indented, over "
        f"all its turns. The lighter part is more than the machine's limits ask.{note}</p>"
        f"{_legend(shown)}{_svg(len(shown) * ROW + 6, bars)}"
    )


def _bar(i: int, s: StepReport, most: float, total: float) -> str:
    y, left = i * ROW + 2, 300
    wide = max(1.0, (WIDE - left - 200) * s.seconds / most)
    solid = wide * min(1.0, s.nearness) if s.roof else wide
    label = _cut(f"{'   ' * s.depth}{s.number}  {s.what}", 46)
    words = "" if s.what.startswith("host") else _cut(grouped(s.ops), 48 - len(label))
    near = f", {100 * s.nearness:.0f} % of the roof" if s.roof else ""
    colour = COLOURS[kind(s)]
    return (
        f"<g><title>{escape(_said(s))}</title>"
        f'<text x="0" y="{y + 14}">{escape(label).replace(" ", chr(160))}'
        f'<tspan class="s" dx="8">{escape(words)}</tspan></text>'
        f'<rect x="{left}" y="{y + 3}" width="{wide:.1f}" height="{ROW - 7}" fill="{colour}" '
        f'opacity=".35"/><rect x="{left}" y="{y + 3}" width="{solid:.1f}" height="{ROW - 7}" '
        f'fill="{colour}"/><text x="{left + wide + 6:.1f}" y="{y + 14}">{duration(s.seconds)}'
        f'<tspan class="s" dx="6">{100 * s.seconds / total:.0f} %{near}</tspan></text></g>'
    )


def _said(s: StepReport) -> str:
    """A step in words, as the mouse finds it."""
    lines = [f"{s.what}: {duration(s.seconds)}"]
    if s.turns != 1:
        lines.append(f"{s.turns} turns")
    lines += [f"{grouped(names)}    {where}" for where, names in s.lines]
    return "\n".join(lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(high: float, inner: str) -> str:
    return f'<svg width="{WIDE}" height="{high}" viewBox="0 0 {WIDE} {high}">{inner}</svg>'


# -- the roofline --------------------------------------------------------------------------


class Plane:
    """Logarithmic axes: operations for each byte, and operations in a second."""

    high = 340

    def __init__(self, points: Sequence[tuple[float, float]], flops: float) -> None:
        xs, ys = zip(*points, strict=True)
        self.x0, self.x1 = _decade(min(xs), -1), _decade(max(*xs, 100.0), 1)
        self.y0, self.y1 = _decade(min(ys), -1), _decade(flops * 1.2, 1)

    def x(self, v: float) -> float:
        """Pixels from the left."""
        share = (math.log10(v) - self.x0) / (self.x1 - self.x0)
        return MARGIN + share * (WIDE - MARGIN - 20)

    def y(self, v: float) -> float:
        """Pixels from the top."""
        share = (math.log10(v) - self.y0) / (self.y1 - self.y0)
        return 10 + (1 - share) * (self.high - 50)

    def grid(self) -> str:
        """Lines and numbers at each power of ten."""
        top, bottom = self.y(10**self.y1), self.y(10**self.y0)
        out = []
        for p in range(self.x0, self.x1 + 1):
            x = self.x(10.0**p)
            out.append(f'<line class="g" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
            out.append(
                f'<text class="s" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">'
                f"{10.0**p:g}</text>"
            )
        for p in range(self.y0, self.y1 + 1):
            y = self.y(10.0**p)
            out.append(
                f'<line class="g" x1="{MARGIN}" y1="{y:.1f}" x2="{WIDE - 20}" y2="{y:.1f}"/>'
                f'<text class="s" x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{10.0 ** (p - 9):g}</text>"
            )
        return "".join(out)

    def roof(self, flops: float, speed: float, name: str) -> str:
        """A slope of bandwidth, then the level of arithmetic."""
        low, knee = 10.0**self.x0, flops / speed
        start = max(low, 10.0**self.y0 / speed)
        points = [(start, start * speed), (knee, flops), (10.0**self.x1, flops)]
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        at = self.x(start) + 14, self.y(start * speed) + (10 if start == low else -4)
        return (
            f'<polyline class="roof" points="{path}"/>'
            f'<text class="s" x="{at[0]:.1f}" y="{at[1]:.1f}">{name}: {rate(speed)} GB/s</text>'
        )


def _decade(v: float, side: int) -> int:
    return math.floor(math.log10(v)) if side < 0 else math.ceil(math.log10(v))


def _roofline(e: Report) -> str:
    steps = [s for s in e.steps if s.flops and s.nbytes and s.seconds]
    if not steps:
        return ""
    limits = e.limits
    points = [(s.flops / s.nbytes, s.speed) for s in steps]
    plane = Plane(points, limits.flops)
    total = sum(s.seconds for s in steps)
    dots = "".join(
        f"<g><title>{escape(_said(s))}</title>"
        f'<circle cx="{plane.x(a):.1f}" cy="{plane.y(b):.1f}" '
        f'r="{3 + 14 * math.sqrt(s.seconds / total):.1f}" fill="{COLOURS[kind(s)]}" '
        f'opacity=".7"/></g>'
        for s, (a, b) in zip(steps, points, strict=True)
    )
    roofs = plane.roof(limits.flops, limits.memory, "memory")
    roofs += plane.roof(limits.flops, limits.cache, "caches")
    names = (
        f'<text class="s" x="{WIDE - 24}" y="{plane.y(limits.flops) - 6:.1f}" '
        f'text-anchor="end">arithmetic: {rate(limits.flops)} GFLOP/s (float32)</text>'
        f'<text class="s" x="{WIDE / 2}" y="{plane.high - 4}" text-anchor="middle">'
        f"operations for each byte moved</text>"
        f'<text class="s" x="{MARGIN + 5}" y="22">GFLOP/s</text>'
    )
    return (
        "<h2>Roofline</h2><p>Each dot is a step, as large as its time. Lines are what this "
        "machine reached with the same threads when it did nothing else.</p>"
        f"{_legend(steps)}{_svg(plane.high, plane.grid() + roofs + dots + names)}"
    )


# -- memory --------------------------------------------------------------------------------


def _arena(e: Report) -> str:
    m = e.memory
    shown = [v for v in m.values if v.nbytes][:BANDS]
    rows = "".join(
        f'<tr><td class="n">{size(v.nbytes)}</td><td class="n">{v.first} – {v.last}</td>'
        f"<td>{escape(v.name)}</td><td><code>{escape(v.where)}</code></td></tr>"
        for v in m.values[:20]
    )
    head = "<th class=n>bytes</th><th class=n>steps</th><th>value</th><th>line</th>"
    table = f"<table><tr>{head}</tr>{rows}</table>" if rows else ""
    reused = f", {size(m.reused)} of them where donated arguments were" if m.reused else ""
    return (
        f"<h2>Memory over the steps</h2><p>The arena has {size(m.arena)}; at most "
        f"{size(m.peak)} of it are alive at once. Beside it: {size(m.scratch)} of scratch for "
        f"each thread, {size(m.constants)} of constants, {size(m.arguments)} of arguments, "
        f"{size(m.outputs)} of outputs{reused}.</p>{_bands(m, shown)}{table}"
    )


def _bands(m: Memory, shown: Sequence[ValueReport]) -> str:
    if not shown:
        return ""
    high, last = 300, max(v.last for v in shown) + 1
    across = (WIDE - MARGIN - 20) / last
    bands = "".join(_band(v, i, across, (high - 34) / m.arena) for i, v in enumerate(shown))
    every = max(1, last // 20)
    ticks = "".join(
        f'<text class="s" x="{MARGIN + (t + 0.5) * across:.1f}" y="{high - 18}" '
        f'text-anchor="middle">{t}</text>'
        for t in range(0, last, every)
    )
    names = (
        f'<text class="s" x="{MARGIN - 6}" y="12" text-anchor="end">{size(m.arena)}</text>'
        f'<text class="s" x="{MARGIN - 6}" y="{high - 34}" text-anchor="end">0</text>'
        f'<text class="s" x="{WIDE / 2}" y="{high - 3}" text-anchor="middle">step</text>'
    )
    frame = (
        f'<rect x="{MARGIN}" y="0" width="{WIDE - MARGIN - 20}" height="{high - 34}" '
        f'fill="#f7f7f5"/>'
    )
    return _svg(high, frame + bands + ticks + names)


def _band(v: ValueReport, i: int, across: float, scale: float) -> str:
    hue = (i * 137.5 + 210) % 360  # neighbours in size differ in colour
    x, wide = MARGIN + v.first * across, (v.last - v.first + 1) * across
    y, high = (266 - (v.offset + v.nbytes) * scale), v.nbytes * scale
    said = f"{v.name}, {size(v.nbytes)}, steps {v.first} to {v.last}\n{v.where}"
    label = escape(_cut(v.name, int(wide / 7)))
    words = f'<text class="s" x="{x + 4:.1f}" y="{y + 13:.1f}">{label}</text>'
    return (
        f'<g><title>{escape(said)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
        f'height="{high:.1f}" fill="hsl({hue:.0f} 45% 72%)" stroke="#fff" stroke-width=".6"/>'
        f"{words if high > 15 and wide > 60 else ''}</g>"
    )


# -- tables --------------------------------------------------------------------------------


def _table(steps: Sequence[StepReport]) -> str:
    titles = ("", "step", "time", "moved", "GB/s", "GFLOP/s", "of roof", "chunks", "turns")
    numbers = "".join(f"<th{'' if t == 'step' else ' class=n'}>{t}</th>" for t in titles)
    rows = "".join(map(_step, steps))
    return f"<h2>Steps, and the ops in them</h2><table><tr>{numbers}</tr>{rows}</table>"


def _step(s: StepReport) -> str:
    lines = "".join(
        f"<div>{escape(grouped(names))}&ensp;<code>{escape(where)}</code></div>"
        for where, names in s.lines
    )
    cells = [
        duration(s.seconds),
        size(s.nbytes) if s.nbytes else "",
        rate(s.bandwidth),
        rate(s.speed),
        f"{100 * s.nearness:.0f} %" if s.roof else "",
        s.chunks or "",
        s.turns,
    ]
    numbers = "".join(f'<td class="n">{c}</td>' for c in cells)
    return (
        f'<tr><td class="n">{s.number}</td><td style="padding-left:{0.7 + 1.4 * s.depth}em">'
        f'<b style="color:{COLOURS[kind(s)]}">{escape(s.what)}</b>{lines}</td>{numbers}</tr>'
    )


def _passes(e: Report) -> str:
    rows = "".join(
        f"<details><summary>{escape(name)}: {len(graph.nodes)} nodes</summary>"
        f"<pre>{escape(_cut(str(graph), CODE))}</pre></details>"
        for name, graph in e.graphs
    )
    return f"<h2>The program after each pass</h2>{rows}"
