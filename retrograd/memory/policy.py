"""What a checkpoint keeps: a name for each habit, or the labels of values."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from retrograd.core.errors import ArgumentError
from retrograd.core.op import Elementwise, Linear, Multilinear
from retrograd.core.replay import Region
from retrograd.core.spec import spec_of
from retrograd.memory.spill import SpillFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.replay import Cell, Step

__all__ = ["POLICIES", "Keeping", "Policy"]


def _dots(op: Any) -> bool:
    return isinstance(op, Multilinear)


def _dear(op: Any) -> bool:
    return not isinstance(op, (Elementwise, Linear))


POLICIES = {
    "everything": lambda op: True,  # keep all: as if there were no checkpoint
    "nothing": lambda op: False,  # keep only what comes in
    "dots": _dots,  # keep what matrix products and convolutions made
    "cheap": _dear,  # keep all but what is made element by element, or only moved
}


@dataclass(frozen=True)
class Policy:
    """Which results a checkpoint keeps in memory, and which it puts into a file."""

    habit: str = "nothing"
    names: frozenset[str] = frozenset()
    offload: frozenset[str] = frozenset()
    directory: str | None = None

    def __post_init__(self) -> None:
        if self.habit not in POLICIES:
            raise ArgumentError(
                f"checkpoint: policy {self.habit!r} is none of {', '.join(POLICIES)}",
                hint='rg.checkpoint(f, policy="dots")',
            )

    def keeps(self, op: Any) -> bool:
        """Whether an op's results stay."""
        label = getattr(op, "label", None)
        return label in self.names or POLICIES[self.habit](op)

    def files(self, op: Any) -> bool:
        """Whether an op's results go to a file."""
        return getattr(op, "label", None) in self.offload


class Keeping(Region):
    """A checkpoint's region that keeps what its policy says."""

    __slots__ = ("policy",)
    counts: ClassVar[bool] = False

    def __init__(self, outer: Region | None, policy: Policy) -> None:
        super().__init__(outer)
        self.policy = policy

    def entered(self, step: Step, cells: list[Cell], values: list[Any]) -> None:
        """Hold the values that stay; write those that go to a file."""
        super().entered(step, cells, values)
        if self.policy.keeps(step.op):
            step.values = list(values)
        elif self.policy.files(step.op):
            step.op = _Filed(step.op, values, self.policy.directory)
            step.inputs = []


class _Filed:
    """In place of an op whose values are in a file: to run it again is to read them."""

    draws = grows = False

    def __init__(self, op: Any, values: Sequence[Any], directory: str | None) -> None:
        self.name, self.bodied, self.effect = op.name, True, ""
        self.specs = [spec_of(v) for v in values]
        total = sum(s.nbytes for s in self.specs)
        self.file = SpillFile(directory or tempfile.gettempdir(), total)
        at = 0
        for v in values:
            whole = np.ascontiguousarray(v)
            self.file.write(whole.ctypes.data, whole.nbytes, at)
            at += whole.nbytes

    def shape(self) -> Any:
        """What is in the file."""
        return tuple(self.specs)

    def workspace(self) -> int:
        """Nothing."""
        return 0

    def forward(self) -> tuple[Any, ...]:
        """The values, read."""
        at, found = 0, []
        for s in self.specs:
            whole = np.empty(s.shape, s.dtype)
            self.file.read(whole.ctypes.data, whole.nbytes, at)
            at += whole.nbytes
            found.append(whole)
        return tuple(found)
