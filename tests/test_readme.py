"""What the README and the pages of docs/ point at is there, and as long as they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FLAGS = re.MULTILINE | re.DOTALL
NEAR = 50  # lines: the README rounds to fifty


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=FLAGS)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [li for li in links if "://" not in li and not (page.parent / li).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page):
    """`core/op.py` and the like, wherever they are mentioned as files that are there."""
    if page.name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        pytest.skip("it names files that may be or were")
    text = page.read_text(encoding="utf-8")
    homes = (ROOT, ROOT / "retrograd", page.parent)
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:py|md))`", text))
    assert not [n for n in named if not any((home / n).exists() for home in homes)]


def test_the_reading_guide_says_how_long_its_files_are():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.+?\]\((.+?\.py)\) \| (\d+) \|", text, re.MULTILINE)
    assert len(rows) == 5
    for name, said in rows:
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        assert abs(lines - int(said)) <= NEAR, (
            f"{name} has {lines} lines, the README says {said}"
        )


def test_the_commands_of_the_readme_are_in_the_makefile():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rules = re.findall(
        r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    said = set(re.findall(r"\bmake ([\w-]+)(?=`|\s+#)", text))
    assert {"demo", "test", "bench"} <= said
    assert said <= set(rules)
