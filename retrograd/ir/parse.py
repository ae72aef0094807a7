"""Read a graph from its text: the inverse of `str(graph)`, for ops in the registry.

A recursive descent over words; nothing is evaluated. An error says the line, what stands
there and what was expected.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import exact
from retrograd.core.errors import ArgumentError, OpError
from retrograd.core.op import REGISTRY
from retrograd.core.spec import Spec
from retrograd.ir.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse"]

_DTYPES = {str(d): d for d in dt.ALL}
_NAMED = {"None": None, "True": True, "False": False}
_WORDS = re.compile(
    r"""(?P<space>\s+|\#.*)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<value>%\d+)
      | (?P<body>@[\w.]+)
      | (?P<number>0x[0-9a-f]+|-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf\b|nan\b))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>[()\[\],:=.])""",
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word of the text, its kind and its line."""

    kind: str
    text: str
    line: int


def parse(text: str) -> Graph:
    """The graph that is written so; lines and tags, which are comments, are not read."""
    reader = Reader(_words(text))
    graph = reader.graph()
    reader.take("end", "the end of the text")
    return graph


def _words(text: str) -> list[Word]:
    found, line = [], 0
    for line, row in enumerate(text.splitlines(), 1):
        at = 0
        while at < len(row):
            match = _WORDS.match(row, at)
            if match is None:
                raise _fault(Word("", row[at:].split()[0], line), "a word of a graph's text")
            if match.lastgroup != "space":
                found.append(Word(str(match.lastgroup), match.group(), line))
            at = match.end()
    return [*found, Word("end", "the end of the text", line)]


def _fault(word: Word, wanted: str) -> ArgumentError:
    shown = word.text if word.kind == "end" else repr(word.text)
    return ArgumentError(f"parse: line {word.line} has {shown}; expected {wanted}")


