"""An explanation as text: passes, steps, memory."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from retrograd.jit.report import Report, StepReport

__all__ = ["duration", "grouped", "rate", "size", "text"]

SHOWN = 12  # of the largest values


def size(n: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return ""


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def rate(n: float) -> str:
    """Billions in a second; nothing where there is nothing to count."""
    return f"{n / 1e9:.3g}" if n else ""


def grouped(names: Iterable[str]) -> str:
    """Names, with a count where one stands several times in a row."""
    runs = ((name, len(list(run))) for name, run in groupby(names))
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in runs)


def text(e: Report) -> str:
    """The whole page."""
    return "\n".join([_head(e), "", *_passes(e), "", *_steps(e), "", *_memory(e)])


def _head(e: Report) -> str:
    top = [s for s in e.steps if not s.depth]
    hosts = f", {len(e.hosts)} of them calls of Python" if e.hosts else ""
    threads = "1 thread" if e.limits.threads == 1 else f"{e.limits.threads} threads"
    once = "\nmeasured in one run, and a cold one, since it has effects" if e.once else ""
    return (
        f"{e.who}: {duration(e.seconds)} a call with {threads}, {len(top)} steps{hosts}{once}\n"
        f"this machine at most: {rate(e.limits.flops)} GFLOP/s (float32), "
        f"{rate(e.limits.memory)} GB/s from memory, {rate(e.limits.cache)} GB/s from the caches"
    )


def _passes(e: Report) -> list[str]:
    rows = [(name, str(len(graph.nodes))) for name, graph in e.graphs]
    return ["nodes after each pass", *_table(rows, "<>")]


def _steps(e: Report) -> Iterator[str]:
    total = sum(s.seconds for s in e.steps if not s.depth) or 1.0
    head = (
        "",
        "step",
        "time",
        "share",
        "moved",
        "GB/s",
        "GFLOP/s",
        "of roof",
        "chunks",
        "turns",
    )
    rows = [head, *(_row(s, total) for s in e.steps)]
    title, *lines = _table(rows, "><>>>>>>>>")
    yield "steps, in order; those of a loop are indented and counted in it, over all turns"
    yield title
    for line, s in zip(lines, e.steps, strict=True):
        yield line
        margin = " " * (8 + 2 * s.depth)
        for where, names in s.lines:
            yield f"{margin}{grouped(names)}    {where}".rstrip()


def _row(s: StepReport, total: float) -> tuple[str, ...]:
    return (
        str(s.number),
        "  " * s.depth + s.what,
        duration(s.seconds),
        f"{100 * s.seconds / total:.0f} %",
        size(s.nbytes) if s.nbytes else "",
        rate(s.bandwidth),
        rate(s.speed),
        f"{100 * s.nearness:.0f} %" if s.roof else "",
        str(s.chunks or ""),
        str(s.turns),
    )


def _memory(e: Report) -> list[str]:
    m = e.memory
    reused = f", {size(m.reused)} of them where donated arguments were" if m.reused else ""
    rows = [
        ("arguments", size(m.arguments), "the caller's"),
        ("outputs", size(m.outputs), f"the caller's{reused}"),
        ("arena", size(m.arena), f"values between the steps; at most {size(m.peak)} at once"),
        ("scratch", size(m.scratch), "for each thread"),
        ("constants", size(m.constants), "the program's"),
    ]
    values = [
        (size(v.nbytes), f"steps {v.first} to {v.last}", v.name, v.where)
        for v in m.values[:SHOWN]
    ]
    more = len(m.values) - len(values)
    found = ["memory", *_table(rows, "<><")]
    if values:
        found += ["largest values of the arena", *_table(values, "><<<")]
    return [*found, f"  and {more} more"] if more else found


def _table(rows: Any, sides: str) -> list[str]:
    """Rows of texts in columns, each to its side."""
    wide = [max(len(c) for c in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{c:{s}{w}}" for c, s, w in zip(r, sides, wide, strict=True)).rstrip()
        for r in rows
    ]
