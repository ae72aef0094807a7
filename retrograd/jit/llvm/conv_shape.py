"""What a convolution is, to the kernels: sizes, and which elements meet which weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import F32, Type

__all__ = ["Axis", "Convolution", "Phase", "Run", "Step", "Steps"]

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class Step(NamedTuple):
    """A kernel and its buffers: numbers of the pass's operands, then of its temporaries."""

    kernel: KernelInfo
    buffers: Sizes


@dataclass(frozen=True)
class Steps:
    """Kernels to run one after another.

    Buffers 0, 1, 2 are the operands of the pass, 3 and on the temporaries.
    """

    steps: tuple[Step, ...]
    temporaries: Sizes = ()  # bytes of each


@dataclass(frozen=True)
class Convolution:
    """out[n, o, j] = sum of x[n, o * stride + t * dilation - before, c] * w[t, c, j].

    x is [batch, *in_shape, in_channels], w [*kernel, in_channels / groups, out_channels], out
    [batch, *out_shape, out_channels]; x is zero outside. Padding may be negative.
    """

    batch: int
    in_shape: Sizes
    in_channels: int
    out_channels: int
    kernel: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    groups: int = 1
    type: Type = F32

    @classmethod
    def of_windows(
        cls,
        batch: int,
        sizes: tuple[Sizes, Sizes],
        channels: tuple[int, int],
        kernel: Sizes,
        *,
        stride: Sizes,
        dilation: Sizes,
        before: Sizes,
        groups: int,
        type: Type,
    ) -> Convolution:
        """From what the ops say: sizes of x and the counts of windows, padding in front."""
        axes = zip(*sizes, kernel, stride, dilation, before, strict=True)
        padding = tuple((b, (o - 1) * s + d * (k - 1) + 1 - n - b) for n, o, k, s, d, b in axes)
        return cls(batch, sizes[0], *channels, kernel, stride, padding, dilation, groups, type)

    @property
    def out_shape(self) -> Sizes:
        """How many windows there are along each axis."""
        axes = zip(
            self.in_shape, self.kernel, self.stride, self.padding, self.dilation, strict=True
        )
        return tuple(
            max(0, (n + sum(pair) - d * (k - 1) - 1) // s + 1) for n, k, s, pair, d in axes
        )

    @property
    def taps(self) -> int:
        """Places of the kernel."""
        return prod(self.kernel)

    @property
    def flops(self) -> int:
        """Of each of the three passes; what lies in the padding is counted too."""
        pixels = self.batch * prod(self.out_shape)
        each = self.in_channels // self.groups if self.groups else 0
        return 2 * pixels * self.out_channels * each * self.taps

    @property
    def counts(self) -> tuple[int, int, int]:
        """Elements of x, w and out."""
        x = self.batch * prod(self.in_shape) * self.in_channels
        w = self.taps * (self.in_channels // self.groups) * self.out_channels
        return x, w, self.batch * prod(self.out_shape) * self.out_channels

    @property
    def bytes(self) -> int:
        """Of x, w and out together."""
        return sum(self.counts) * self.type.bits // 8

    def axes(self, *, backward: bool) -> tuple[Axis, ...]:
        """How results meet sources along each axis: of out, or backward of x's gradient.

        Backward the kernel is turned around, so that sources come in rising order.
        """
        found = []
        for n, o, k, s, d, (b, _) in zip(
            self.in_shape,
            self.out_shape,
            self.kernel,
            self.stride,
            self.dilation,
            self.padding,
            strict=True,
        ):
            forward = Axis(n, o, k, 1, s, d, b)
            turned = Axis(o, n, k, s, 1, d, d * (k - 1) - b)
            found.append(turned if backward else forward)
        return tuple(found)


class Phase(NamedTuple):
    """Results start, start + step, ...: result number m meets source m * advance + offset."""

    start: int
    step: int
    length: int
    advance: int
    taps: tuple[tuple[int, int], ...]  # (tap, offset)


class Run(NamedTuple):
    """Taps at even distances that the same pixels of a tile see."""

    tap: int
    offset: int  # source of pixel 0, from the source of the tile
    length: int
    pixels: Sizes


@dataclass(frozen=True)
class Axis:
    """Along it: source * jump = result * stride + tap * dilation - before."""

    source: int
    result: int
    taps: int
    jump: int
    stride: int
    dilation: int
    before: int

    @property
    def tap_step(self) -> int:
        """From one tap that a result sees to the next."""
        return self.jump // gcd(self.jump, self.dilation)

    @property
    def source_step(self) -> int:
        """From the source of one such tap to the next."""
        return self.dilation * self.tap_step // self.jump

    def seen(self, result: int) -> list[tuple[int, int]]:
        """(tap, source) pairs that a result sums over: taps at `tap_step` from each other."""
        pairs = []
        for tap in range(self.taps):
            source, odd = divmod(
                result * self.stride + tap * self.dilation - self.before, self.jump
            )
            if not odd and 0 <= source < self.source:
                pairs.append((tap, source))
        return pairs

    @cached_property
    def table(self) -> list[tuple[int, int, int]]:
        """For each result: its first tap, how many taps, and the first source."""
        rows = []
        for result in range(self.result):
            pairs = self.seen(result)
            first = pairs[0] if pairs else (0, 0)
            rows.append((first[0], len(pairs), first[1]))
        return rows

    def range_of(self, tap: int) -> tuple[int, int]:
        """The results [low, high) that see a tap; only where jump is 1."""
        ahead = self.before - tap * self.dilation
        low = max(0, -(-ahead // self.stride))
        high = min(self.result, (self.source - 1 + ahead) // self.stride + 1)
        return (low, high) if low < high else (0, 0)

    def phases(self) -> list[Phase]:
        """The results, parted by which taps they can see."""
        step = self.jump // gcd(self.jump, self.stride)
        found = []
        for start in range(min(step, self.result)):
            count = -(-(self.result - start) // step)
            advance = self.stride * step // self.jump
            taps = []
            for tap in range(self.taps):
                reach = start * self.stride + tap * self.dilation - self.before
                offset, odd = divmod(reach, self.jump)
                if not odd:
                    taps.append((tap, offset))
            found.append(Phase(start, step, count, advance, tuple(taps)))
        return found

    def runs(self, phase: Phase, first: int, pixels: int) -> tuple[Run, ...]:
        """What results `first` and the next ones of a phase see, as one tile."""
        runs: list[Run] = []
        for tap, offset in phase.taps:
            inside = tuple(
                p
                for p in range(pixels)
                if 0 <= (first + p) * phase.advance + offset < self.source
            )
            if not inside:
                continue
            last = runs[-1] if runs else None
            if last and last.pixels == inside and last.tap + last.length * self.tap_step == tap:
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(Run(tap, offset, 1, inside))
        return tuple(runs)
