"""Write docs/errors.md from the docstrings of retrograd/core/errors.py (make docs)."""

import inspect
import sys
from pathlib import Path

from retrograd.core import errors

PAGE = Path(__file__).resolve().with_name("errors.md")

HEAD = """\
# Errors

Made from `retrograd/core/errors.py` by `make docs`; a test holds this page to it, and the
examples run in the tests. Each class is also the built-in error that fits, so that
`except ValueError` works as ever.

"""


def page() -> str:
    """The whole page."""
    first, drawing, rest = inspect.cleandoc(errors.__doc__).split("\n\n", 2)
    head = f"{HEAD}{first}\n\n```text\n{inspect.cleandoc(drawing)}\n```\n\n{rest}\n"
    return head + "".join(map(entry, classes()))


def classes() -> list[type]:
    """The error classes, in the order of the file."""
    found = [c for c in vars(errors).values() if inspect.isclass(c)]
    return [c for c in found if issubclass(c, Exception) and c.__module__ == errors.__name__]


def entry(cls: type) -> str:
    """One class: what it means, and a program that meets it."""
    words, prompt, example = inspect.cleandoc(cls.__doc__).partition(">>> ")
    text = f"\n## {cls.__name__}\n\n{words.strip()}\n"
    return f"{text}\n```pycon\n{prompt}{example.strip()}\n```\n" if example else text


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print("wrote docs/errors.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