class Reader:
    """Words, and how far they have been read."""

    def __init__(self, words: list[Word]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> Word:
        """The word that comes next."""
        return self.words[self.at]

    def take(self, kind: str, wanted: str = "", text: str | None = None) -> str:
        """The next word, which must be of a kind, or a text."""
        if self.next.kind != kind or text not in (None, self.next.text):
            self.fail(wanted or repr(text))
        self.at += 1
        return self.words[self.at - 1].text

    def fail(self, wanted: str) -> NoReturn:
        """Say what stands here and what was expected."""
        raise _fault(self.next, wanted)

    def sign(self, text: str) -> None:
        """A sign that must stand here."""
        self.take("sign", text=text)

    def took(self, text: str) -> bool:
        """Whether a sign or word stood here; if so it is read."""
        found = self.next.text == text and self.next.kind in ("sign", "word")
        self.at += found
        return found

    def several(self, one: Callable[[], Any], end: str) -> list[Any]:
        """One after another with commas between, to a sign, which is read too."""
        found: list[Any] = []
        while not self.took(end):
            if found:
                self.sign(",")
                if self.took(end):  # (1,)
                    break
            found.append(one())
        return found

    # -- the grammar, from the outside in ------------------------------------------------

    def graph(self) -> Graph:
        """graph(%0: spec, ...): nodes, return %7, ..."""
        self.take("word", text="graph")
        self.sign("(")
        self.known: list[Spec] = []
        self.several(self.made, ")")
        self.sign(":")
        inputs, nodes = tuple(self.known), []
        while not self.took("return"):
            if self.next.kind != "value" and self.next.text != "(":
                self.fail("a node, or return")
            nodes.append(self.node())
        return Graph(inputs, tuple(nodes), self.uses())

    def made(self) -> Spec:
        """%3: spec, whose number is the next one."""
        number = f"%{len(self.known)}"
        self.take("value", f"{number}, the next value", number)
        self.sign(":")
        self.known.append(self.spec())
        return self.known[-1]

    def spec(self) -> Spec:
        """float32[2, 3]."""
        dtype = self.dtype()
        self.sign("[")
        return Spec(tuple(self.several(self.length, "]")), dtype)

    def length(self) -> int:
        """A length of an axis."""
        if not self.next.text.isdigit():
            self.fail("a length")
        return int(self.take("number", "a length"))

    def dtype(self) -> np.dtype:
        """The name of a dtype."""
        if self.next.text not in _DTYPES:
            self.fail("a dtype")
        return _DTYPES[self.take("word", "a dtype")]

    def uses(self) -> tuple[int, ...]:
        """%1, %2 on the line that is being read: none or several."""
        if self.next.kind != "value" or self.next.line != self.words[self.at - 1].line:
            return ()
        found = [self.use()]
        while self.took(","):
            found.append(self.use())
        return tuple(found)

    def use(self) -> int:
        """%1, a value made before."""
        if self.next.kind == "value" and int(self.next.text[1:]) >= len(self.known):
            self.fail(f"one of the {len(self.known)} values made before it")
        return int(self.take("value", "a value")[1:])

    def node(self) -> Node:
        """%4: spec, ... = Op(...) %1, %2, then the bodies of the op."""
        before, specs = len(self.known), []
        if self.took("("):
            self.sign(")")
            self.sign("=")
        else:
            specs = self.several(self.made, "=")
        known = self.known
        self.known = known[:before]  # a node does not use what it makes
        name = self.next
        given = self.fields()
        inputs = self.uses()
        found: dict[str, Graph] = {}
        while self.next.kind == "body":
            path = self.take("body")[1:]
            self.sign("=")
            found[path] = self.graph()
        self.known = known
        return Node(_op(name, given, found), inputs, tuple(specs))

    def fields(self) -> dict[str, Any]:
        """Op(name=value, ...)."""
        if self.next.text not in REGISTRY:
            self.fail("the name of a registered op")
        self.take("word")
        self.sign("(")
        return dict(self.several(self.field, ")"))

    def field(self) -> tuple[str, Any]:
        """name=value."""
        name = self.take("word", "the name of a field")
        self.sign("=")
        return name, self.value()

    def value(self) -> Any:
        """An option: number, string, name, tuple, dtype, exact array, ufunc, op or body."""
        word = self.next
        if word.kind == "number":
            return self.number()
        if word.kind == "string":
            return ast.literal_eval(self.take("string"))
        if word.kind == "body":
            return _Body(self.take("body")[1:])
        if self.took("("):
            return tuple(self.several(self.value, ")"))
        if word.text in _NAMED:
            return _NAMED[self.take("word")]
        if word.text in _DTYPES:
            return self.array_or_dtype()
        if self.took("np"):
            return self.ufunc()
        if word.text in REGISTRY:
            return _Inner(word, self.fields())
        return self.fail("a value: a number, string, tuple, dtype, body or op")

    def number(self) -> complex:
        """An integer, a float, or re:im."""
        real = _plain(self.take("number"))
        return complex(real, _plain(self.take("number"))) if self.took(":") else real

    def array_or_dtype(self) -> Any:
        """float32, float32[2] or float32[2](1.0, 2.0)."""
        if self.words[self.at + 1].text != "[":
            return self.dtype()
        word, spec = self.next, self.spec()
        if not self.took("("):
            return spec
        texts = self.several(self.element, ")")
        try:
            return exact.read(texts, spec)
        except (ValueError, KeyError, OverflowError) as error:
            raise _fault(word, f"elements of {spec}: {error}") from error

    def element(self) -> str:
        """A number of an array, or re:im."""
        kind = "word" if self.next.text in ("True", "False") else "number"
        text = self.take(kind, "a number")
        return f"{text}:{self.take('number', 'a number')}" if self.took(":") else text

    def ufunc(self) -> np.ufunc:
        """np.maximum."""
        self.sign(".")
        found = getattr(np, self.next.text, None)
        if not isinstance(found, np.ufunc):
            self.fail("the name of a NumPy ufunc")
        self.take("word", "the name of a NumPy ufunc")
        return found


class _Body(NamedTuple):
    """The name of a graph that is written below."""

    path: str


class _Inner(NamedTuple):
    """An op in a field of another, whose bodies are written below that."""

    name: Word
    given: dict[str, Any]


def _plain(text: str) -> Any:
    whole = text.lstrip("-").isdigit()
    return int(text) if whole else float(text)


def _op(name: Word, given: dict[str, Any], found: dict[str, Graph]) -> Any:
    """The op of that name, with its bodies put in their places."""
    try:
        return REGISTRY[name.text](**{n: _filled(v, found, name) for n, v in given.items()})
    except OpError as error:
        raise _fault(name, f"an op with its fields: {error.message}") from error


def _filled(value: Any, found: dict[str, Graph], name: Word) -> Any:
    if isinstance(value, _Body):
        if value.path not in found:
            raise _fault(name, f"its body @{value.path} on the lines below")
        return found[value.path]
    if isinstance(value, _Inner):
        return _op(value.name, value.given, found)
    return tuple(_filled(v, found, name) for v in value) if type(value) is tuple else value
