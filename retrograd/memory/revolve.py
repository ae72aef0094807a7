"""Reverse a chain of steps with few stored states: the binomial schedule, which is optimal.

To pull back through step t one needs the state before it. With a state stored at the start of
a stretch and some free slots, the best way is to advance to a middle, store there, reverse the
second part with one slot less, and then the first part with all of them again. How far the
middle is follows from how many steps r repetitions can reach: C(slots + r, r).

With a file there are two levels. The chain is cut into segments; the first run puts the state
at the start of each into the file. Segments are then reversed one after the other, the last
one first, each by the schedule above with all slots in memory.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Action", "advances", "cut", "first_stores", "reversal", "segmented", "segments"]

Action = tuple[str, int, int]


def advances(steps: int, slots: int) -> int:
    """The least number of steps to run forwards again, to reverse `steps` of them.

    The state before the first step is stored, and `slots` more states can be. Pulling back
    through a step is not counted, nor is the last step of all.
    """
    if steps <= 1:
        return 0
    r = 1
    while comb(slots + 1 + r, r) < steps:
        r += 1
    return r * steps - comb(slots + 1 + r, r - 1)


@lru_cache(maxsize=1 << 12)  # few, for they are memory too
def middle(steps: int, slots: int) -> int:
    """How far to advance before storing: the least that gives the fewest steps in all."""
    if slots <= 0 or steps <= 1:
        return 0
    low, high = 1, steps - 1  # the sum is convex in the middle

    def total(m: int) -> int:
        return m + advances(steps - m, slots - 1) + advances(m, slots)

    while low < high:
        m = (low + high) // 2
        if total(m) <= total(m + 1):
            high = m
        else:
            low = m + 1
    return low


def first_stores(steps: int, slots: int) -> list[int]:
    """Where states are stored while the chain runs for the first time; 0 is among them."""
    found, at = [0], 0
    while slots > 0 and steps > 1:
        m = middle(steps, slots)
        at, steps, slots = at + m, steps - m, slots - 1
        found.append(at)
    return found


def reversal(steps: int, slots: int, first: int = 0) -> Iterator[Action]:
    """What to do after the first run, which has stored its states in slots 0, 1, ...

    It begins with the state before the last step at hand. The steps are numbered from `first`.

    ("load", slot, t): go to step t with the state of a slot. ("advance", t, u): run steps t
    to u - 1. ("store", slot, t): put the state before step t into a slot. ("back", t, t):
    pull back through step t, whose state is there.
    """
    yield ("back", first + steps - 1, first + steps - 1)
    stores = first_stores(steps, slots)
    ends = [*stores[1:], steps - 1]
    for depth in range(len(stores) - 1, -1, -1):
        start, end = stores[depth], ends[depth]
        yield from _reverse(first + start, end - start, depth, slots - depth)


def _reverse(start: int, steps: int, slot: int, free: int) -> Iterator[Action]:
    """A stretch whose first state is in `slot`; slots above it, `free` of them, are unused."""
    stack = [(start, steps, slot, free)]
    while stack:
        start, steps, slot, free = stack.pop()
        m = middle(steps, free)
        if steps > 1 and m:
            yield ("load", slot, start)
            yield ("advance", start, start + m)
            yield ("store", slot + 1, start + m)
            stack.append((start, m, slot, free))
            stack.append((start + m, steps - m, slot + 1, free - 1))
            continue
        for t in range(start + steps - 1, start - 1, -1):
            yield ("load", slot, start)
            if t > start:
                yield ("advance", start, t)
            yield ("back", t, t)


# -- two levels ------------------------------------------------------------------------------


def segments(steps: int, slots: int) -> int:
    """The fewest segments with which no step runs more than once again."""
    return max(1, -(-steps // (slots + 2)))


def cut(steps: int, slots: int, count: int) -> list[int]:
    """Where `count` segments start, such that the fewest steps run forwards in all.

    What is not in the last segment runs once more: the first run passes it by. What a segment
    costs is convex in its length, so all but the last are equally long, or nearly.
    """
    if count <= 1:
        return [0]
    low, high = 1, steps - count + 1  # of the last; the sum is convex in it

    def total(last: int) -> int:
        each, longer = divmod(steps - last, count - 1)
        again = (count - 1 - longer) * advances(each, slots)
        return steps - last + again + longer * advances(each + 1, slots) + advances(last, slots)

    while low < high:
        last = (low + high) // 2
        if total(last) <= total(last + 1):
            high = last
        else:
            low = last + 1
    each, longer = divmod(steps - low, count - 1)
    return [k * each + min(k, longer) for k in range(count)]


def segmented(steps: int, slots: int, starts: Sequence[int]) -> Iterator[Action]:
    """As `reversal`, in segments; ("fetch", k, t): go to step t with the state of segment k.

    The first run has stored the states of the last segment in slots 0, 1, ...
    """
    ends = [*starts[1:], steps]
    for k in range(len(starts) - 1, -1, -1):
        first, count = starts[k], ends[k] - starts[k]
        if k < len(starts) - 1:
            yield ("fetch", k, first)
            yield from _forwards(first, count, slots)
        yield from reversal(count, slots, first)


def _forwards(first: int, count: int, slots: int) -> Iterator[Action]:
    """Through a segment, storing as a first run does."""
    at = first
    for slot, m in enumerate(first_stores(count, slots)):
        if at < first + m:
            yield ("advance", at, first + m)
        at = first + m
        yield ("store", slot, at)
    if at < first + count - 1:
        yield ("advance", at, first + count - 1)
