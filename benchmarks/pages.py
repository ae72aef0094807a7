"""From what was found to pages: results.md, the picture, and the table in the README."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks import budgets, picture
from benchmarks.budgets import picture as budget_picture
from benchmarks.machine import kind
from benchmarks.steps.peers import PEERS, TITLES
from benchmarks.steps.rows import ROWS
from benchmarks.why import STEPS

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- made by make bench -->", "<!-- made by make bench: end -->"
OTHERS = PEERS[1:]
WARM, FIRST, AHEAD = 0.3, 4.0, 5.0  # seconds from a warm cache, seconds, times torch.compile's


@dataclass(frozen=True)
class Results:
    """What was found on a machine: a file for each subject and each training step."""

    where: Path = HERE / "results"

    @classmethod
    def of(cls, other: str) -> Results:
        """Those of the README, or of another machine beside them."""
        return cls(HERE / "others" / other) if other else cls()

    @property
    def shown(self) -> bool:
        """Whether the README shows them."""
        return self == Results()

    @property
    def kind(self) -> str:
        """Of the machine's CPU."""
        about = self.load("machine")
        return (
            kind(about["processor"], about.get("core", ""), about["vectors"]) if about else ""
        )

    def save(self, name: str, found: Any) -> None:
        """Write what was found."""
        self.where.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (self.where / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    def load(self, name: str) -> Any:
        """What was found, or None."""
        path = self.where / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def steps(self) -> list[dict[str, Any]]:
        """What was found of each training step, in order; only of those that ran."""
        rows = (self.load(f"steps/{key}") for key in ROWS)
        return [f for f in rows if f and "best" in f["peers"]["ours"]]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown. Reasons, which several rows may share, are notes below it."""
    heads = list(rows[0])
    notes = list(dict.fromkeys(r[h] for r in rows for h in heads if _is_reason(h) and r[h]))

    def cell(row: dict[str, Any], head: str) -> str:
        said = row[head]
        return f"({notes.index(said) + 1})" if _is_reason(head) and said else str(said)

    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell(r, h) for h in heads) + " |" for r in rows]
    below = [f"{n}. {text[0].upper()}{text[1:]}." for n, text in enumerate(notes, 1)]
    return "\n".join(lines + (["", *below] if below else []))


def _is_reason(head: str) -> bool:
    return head.startswith("why")


# -- training steps --------------------------------------------------------------------------


def value(found: dict[str, Any], peer: str, what: str) -> float | None:
    """One number of a row; None where it failed."""
    return found["peers"].get(peer, {}).get(what)


def fastest(found: dict[str, Any], what: str = "best") -> float | None:
    """The least of the others."""
    numbers = [n for p in OTHERS if (n := value(found, p, what)) is not None]
    return min(numbers, default=None)


def ahead(found: dict[str, Any]) -> float | None:
    """How many times as fast as the fastest of the others."""
    best = fastest(found)
    return None if best is None else best / found["peers"]["ours"]["best"]


def mean(numbers: list[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, numbers)) / len(numbers))


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    ms = seconds * 1e3
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}"


def _times(found: dict[str, Any]) -> dict[str, str]:
    ours, ratio = found["peers"]["ours"]["best"], ahead(found)
    cells = {"": f"({found['key']})", "training step, ms": found["name"]}
    cells["retrograd"] = f"**{_ms(ours)}**" if ratio and ratio > 1 else _ms(ours)
    cells |= {TITLES[p]: _ms(value(found, p, "best")) for p in OTHERS}
    return cells | {"faster than the best": f"{ratio:.2f} x" if ratio else "-"}


def _firsts(found: dict[str, Any]) -> dict[str, str]:
    def seconds(peer: str, what: str = "first") -> str:
        n = value(found, peer, what)
        return "-" if n is None else f"{n:.2f}"

    cells = {"": f"({found['key']})", "first call, s": found["name"]}
    cells |= {"retrograd": seconds("ours"), "warm cache": seconds("ours", "warm")}
    return cells | {TITLES[p]: seconds(p) for p in OTHERS}


def _memories(found: dict[str, Any]) -> dict[str, str]:
    def megabytes(peer: str) -> str:
        n = value(found, peer, "extra")
        return "-" if n is None else f"{n:.0f}"

    cells = {"": f"({found['key']})", "extra memory, MB": found["name"]}
    return cells | {TITLES[p]: megabytes(p) for p in PEERS}


def misses(found: dict[str, Any]) -> list[str]:
    """Where a row misses what was aimed at."""
    ours, missed = found["peers"]["ours"], []
    if (ratio := ahead(found)) is not None and ratio < 1:
        missed.append(f"{1 / ratio:.2f} times the time of the fastest")
    least = fastest(found, "extra")
    if least is not None and ours["extra"] >= least:
        missed.append(f"{ours['extra']:.0f} MB, the lowest is {least:.0f}")
    if ours["first"] > FIRST:
        missed.append(f"first call {ours['first']:.1f} s")
    if ours["warm"] > WARM:
        missed.append(f"{ours['warm']:.2f} s from a warm cache")
    compiled = value(found, "compile", "first")
    if compiled is not None and compiled < AHEAD * ours["first"]:
        missed.append(f"first call {compiled / ours['first']:.1f} times below torch.compile's")
    return missed


def _missed(rows: list[dict[str, Any]], reasons: dict[str, str]) -> list[str]:
    lines = []
    for found in rows:
        if missed := misses(found):
            why = f" {reasons[found['key']]}" if found["key"] in reasons else ""
            lines.append(f"- ({found['key']}) {found['name']}: {'; '.join(missed)}.{why}")
    return ["### What misses", "", *lines, ""] if lines else []


def _errors(found: dict[str, Any]) -> list[str]:
    """What peers said that did not run."""
    return [got["error"] for p in OTHERS if "error" in (got := found["peers"].get(p, {}))]


def _ahead(rows: list[dict[str, Any]]) -> str:
    ratios = [r for f in rows if (r := ahead(f))]
    return (
        f"ahead of the fastest of those measured on {sum(r > 1 for r in ratios)} of "
        f"{len(ratios)} rows; {mean(ratios):.2f} times as fast as it, as the geometric mean"
    )


def _summary(rows: list[dict[str, Any]]) -> str:
    found = _ahead(rows)
    return f"{found[0].upper()}{found[1:]}."


def _steps(results: Results) -> list[str]:
    rows = results.steps()
    if not rows:
        return []
    about = (HERE / "steps" / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
    text = ["## steps", "", about.strip(), "", _summary(rows), ""]
    for cells in (_times, _firsts, _memories):
        text += [table([cells(f) for f in rows]), ""]
    text += [f"- ({f['key']}) {e}" for f in rows for e in _errors(f)]
    return text + _missed(rows, STEPS.get(results.kind, {}))


# -- pages -----------------------------------------------------------------------------------


def _subject(name: str, results: Results) -> list[str]:
    found = results.load(name)
    if not found:
        return []
    text = [f"## {name}", ""]
    if results.shown and (HERE / f"{name}.svg").exists():
        text += [f"![{name}]({name}.svg)", ""]
    for paragraph in found["about"]:
        text += [paragraph, ""]
    for title, rows in found["tables"].items():
        text += [f"### {title}", ""] if title else []
        text += [table(rows), ""]
    return text


def write(results: Results) -> None:
    """All pages, from what was found in this run and before."""
    about = results.load("machine") or {}
    text = ["# Results", "", ", ".join(f"{k} {v}" for k, v in about.items()), ""]
    text += _steps(results)
    for name in ("micro", "growth", "budgets", "tiny", "imports", "heavy"):
        text += _subject(name, results)
    page = (HERE if results.shown else results.where) / "results.md"
    page.write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    if results.shown:
        _pictures(results.steps(), about)


def _pictures(rows: list[dict[str, Any]], about: dict[str, str]) -> None:
    """Both pictures, and the README, which shows one of them."""
    processor = about.get("processor", "")
    if raced := budgets.raced():
        drawn = budget_picture.draw(raced, processor)
        (HERE / "budgets.svg").write_text(drawn, encoding="utf-8")
    if rows:
        (HERE / "steps.svg").write_text(picture.draw(rows, processor), encoding="utf-8")
        _readme(rows, about)


def _elsewhere() -> list[str]:
    """What other machines found, each on a page of its own."""
    text = []
    for name in sorted(p.name for p in (HERE / "others").glob("*") if p.is_dir()):
        results = Results.of(name)
        about, rows = results.load("machine"), results.steps()
        if about and rows:
            machine = ", ".join(
                about[n] for n in ("processor", "core", "vectors") if n in about
            )
            page = f"benchmarks/others/{name}/results.md"
            text += [f"On another machine, an [{machine}]({page}): {_ahead(rows)}.", ""]
    return text


def _readme(rows: list[dict[str, Any]], about: dict[str, str]) -> None:
    """The table between the two marks, if they are there."""
    text = README.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        return
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    machine = ", ".join(about[n] for n in ("processor", "core") if n in about)
    versions = ", ".join(f"{k} {about[k]}" for k in ("torch", "jax", "python") if k in about)
    made = [
        BEGIN,
        "",
        "![training steps against PyTorch and JAX](benchmarks/steps.svg)",
        "",
        f"{_summary(rows)} Two threads each of an {machine}; {versions}.",
        "",
        table([_times(f) for f in rows]),
        "",
        *_elsewhere(),
        END,
    ]
    README.write_text(before + "\n".join(made) + after, encoding="utf-8")
