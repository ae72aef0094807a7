"""Calls of compiled programs: from the data of a call to its results."""

from __future__ import annotations

from operator import is_
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import EVAL, PURE, current
from retrograd.core.lines import LINE, addresses
from retrograd.core.replay import accounting, region_now
from retrograd.core.tensor import Tensor
from retrograd.jit.buffers import OWN, exclusive, plain, slants
from retrograd.jit.heap import give_back
from retrograd.jit.limit import Limit
from retrograd.jit.signature import Dead, Reader, described, differs
from retrograd.jit.threads import get_threads

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

__all__ = ["Bound", "Compiled"]

MANY = 32  # arguments: to write what reads them takes memory that malloc keeps


class Compiled:
    """A program for one signature."""

    def __init__(self, lowered: Any) -> None:
        # only now: LLVM takes a while to load, and many import the package to compute eagerly
        from retrograd.jit import execute  # noqa: PLC0415
        from retrograd.jit.compile import compiled  # noqa: PLC0415

        self.lowered, self.call, f = lowered, lowered.call, lowered.f
        self.leaves = self.call.data
        self.donated = [i for i, x in enumerate(self.leaves) if x.donated]
        sizes = {i: self.leaves[i].spec.nbytes for i in self.donated}
        self.moving = {
            i for i, n in sizes.items() if slants(n)
        }  # unless they begin with a line
        self.limit = Limit.of(f)
        self.program = compiled(
            lowered.graph, tuple(self.donated), limit=self.limit, fast=f.fast_math
        )
        limit = self.limit
        most = (limit.threads, limit.spill) if limit is not None else ()
        self.execute = execute.Executable(self.program, f.threads, *most, fast=f.fast_math)
        self.results = lowered.results
        self.captured = lowered.captured
        self.tracked = any(t.requires_grad for t in self.captured)
        outputs = self.program.outputs
        self.passing = [(k, i) for k, i in enumerate(outputs) if i < len(self.leaves)]
        self.deferred, self.dead = execute.deferred, Dead(f.who)
        self.calls = 0  # that were read the long way
        self._shortcut: Any = None
        self._hidden: tuple[list[Any], list[Any], list[int]] = ([], [], [])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, with arguments of the signature that this was compiled for."""
        f = self.lowered.f
        given = f.arguments(args, kwargs)
        read = f.read(given)
        if tuple(read.key) != self.call.key:
            other = described(read.key, given, f.static, f.donate)
            raise ArgumentError(
                f"{f.who}: it was compiled for other arguments; {differs(self.call, other)}"
            )
        return self.run(read.data, read.arrays)

    def shortcut(self, args: Sequence[Any]) -> Any:
        """What reads arguments like these in one go; from the second call on."""
        self.calls += 1
        if self.calls == 2:
            from retrograd.jit.shortcut import shortcut  # noqa: PLC0415  it loads llvmlite

            self._shortcut = shortcut(args)
            if len(self.leaves) > MANY:
                give_back()
        return self._shortcut

    def run(self, data: Sequence[Any], arrays: list[np.ndarray]) -> Any:
        """The results for the data of a call."""
        if self.limit is not None:
            self._within([(i, a) for i, a in enumerate(arrays) if plain(a) is not a])
        arrays[:] = [plain(a) for a in arrays]  # in place: `_own` counts who holds them
        return self.fly(data, arrays, addresses(arrays))

    def fly(self, data: Sequence[Any], arrays: list[np.ndarray], pointers: list[int]) -> Any:
        """As run, for arrays that are as kernels read them, and their addresses."""
        mine: Collection[int] = ()
        account = accounting(region_now.get())
        if self.donated:
            self.deferred()
            free = self.limit is None and account is None
            mine = self._own(data, arrays, pointers, moves=free)
            if self.limit is not None:
                reused = set(self.program.reuse.values())
                self._within([(i, arrays[i]) for i in reused if i not in mine])
        if self.captured:
            hidden, places = self._captured()
            arrays, pointers = arrays + hidden, pointers + places
        if account is not None:  # of rg.budget: it is charged what the call takes
            threads = self.execute.threads or get_threads()
            account.before(self.program.taken(threads), self.lowered.f.who)
        made = self.execute.run(arrays, pointers, mine)
        if account is not None:
            account.ledger.count_all(made, arrays)
        for k, i in self.passing:
            if not isinstance(data[i], Tensor):
                made[k] = made[k].copy()  # an array of the caller's, who may write to it
        for i in self.donated:
            if isinstance(data[i], Tensor):
                data[i]._data, data[i]._cell = None, self.dead
        return self.results.tree(made)

    def _within(self, copies: Sequence[tuple[int, np.ndarray]]) -> None:
        """Refuse what would need more memory than the budget gives."""
        assert self.limit is not None
        named = [(self.leaves[i].path, a) for i, a in copies]
        self.limit.check(self.program.taken(self.limit.threads), named)

    def _captured(self) -> tuple[list[np.ndarray], list[int]]:
        """Arrays and addresses of the tensors from outside, which may have been written to."""
        seen, arrays, places = self._hidden
        now = [t._data for t in self.captured]
        if len(now) != len(seen) or not all(map(is_, now, seen)) or any(a is None for a in now):
            arrays = [plain(t.array) for t in self.captured]
            places = addresses(arrays)
            self._hidden = (now, arrays, places)
        return arrays, places

    def _own(
        self,
        data: Sequence[Any],
        arrays: Sequence[np.ndarray],
        pointers: Sequence[int],
        *,
        moves: bool,
    ) -> set[int]:
        """The donated arguments whose memory nobody else sees.

        Without a budget also not those that had better lie elsewhere: their results get new
        memory, once, which lies better.
        """
        if len(self.donated) > 1 and len({pointers[i] for i in self.donated}) < len(
            self.donated
        ):
            self._refuse_shared(arrays, pointers)
        mine = set()
        for i in self.donated:
            a = arrays[i]
            # four hold it who may: the tensor, the list of arrays, `a`, getrefcount's argument
            alone = getrefcount(a) <= 4 and (a.flags.num & OWN == OWN or exclusive(a))
            leaves = moves and i in self.moving and pointers[i] % LINE
            if alone and not leaves and isinstance(data[i], Tensor):
                mine.add(i)
        return mine

    def _refuse_shared(self, arrays: Sequence[np.ndarray], pointers: Sequence[int]) -> None:
        seen: dict[int, int] = {}
        for i in self.donated:
            other = seen.setdefault(pointers[i], i)
            if other != i and arrays[i].nbytes:
                raise ArgumentError(
                    f"{self.lowered.f.who}: {self.leaves[other].path} and "
                    f"{self.leaves[i].path} are donated and have the same memory; "
                    f"donate one of them",
                    hint="a copy of one: rg.asarray(x, copy=True)",
                )


class Bound:
    """A jitted function whose leading arguments are fixed; what they were is kept."""

    def __init__(self, f: Any, args: tuple[Any, ...]) -> None:
        self.f, self.args = f, args
        names = list(f.signature.parameters)[: len(args)]
        plain = [n for n in names if f.signature.parameters[n].kind in (0, 1)]
        if len(plain) < len(args):
            raise ArgumentError(
                f"bind: {f.who} has {len(plain)} leading arguments that can be fixed; "
                f"got {len(args)}"
            )
        for name in names:
            if name in f.donate:
                raise ArgumentError(
                    f"bind: {name} of {f.who} is donated: it changes at each call, and cannot "
                    f"be fixed",
                    hint=f"rg.jit({f.who}) without donating {name}",
                )
        self.given = list(zip(names, args, strict=True))
        self.read = f.read(self.given)
        self._ready: tuple[list[Any], list[int]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the other arguments."""
        level, fixed, f = current.get(), self.read, self.f
        given = f.arguments((*self.args, *args), kwargs)
        values = level is EVAL or level is PURE
        read = f.read(given[len(self.given) :]) if values else Reader("")
        if not values or read.boxed or fixed.boxed:
            return f(*self.args, *args, **kwargs)
        program = f.find(fixed.key + read.key, given)
        if level is EVAL and (read.tracked or fixed.tracked or program.tracked):
            return f(*self.args, *args, **kwargs)
        arrays, places = self._ready or self._prepared(program)
        more = read.arrays
        more[:] = [plain(a) for a in more]
        places = places + addresses(more)
        more[:0] = arrays
        return program.fly(fixed.data + read.data, more, places)

    def _prepared(self, program: Compiled) -> tuple[list[Any], list[int]]:
        arrays = [plain(a) for a in self.read.arrays]
        self._ready = arrays, addresses(arrays)
        return self._ready

    def __repr__(self) -> str:
        """What is fixed of which function."""
        return f"<{self.f!r} with {', '.join(name for name, _ in self.given)}>"
