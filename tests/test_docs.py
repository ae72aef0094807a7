"""Every code block of the README and docs/ runs, and so do the examples in docstrings.

The ```python blocks of one page share a namespace and run in order. A block that follows the
comment `<!-- no-run -->` is left out. Where an expression ends in `# -> text`, its repr must
be that text; if it is None, what it printed; if it raised, `ErrorClass: message`. As in
doctests, `...` stands for anything and white space does not matter.
"""

import ast
import contextlib
import doctest
import importlib
import io
import re
import sys
import tokenize
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SKIP = re.compile(r"<!-- no-run -->\s*\Z")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """One piece of code: its text, and the line of the page before its first."""

    code: str
    line: int


def blocks(text):
    for match in BLOCK.finditer(text):
        if not SKIP.search(text, 0, match.start()):
            yield Block(match[1], text.count("\n", 0, match.start(1)))


def claims(code):
    """The `# -> text` comments of a block: line number to text."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
    return {n: s[1:].strip()[2:].strip() for n, s in comments if re.match(r"#\s*->", s)}


def run(block, page, namespace):
    """Run a block, statement by statement, and compare what it claims."""
    pending = claims(block.code)
    for statement in ast.parse(block.code).body:
        claim = pending.pop(statement.end_lineno, None)
        ast.increment_lineno(statement, block.line)
        if claim is not None and isinstance(statement, ast.Expr):
            got = outcome(statement.value, page, namespace)
            place = f"{page.name}:{statement.end_lineno}"
            agree = doctest.OutputChecker().check_output(f"{claim}\n", f"{got}\n", FLAGS)
            assert agree, f"{place}\n  says {claim}\n  gave {got}"
        else:
            assert claim is None, (
                f"{page.name}:{statement.end_lineno}: `# ->` needs an expression"
            )
            exec(compile(ast.Module([statement], []), str(page), "exec"), namespace)
    assert not pending, (
        f"{page.name}: `# ->` inside a statement, line {block.line + min(pending)}"
    )


def outcome(expression, page, namespace):
    """The repr of a value; or what it printed; or the error it raised."""
    printed = io.StringIO()
    code = compile(ast.Expression(expression), str(page), "eval")
    try:
        with contextlib.redirect_stdout(printed):
            value = eval(code, namespace)
    except Exception as error:  # noqa: BLE001 - the page may claim any of them
        return f"{type(error).__name__}: {error}"
    return printed.getvalue().strip() if value is None and printed.getvalue() else repr(value)


@contextlib.contextmanager
def namespace_of(page):
    """A module for the page; the ops it registers are forgotten afterwards."""
    op = importlib.import_module("retrograd.core.op")
    before = dict(op.REGISTRY)
    module = ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module
    try:
        yield vars(module)
    finally:
        del sys.modules[module.__name__]
        # a page may be the first to load one of our rooms: its ops stay
        ours = {n: c for n, c in op.REGISTRY.items() if c.__module__.startswith("retrograd.")}
        op.REGISTRY.clear()
        op.REGISTRY.update({**ours, **before})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with namespace_of(page) as namespace:
        for block in blocks(page.read_text(encoding="utf-8")):
            run(block, page, namespace)


def modules_with_examples():
    for path in sorted((ROOT / "retrograd").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_docstrings(name, tmp_path, monkeypatch):
    """`rg` and `np` are there; the rest an example imports itself."""
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    extra = {"rg": importlib.import_module("retrograd"), "np": np}
    report = io.StringIO()
    with namespace_of(Path(name)):
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        for test in doctest.DocTestFinder().find(module, extraglobs=extra):
            runner.run(test, out=report.write)
    assert runner.tries, f"{name}: its `>>>` lines are in no docstring"
    assert not runner.failures, report.getvalue()


# -- and the tests of these tests ----------------------------------------------------------


def page_with(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def run_text(tmp_path, text):
    page = page_with(tmp_path, text)
    namespace = {}
    for block in blocks(text):
        run(block, page, namespace)
    return namespace


def test_blocks_share_a_namespace_and_claims_hold(tmp_path):
    text = (
        "```python\nx = 1\n```\n\ntext\n\n```python\nx + 1  # -> 2\nprint('a')  # -> a\n```\n"
    )
    assert run_text(tmp_path, text)["x"] == 1


def test_errors_may_be_claimed(tmp_path):
    run_text(tmp_path, "```python\n1 / 0  # -> ZeroDivisionError: ...\n```\n")


def test_a_block_may_be_left_out(tmp_path):
    run_text(tmp_path, "<!-- no-run -->\n\n```python\nraise SystemExit\n```\n")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("1 + 1  # -> 3", "says 3"),
        ("x = 2  # -> 2", "needs an expression"),
        ("for i in range(1):\n    i  # -> 0\n    i", "inside a statement"),
    ],
)
def test_a_false_claim_is_found(tmp_path, code, sentence):
    with pytest.raises(AssertionError, match=re.escape(sentence)):
        run_text(tmp_path, f"```python\n{code}\n```\n")
