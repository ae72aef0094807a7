"""The kernels of pair sums: a function of all distances, summed while they are in registers.

Lanes are points of one set, their own; the points of the other set come by, some at a time. So
no distance is ever in memory, and each own point's sums are made in one order. A pull-back is
the same walk: once for each set, or once for both where they are one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.formula import Formula
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Int, Type, Val

__all__ = ["PairPullKernels", "PairSumKernels"]

BLOCK = 256  # points that are summed apart: long sums lose fewer places
DEEP = 1024  # coordinates, at most
# Coordinates that are code each: their places are then constants. With an index beside, older
# Intel processors take a number of memory in as an instruction of its own.
FEW = 32
PULLED = 5  # other points whose differences, which a pull-back uses twice, may stay near


@lru_cache(maxsize=256)
def _formula(op: Any, kind: str) -> Formula | None:
    """The function of a distance, or with its slope, as numbers in registers."""
    return Formula.of(op.body if kind == "sum" else op.slopes())


def _covered(op: Any, specs: Sequence[Spec], kind: str) -> bool:
    """Whether f is arithmetic of the distance alone, and there is one weight for a point."""
    first = kind == "pull"
    x, w = specs[first], specs[2 - op.within + first]
    return (
        len(specs) == 3 - op.within + first
        and w.shape[1] == 1
        and 0 < x.shape[1] <= DEEP
        and x.size > 0
        and w.size > 0
        and _formula(op, kind) is not None
    )


class PairSumKernels(Kernels):
    """The sums of each point x."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Functions of the distance alone."""
        return super().takes(op, specs) and _covered(op, specs, "sum")

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One walk: x, y where it is another set, w; the sums."""
        points = specs[0].shape[0], specs[-1].shape[0]
        f = Fn(self.writer.module, name, ARGUMENTS)
        info = Walk(f, op, "sum", points, specs[0].shape[1], t).write((0,))
        x, y, w, out = (0, 0, 1, 2) if op.within else (0, 1, 2, 3)
        self.launches = [(info, (x, y, w, out))]


class PairPullKernels(Kernels):
    """The sums, and the cotangents of points and weights."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Functions of the distance alone."""
        return super().takes(op, specs) and _covered(op, specs, "pull")

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One walk, or one for each set: g, x, y where it is another set, w; the outputs."""
        points, depth = (specs[0].shape[0], specs[-1].shape[0]), specs[1].shape[1]
        module = self.writer.module
        if op.within:
            g, x, w, sums, gx, gw = range(6)
            totals = {0: sums, 1: gw}
            read = tuple(n for n, out in totals.items() if out - 3 not in self.unread)
            walk = Walk(Fn(module, name, ARGUMENTS), op, "pull", points, depth, t, factors=2)
            numbers = (x, x, g, w, w, g, gx, *(totals[n] for n in read))
            self.launches = [(walk.write(read), numbers)]
            return
        g, x, y, w, sums, gx, gy, gw = range(8)
        for part, ends, numbers, total in (
            ("rows", points, (x, y, g, w, gx), sums),
            ("columns", points[::-1], (y, x, w, g, gy), gw),
        ):
            read = () if total - 4 in self.unread else (0,)
            walk = Walk(Fn(module, f"{name}_{part}", ARGUMENTS), op, "pull", ends, depth, t)
            self.launches.append((walk.write(read), (*numbers, *(total for _ in read))))


class Walk:
    """Own points in lanes, to which all other points come.

    A pair has a weight: the sum over factors of the own point's times the other's. The results
    are, of each own point, sums of f times one of the other's factors, and the pull-back of all
    its pairs by their weights.
    """

    def __init__(
        self,
        f: Fn,
        op: Any,
        kind: str,
        points: tuple[int, int],
        depth: int,
        t: Type,
        factors: int = 1,
    ) -> None:
        formula = _formula(op, kind)
        assert formula is not None
        self.f, self.formula, self.pulls = f, formula, kind == "pull"
        self.root, self.others = op.root, op.others
        (self.own, self.other), self.depth, self.type = points, depth, t
        self.lanes = f.machine.lanes(t.bits // 8)
        self.wide = t.by(self.lanes)
        many = max(2, f.machine.registers // 4)
        self.abreast = min(PULLED, many) if self.pulls else many  # other points at a time
        self.factors = factors
        row = depth * self.lanes  # coordinates of the own points
        self.scratch = 3 * row * t.bits // 8
        # their places; the cotangents so far; those of a block
        self.here, self.acc, self.part = (f.at(f.arg("scratch"), n * row, t) for n in range(3))

    def write(self, totals: Sequence[int]) -> KernelInfo:
        """The kernel; `totals` are the sums that are asked for, by the number of a factor.

        Buffers: own and other points; pulling, the own factors; the other factors; pulling, the
        own points' cotangents; the sums.
        """
        f, self.totals = self.f, totals
        mine = self.factors if self.pulls else 0
        many = 2 + mine + self.factors + self.pulls + len(totals)
        own, self.points, *rest = pointers(f, many)
        self.theirs, outs = rest[mine : mine + self.factors], rest[mine + self.factors :]
        blocks = -(-self.own // self.lanes)
        work = (3 + 3 * self.pulls) * self.depth + self.formula.work
        flops = self.own * self.other * work
        chunks = chunk_count(blocks, flops)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, blocks)
        with f.loop(low, high) as loop:
            self.first = f.integer(f.times(loop.i, self.lanes))
            self._settle(own)
            self.weights = [self._vector(m) for m in rest[:mine]]
            self._leave(outs, self._all())
        f.done()
        moved = (self.own + self.other) * (self.depth + 1) * self.type.bits // 8
        return KernelInfo(f.name, chunks, self.scratch, flops, moved)

    # -- the own points --------------------------------------------------------------------

    def _settle(self, own: Val) -> None:
        """The own points by coordinates; lanes beyond the last point hold the last one."""
        f, t = self.f, self.type
        for lane in range(self.lanes):
            since = f.at(own, f.times(self._point(lane), self.depth), t)
            with f.loop(0, self.depth) as k:
                x = f.load(t, f.at(since, k.i, t))
                f.store(x, f.at(self.here, f.plus(f.times(k.i, self.lanes), lane), t))

    def _point(self, lane: int) -> Int:
        return self.f.lesser(self.f.plus(self.first, lane), self.own - 1)

    def _vector(self, numbers: Val) -> Val:
        """A number for each own point."""
        f, t = self.f, self.type
        for lane in range(self.lanes):
            f.store(f.load(t, f.at(numbers, self._point(lane), t)), f.at(self.part, lane, t))
        return f.load(self.wide, self.part)

    def _leave(self, outs: Sequence[Val], found: Sequence[Val]) -> None:
        """Write the results of the own points."""
        f, t = self.f, self.type
        many = f.lesser(self.lanes, f.sub(f.integer(self.own), self.first))
        if self.pulls:
            with f.loop(0, many) as lane:
                to = f.at(outs[0], f.times(f.plus(self.first, lane.i), self.depth), t)
                with f.loop(0, self.depth) as k:
                    at = f.plus(f.times(k.i, self.lanes), lane.i)
                    f.store(f.load(t, f.at(self.acc, at, t)), f.at(to, k.i, t))
        for x, out in zip(found, outs[self.pulls :], strict=True):
            f.store(x, self.part)
            with f.loop(0, many) as lane:
                one = f.load(t, f.at(self.part, lane.i, t))
                f.store(one, f.at(out, f.plus(self.first, lane.i), t))

    # -- the other points ------------------------------------------------------------------

    def _all(self) -> list[Val]:
        """All others, block after block: the sums. Cotangents are added up in memory."""
        f = self.f
        zero = [f.zero(self.wide)] * len(self.totals)
        self._each(lambda acc, part: f.store(f.zero(self.wide), acc))
        with f.loop(0, self.other, BLOCK, carry=zero) as block:
            self._each(lambda acc, part: f.store(f.zero(self.wide), part))
            end = f.integer(f.lesser(f.plus(block.i, BLOCK), self.other))
            at, sums = block.i, zero
            for many in (self.abreast, 1):
                whole = f.mul(f.div(f.sub(end, at), f.integer(many)), f.integer(many))
                until = f.add(at, whole)
                with f.loop(at, until, many, carry=sums) as loop:
                    loop.next = self._some(loop.i, many, loop.carry)
                at, sums = until, loop.results
            block.next = [f.add(a, b) for a, b in zip(block.carry, sums, strict=True)]
            self._each(self._add)
        return block.results

    def _each(self, do: Callable[[Val, Val], None]) -> None:
        """For each coordinate: where its cotangents are, all and those of a block."""
        f = self.f
        if self.pulls:
            with f.loop(0, self.depth) as k:
                row = f.times(k.i, self.lanes)
                do(f.at(self.acc, row, self.type), f.at(self.part, row, self.type))

    def _add(self, acc: Val, part: Val) -> None:
        f = self.f
        f.store(f.add(f.load(self.wide, acc), f.load(self.wide, part)), acc)

    def _some(self, at: Val, many: int, sums: Sequence[Val]) -> list[Val]:
        """Some others: the sums with theirs in it."""
        f, found, slopes = self.f, list(sums), []
        points = f.at(self.points, f.times(at, self.depth), self.type)
        for u, far in enumerate(self._far(points, many)):
            spot = f.integer(f.plus(at, u))
            theirs = [
                f.splat(f.load(self.type, f.at(p, spot, self.type)), self.lanes)
                for p in self.theirs
            ]
            value, slope = self._pair(far, spot, theirs)
            for n, total in enumerate(self.totals):
                found[n] = f.fma(value, theirs[total], found[n])
            slopes.append(slope)
        if self.pulls:
            self._pull(points, slopes)
        return found

    def _far(self, points: Val, many: int) -> list[Val]:
        """The squared distances of the own points and some others."""
        f = self.f

        def more(k: Int, far: Sequence[Val]) -> list[Val]:
            apart = self._apart(points, k, many)
            return [f.fma(a, a, so_far) for a, so_far in zip(apart, far, strict=True)]

        return self._by_coordinate(more, [f.zero(self.wide)] * many)

    def _by_coordinate(
        self, do: Callable[[Int, Sequence[Val]], list[Val]], carry: Sequence[Val] = ()
    ) -> list[Val]:
        """Do it for each coordinate, with what the one before left."""
        if self.depth <= FEW:
            for n in range(self.depth):
                carry = do(n, carry)
            return list(carry)
        with self.f.loop(0, self.depth, carry=carry) as k:
            k.next = do(k.i, k.carry)
        return k.results

    def _apart(self, points: Val, k: Int, many: int) -> list[Val]:
        """The own points' coordinate less that of some others."""
        f, t = self.f, self.type
        mine = f.load(self.wide, f.at(self.here, f.times(k, self.lanes), t))
        spot = f.at(points, k, t)
        others = [f.load(t, f.at(spot, u * self.depth, t)) for u in range(many)]
        return [f.sub(mine, f.splat(x, self.lanes)) for x in others]

    def _pair(self, far: Val, spot: Val, theirs: Sequence[Val]) -> tuple[Any, Any]:
        """f of the distance if a sum asks for it; what to weigh the difference by."""
        f, wide, apart = self.f, self.wide, None
        if self.others:
            mine = f.add(f.splat(self.first, self.lanes), f.iota(I64.by(self.lanes)))
            apart = f.compare("ne", mine, f.splat(spot, self.lanes))
            far = f.select(apart, far, f.const(wide, 1))  # nothing is divided by zero
        far = f.intrinsic("sqrt", far) if self.root else far
        if not self.pulls:
            (value,) = self.formula(f, [far], (0,))
            return self._kept(apart, value), None
        blame = f.mul(self.weights[0], theirs[0])
        for a, b in zip(self.weights[1:], theirs[1:], strict=True):
            blame = f.fma(a, b, blame)
        *values, slope = self.formula(f, [far, blame], (0, 1) if self.totals else (1,))
        if self.root:
            zero = f.compare("oeq", far, f.zero(wide))
            slope = f.select(zero, f.zero(wide), f.div(slope, far))
        else:
            slope = f.add(slope, slope)
        values = [self._kept(apart, v) for v in values]
        return values[0] if values else None, self._kept(apart, slope)

    def _kept(self, apart: Val | None, x: Val) -> Val:
        return x if apart is None else self.f.select(apart, x, self.f.zero(self.wide))

    def _pull(self, points: Val, slopes: Sequence[Val]) -> None:
        """Add the differences to some others, each by its slope."""
        f = self.f

        def add(k: Int, _: Sequence[Val]) -> list[Val]:
            to = f.at(self.part, f.times(k, self.lanes), self.type)
            total = f.load(self.wide, to)
            for slope, apart in zip(slopes, self._apart(points, k, len(slopes)), strict=True):
                total = f.fma(slope, apart, total)
            f.store(total, to)
            return []

        self._by_coordinate(add)
