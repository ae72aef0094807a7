"""Loops that turn at least once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn, Loop
from retrograd.jit.llvm.text import I64, Int, Val

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["repeat"]


@contextmanager
def repeat(f: Fn, count: Int, carry: Sequence[Val] = (), step: int = 1) -> Iterator[Loop]:
    """f.loop(0, count, step), where count is at least 1.

    The test comes last, so that what the last turn made goes on in the same registers: loops
    with many sums, one after another, are then free of copies between them.
    """
    body, after = f._label("body"), f._label("after")
    before, i = f.block, Val(f"%{body}i", I64)
    held = [Val(f"%{body}c{n}", c.type) for n, c in enumerate(carry)]
    f.emit(f"br label %{body}")
    f.start(body)
    spot = len(f.lines)
    loop = Loop(i, list(held))
    yield loop
    last = f.block
    on = f.make(I64, f"add nsw {i}, {step}")
    going = f.compare("slt", on, f.integer(count))
    f.emit(f"br i1 {going.ref}, label %{body}, label %{after}")
    phis = [f"  {i.ref} = phi i64 [ 0, %{before} ], [ {on.ref}, %{last} ]"]
    for was, h, now in zip(carry, held, loop.next, strict=True):
        text = f"phi {h.type.text} [ {was.ref}, %{before} ], [ {now.ref}, %{last} ]"
        phis.append(f"  {h.ref} = {text}")
    f.lines[spot:spot] = phis
    f.start(after)
    loop.results = list(loop.next)
