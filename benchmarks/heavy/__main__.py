"""The rows whose name holds a word: `python -m benchmarks.heavy conv`."""

from __future__ import annotations

import sys

from benchmarks.heavy import measure

if __name__ == "__main__":
    measure(" ".join(sys.argv[1:]))
