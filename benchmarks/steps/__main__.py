"""Some rows, some peers: `python -m benchmarks.steps --rows a,c1 --peers ours,eager`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.steps.measure import ROUNDS, measure
from benchmarks.steps.peers import PEERS
from benchmarks.steps.rows import chosen

if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m benchmarks.steps")
    options.add_argument("--rows", default="", help="keys or letters, such as a,c1; all")
    options.add_argument("--peers", default=",".join(PEERS))
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--into", type=Path, required=True, help="a directory for JSON files")
    options.add_argument("--lock", default="", help="a file to lock while steps are timed")
    told = options.parse_args()
    rows = chosen(told.rows)
    measure(rows, told.into, peers=told.peers.split(","), rounds=told.rounds, lock=told.lock)
