"""Measure and write the tables: `make bench`, or `python -m benchmarks.run`.

    python -m benchmarks.run --only steps --rows a,c1 --rounds 20
    python -m benchmarks.run --only micro,heavy --named softmax     these rows anew, others stay
    python -m benchmarks.run --only tables        nothing is measured, pages are written anew
    python -m benchmarks.run --other avx2         of another machine: `others/avx2`, no README

What was found is written to `results/` at once, a file for each subject and each training step,
so that a run which is stopped loses nothing; tables and the picture are made of these files.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from typing import Any

from benchmarks import pages
from benchmarks.machine import machine
from benchmarks.steps.measure import ROUNDS, measure
from benchmarks.steps.peers import PEERS
from benchmarks.steps.rows import chosen

NAMED = ("micro", "heavy")  # whose rows have names
SUBJECTS = ("tiny", "imports", "steps", "micro", "growth", "heavy", "budgets")
SHOWN = ("budgets",)  # only of the machine that the README shows


def options() -> argparse.Namespace:
    """What the command line says."""
    given = argparse.ArgumentParser(prog="python -m benchmarks.run")
    given.add_argument("--only", default="", help=f"of {', '.join(SUBJECTS)}, tables; all")
    given.add_argument("--rows", default="", help="training steps, such as a,c1; all")
    given.add_argument("--named", default="", help="rows of micro and heavy that hold it; all")
    given.add_argument("--peers", default=",".join(PEERS), help="of the training steps")
    given.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each peer in a row")
    given.add_argument("--other", default="", help="a machine that the README does not show")
    given.add_argument("--lock", default="", help="a file to lock while steps are timed")
    return given.parse_args()


def main() -> None:
    """Measure what was asked for, then write the pages."""
    told = options()
    subjects = [s for s in SUBJECTS if not told.other or s not in SHOWN]
    only = told.only.split(",") if told.only else subjects
    if missing := set(only) - {*subjects, "tables"}:
        raise SystemExit(f"no subject {', '.join(missing)}; there are {', '.join(subjects)}")
    results = pages.Results.of(told.other)
    some = bool(told.rows or told.named)  # the rest is of the code that was measured before
    if only != ["tables"] and not (some and results.load("machine")):
        results.save("machine", machine())
    for name in (s for s in subjects if s in only):
        begin = time.perf_counter()
        print(f"-- {name}", flush=True)
        if name == "steps":
            peers = told.peers.split(",")
            into = results.where / "steps"
            measure(chosen(told.rows), into, peers=peers, rounds=told.rounds, lock=told.lock)
        else:
            subject = import_module(f"benchmarks.{name}")
            title = (subject.__doc__ or name).strip().split("\n\n")
            found = subject.measure(told.named) if name in NAMED else subject.measure()
            before = results.load(name) if told.named and name in NAMED else None
            found = _merged(before["tables"][""], found) if before else found
            results.save(name, {"about": title, "tables": _tables(found)})
        print(f"-- {name}: {time.perf_counter() - begin:.0f} s", flush=True)
    pages.write(results)


def _merged(rows: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what was found anew in their places, by the first cell."""
    anew = {next(iter(r.values())): r for r in new}
    return [anew.get(next(iter(r.values())), r) for r in rows]


def _tables(found: object) -> dict[str, object]:
    return found if isinstance(found, dict) else {"": found}


if __name__ == "__main__":
    main()
