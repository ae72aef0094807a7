"""Functions written for one signature, as `dataclasses` writes an `__init__`.

The one place where text becomes code. It is text of our own: names, whole numbers, brackets.
What comes from outside (keys of dicts, shapes, classes) is in the scope, and has a name there;
a text that holds anything else is refused.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

from retrograd.jit.heap import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Scope", "function"]

_LONG = 1 << 13  # characters: Python's compiler takes a hundred bytes and more for each


class Scope(dict[str, Any]):
    """What a text refers to, by name."""

    def name(self, value: Any) -> str:
        """A name for a value."""
        name = f"k{len(self)}"
        self[name] = value
        return name


def function(
    arguments: Sequence[str], lines: Sequence[str], scope: Scope
) -> Callable[..., Any]:
    """The function with these lines; what it refers to is in the scope."""
    text = "\n".join([f"def f({', '.join(arguments)}):", *(f" {line}" for line in lines)])
    code = compile(text, "<straight>", "exec")
    if len(text) > _LONG:
        give_back()
    _check(code)
    known = dict(scope)  # Python looks names up fast in a plain dict alone
    exec(code, known)  # noqa: S102  see the head of this file
    return known["f"]


def _check(value: Any) -> None:
    """Refuse what our texts do not hold. Of the code: a tree of a long text takes megabytes."""
    if isinstance(value, CodeType | tuple):
        for inner in value.co_consts if isinstance(value, CodeType) else value:
            _check(inner)
    elif not isinstance(value, int | None):
        raise AssertionError(f"a function of our own holds {value!r}")
