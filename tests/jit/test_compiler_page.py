"""docs/compiler.md names every environment variable, with the default that holds."""

import re
from pathlib import Path

from retrograd.jit import threads
from retrograd.jit.llvm import cache

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
READ = re.compile(r"""environ(?:\.get\(|\[)\s*["'](\w+)["']""")


def read_by(folder):
    """The variables that the files of a folder ask for."""
    files = (ROOT / folder).rglob("*.py")
    return {name for f in files for name in READ.findall(f.read_text(encoding="utf-8"))}


def test_every_variable_is_on_the_page():
    asked = read_by("retrograd") | {n for n in read_by("tests") if n.startswith("RETROGRAD_")}
    assert asked
    assert asked == set(ROWS)


def test_defaults_are_those_of_the_code(monkeypatch):
    for name in ROWS:
        monkeypatch.delenv(name, raising=False)
    assert ROWS["RETROGRAD_CACHE_SIZE"] == "`1 GiB`"
    assert cache.limit() == 1 << 30
    few, many = threads.spin(1), threads.spin(threads.MAX_THREADS)
    assert ROWS["RETROGRAD_SPIN"] == f"{few:g}; {many:g} with more threads than CPUs"
