"""Substitution for one column at a time: the matrix is read once, where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val
from retrograd.jit.llvm.triangle_tile import BACK

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["write_column"]

TURNS = 4  # vectors of a sum at once


def write_column(
    module: Module, t: Type, n: int, order: int, *, across: bool, unit: bool
) -> str:
    """(p, x): solve for the dense vector x, in place; the name of a function.

    With p a matrix [n][n]: its rows are multiplied with x, or its columns if `across`.
    """
    name = f"triangle_column_{t.suffix}_{n}_{order % 3}{across:d}{unit:d}"
    return module.once(name, lambda: _write(module, name, (t, n), (order, across, unit)))


def _write(
    module: Module, name: str, shape: tuple[Type, int], kind: tuple[int, bool, bool]
) -> None:
    (t, n), (order, across, unit) = shape, kind
    f = Fn(module, name, [("p", PTR), ("x", PTR)], attributes="nounwind noinline")
    down = order == BACK
    with f.loop(0, n, down=down) as loop:
        row = f.at(f.arg("p"), f.times(loop.i, n), t)
        here = f.at(f.arg("x"), loop.i, t)
        others = (0, loop.i) if across == down else (f.plus(loop.i, 1), n)
        x = f.load(t, here)
        if not across:
            x = f.sub(x, _dot(f, t, row, others))
        if not unit:
            x = f.div(x, f.load(t, f.at(row, loop.i, t)))
        f.store(x, here)
        if across:
            _take_off(f, t, row, x, others)
    f.done()


def _dot(f: Fn, t: Type, row: Val, others: tuple[Int, Int]) -> Val:
    """The sum of products of a row and the part of x that is known."""
    lanes = f.machine.lanes(t.bits // 8)
    low, high = map(f.integer, others)
    count = f.sub(high, low)
    row, x = f.at(row, low, t), f.at(f.arg("x"), low, t)

    def more(many: int, lane: int) -> Callable[[Val, list[Val]], list[Val]]:
        def step(i: Val, sums: list[Val]) -> list[Val]:
            spots = [f.plus(i, v * max(lane, 1)) for v in range(many)]
            pairs = [[f.load(t.by(lane), f.at(y, at, t)) for y in (row, x)] for at in spots]
            return [f.fma(a, b, s) for (a, b), s in zip(pairs, sums, strict=True)]

        return step

    end = _whole(f, count, TURNS * lanes)
    sums = [f.zero(t.by(lanes))] * TURNS
    sums = _over(f, (0, end), TURNS * lanes, sums, more(TURNS, lanes))
    wide = f.add(f.add(sums[0], sums[1]), f.add(sums[2], sums[3]))
    last = _whole(f, count, lanes)
    (wide,) = _over(f, (end, last), lanes, [wide], more(1, lanes))
    (total,) = _over(f, (last, count), 1, [f.fold("add", wide)], more(1, 0))
    return total


def _take_off(f: Fn, t: Type, row: Val, x: Val, others: tuple[Int, Int]) -> None:
    """From what is not known yet, a row times what is known now."""
    lanes = f.machine.lanes(t.bits // 8)
    low, high = map(f.integer, others)
    count, by = f.sub(high, low), f.neg(x)
    row, rest = f.at(row, low, t), f.at(f.arg("x"), low, t)

    def less(lane: int) -> Callable[[Val, list[Val]], list[Val]]:
        wide, kind = f.splat(by, lane), t.by(lane)

        def step(i: Val, _: list[Val]) -> list[Val]:
            at = f.at(rest, i, t)
            f.store(f.fma(wide, f.load(kind, f.at(row, i, t)), f.load(kind, at)), at)
            return []

        return step

    end = _whole(f, count, lanes)
    _over(f, (0, end), lanes, [], less(lanes))
    _over(f, (end, count), 1, [], less(0))


def _whole(f: Fn, count: Val, by: int) -> Val:
    """The largest multiple of a power of two that is not more."""
    return f.bitwise("and", count, f.const(I64, -by))


def _over(
    f: Fn, bounds: tuple[Int, Int], step: int, carry: list[Val], turn: Callable[..., list[Val]]
) -> list[Val]:
    """A loop, and what it carries."""
    with f.loop(*bounds, step, carry=carry) as loop:
        loop.next = turn(loop.i, loop.carry)
    return loop.results
