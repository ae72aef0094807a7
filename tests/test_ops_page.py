"""docs/ops.md is what the registry says, and docs/errors.md what the error classes say."""

import difflib
import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def generator(name="make_ops"):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_generator_gives():
    wanted = generator().page().splitlines()
    found = (DOCS / "ops.md").read_text(encoding="utf-8").splitlines()
    difference = list(difflib.unified_diff(found, wanted, "docs/ops.md", "registry", n=0))
    assert not difference, "\n".join(["make docs writes it anew:", *difference[:20]])


def test_every_op_is_on_the_page():
    make = generator()
    page = make.page()
    assert make.catalogue()
    assert all(f"\n### {cls.name}\n" in page for cls in make.catalogue())


def test_every_op_says_how_it_compiles():
    assert "nothing yet" not in generator().page()


def test_what_is_kept_is_read_from_the_rules():
    make = generator()
    from retrograd.ops.arithmetic import Divide, Multiply
    from retrograd.ops.reduce import Sum

    assert make.derivative(Multiply) == "Keeps `x2` for `x1`; `x1` for `x2`."
    assert make.derivative(Divide) == "Keeps `x2` for `x1`; `x2`, `out` for `x2`."
    assert make.derivative(Sum) == "Keeps the spec of `x`."


def test_formulas_survive_markdown():
    plain = generator().plain
    assert plain("x ** 2 and `x ** 2`") == r"x \*\* 2 and `x ** 2`"
    assert plain("-x.") == r"\-x."


def test_the_page_of_errors_is_what_the_docstrings_say():
    found = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert found == generator("make_errors").page(), "make docs writes it anew"


def test_the_picture_of_the_readme_is_what_the_tool_draws():
    found = (DOCS / "tape.svg").read_text(encoding="utf-8")
    assert found == generator("make_tape").picture(), "make docs draws it anew"
