"""The user's line, kept as a code object and an offset, resolved only when shown."""

from __future__ import annotations

import linecache
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from retrograd.core.sources import INTERNAL

if TYPE_CHECKING:
    from types import CodeType, FrameType


class Where(NamedTuple):
    """A place in the user's program."""

    code: CodeType
    offset: int

    @property
    def file(self) -> str:
        """The base name of the file."""
        return os.path.basename(self.code.co_filename)

    @property
    def line(self) -> int:
        """The line number, from 1."""
        for start, stop, line in self.code.co_lines():
            if start <= self.offset < stop and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def text(self) -> str:
        """The source text of that line, stripped."""
        return linecache.getline(self.code.co_filename, self.line).strip()

    def __str__(self) -> str:
        """`file:line    source`, as errors show it."""
        return f"{self.file}:{self.line}    {self.text}".rstrip()


# While a graph is run or written again: the line that its present node was made for.
retold: ContextVar[Where | None] = ContextVar("retold", default=None)


def here(depth: int = 1) -> Where | None:
    """The innermost frame, `depth` calls up or more, that is outside the package."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename in INTERNAL:
        frame = frame.f_back
    return None if frame is None else Where(frame.f_code, frame.f_lasti)
