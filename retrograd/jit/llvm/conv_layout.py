"""How the channels of a convolution are laid over vectors, and where their weights lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.conv_tile import Groups, balanced

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Type

__all__ = ["Blocks", "Layout", "dense", "narrow", "side_by_side"]


class Blocks(NamedTuple):
    """Equal blocks of result channels, one after another."""

    first: int  # result channel
    many: int
    width: int  # result channels from block to block
    vectors: int
    kept: int  # lanes of the last vector that exist
    source: int = 0  # source channels from block to block
    groups: Groups | None = None


@dataclass(frozen=True)
class Layout:
    """Blocks of one group's channels, and the same for each group.

    Weights are [tap][source channel][result channel]; packed, they are parted into blocks
    first: [group][block][tap][source channel][lanes of the block], with zeros in lanes that
    do not exist.
    """

    groups: int
    depth: int  # source channels of a group
    width: int  # result channels of a group
    channels: int  # result channels of all
    taps: int
    lanes: int
    blocks: tuple[Blocks, ...]
    packed: bool

    @property
    def total(self) -> int:
        """How many blocks there are, in all groups."""
        return self.groups * sum(b.many for b in self.blocks)

    @property
    def padded(self) -> int:
        """Result channels of a group, up to whole vectors."""
        return -(-self.width // self.lanes) * self.lanes

    @property
    def packed_size(self) -> int:
        """Elements of the packed weights."""
        return self.groups * self.taps * self.depth * self.padded

    def row(self, blocks: Blocks) -> int:
        """Elements of weights from one source channel to the next."""
        return blocks.vectors * self.lanes if self.packed else self.channels

    def weights(self, blocks: Blocks) -> tuple[int, int, int]:
        """Where the weights of the first block are, and steps from block and group to next."""
        if not self.packed:
            return blocks.first, blocks.width, self.width
        each = self.taps * self.depth
        wide = blocks.vectors * self.lanes
        return each * blocks.first, each * wide, each * self.padded


def dense(
    shape: tuple[int, int, int], taps: int, lanes: int, vectors: int, *, packed: bool
) -> Layout:
    """Vectors of at most one group's channels; shape: groups, sources, results of each."""
    groups, depth, width = shape
    whole = -(-width // lanes)
    blocks: list[Blocks] = []
    first = 0
    for size in balanced(whole, vectors):
        kept = min(lanes, width - first - (size - 1) * lanes)
        last = blocks[-1] if blocks else None
        if last and (last.vectors, last.kept) == (size, kept):
            blocks[-1] = last._replace(many=last.many + 1)
        else:
            blocks.append(Blocks(first, 1, size * lanes, size, kept))
        first += size * lanes
    return Layout(groups, depth, width, groups * width, taps, lanes, tuple(blocks), packed)


def side_by_side(machine: Machine, t: Type, shape: tuple[int, int, int]) -> int:
    """How many groups to put into one vector; 0 if that does not pay."""
    groups, depth, width = shape
    lanes = machine.lanes(t.bits // 8)
    if groups < 2 or not depth or not width or 2 * width > lanes:
        return 0
    many = min(groups, lanes // width)
    return many if many * depth <= 2 * lanes else 0


def narrow(
    shape: tuple[int, int, int], taps: int, lanes: int, many: int, vectors: int = 1
) -> Layout:
    """`many` groups in each vector: depthwise, and all where groups are few channels wide."""
    groups, depth, width = shape
    blocks = []
    whole, first = groups // many, 0
    parts = [(whole // vectors, many, vectors), (1, many, whole % vectors)]
    for count, each, size in (*parts, (1, groups % many, 1)):
        if count and each and size:
            one, wide = Groups(each, depth, width), each * width
            deep = size * each * depth
            blocks.append(Blocks(first * width, count, size * wide, size, wide, deep, one))
            first += count * size * each
    return Layout(1, depth, groups * width, groups * width, taps, lanes, tuple(blocks), False)
