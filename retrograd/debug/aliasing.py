"""aliasing(): tells whether memory that a later backward needs was changed from outside.

Tensors share memory with the world only where the user asked for it: imports with
`copy=False`, and exports by DLPack. Inside this block every array that passes through an op
is summed up (a checksum), and looked at again when a rule is about to use it.
"""

from __future__ import annotations

import weakref
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import AliasError
from retrograd.core.interpret import Interpreter, Watcher, current, using
from retrograd.core.tape import next_order
from retrograd.core.tensor import Box, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.core.op import Op
    from retrograd.core.tape import Node


class Witness(Watcher):
    """Remembers the checksum of every array that an op read or made."""

    def __init__(self, outer: Interpreter, seen: dict[int, Any]) -> None:
        super().__init__(outer)
        self.seen = seen
        self.witness = self

    def above(self, outer: Interpreter) -> Witness:
        """This watcher, standing on another level."""
        return Witness(outer, self.seen)

    def look(self, op: Op, args: Sequence[Any], out: Any) -> None:
        """Remember what went in and what came out."""
        for x in (*args, *(out if isinstance(out, tuple) else (out,))):
            if isinstance(x, Tensor) and not isinstance(x, Box):
                self._remember(x.array)

    def _remember(self, array: np.ndarray) -> None:
        known, now = self.seen.get(id(array)), _checksum(array)
        if known is None or known[0]() is not array:
            self.seen[id(array)] = (weakref.ref(array), [(next_order(), now)])
        elif known[1][-1][1] != now:
            known[1].append((next_order(), now))  # changed, and read again by a later op

    def check(self, node: Node) -> None:
        """Raise if something that the node kept is not what it was."""
        for array in _arrays(node.kept):
            known = self.seen.get(id(array))
            if known is None or known[0]() is not array:
                continue
            if _checksum(array) not in _around(known[1], node.order):
                raise AliasError(
                    f"{node.op.name if node.op else 'leaf'}: a kept value of shape "
                    f"{array.shape} was changed after it was recorded; its gradient would be "
                    f"wrong",
                    at=node.where,
                    hint="rg.asarray(x) to copy; copy=False is for memory nobody writes to",
                )


def _around(versions: list[tuple[int, int]], order: int) -> list[int]:
    """What an array was when a node was made: the last seen before it, the first after.

    Orders fall with time. A tape that watches from above makes its node after the op ran.
    """
    before = [crc for at, crc in versions if at > order]
    after = [crc for at, crc in versions if at <= order]
    return [*before[-1:], *after[:1]]


def _arrays(kept: Any) -> list[np.ndarray]:
    if isinstance(kept, (tuple, list)):
        return [a for k in kept for a in _arrays(k)]
    if isinstance(kept, np.ndarray):
        return [kept]
    if isinstance(kept, Tensor) and not isinstance(kept, Box) and kept._data is not None:
        return [kept._data]
    return []


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)


@contextmanager
def aliasing() -> Iterator[None]:
    """While the block runs, a kept value that changed raises AliasError when it is used."""
    with using(Witness(current.get(), {})):
        yield
