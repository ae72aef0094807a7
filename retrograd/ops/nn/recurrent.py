"""Recurrent layers over whole sequences: several layers, both directions, several lengths.

Each layer and direction is one op. x is [N, T, I], or [T, N, I] with `time_major`. Weights are
w_ih [I, gates * H] and w_hh [H, gates * H], the transposes of PyTorch's, with its order of the
gates; both biases are [gates * H], or absent. For several layers they are sequences, with one
entry for each layer (`bidirectional`: forward and backward of layer 0, then of layer 1, ...),
and states are [layers * directions, N, H]; otherwise [N, H].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, shape
from retrograd.ops.nn.cells import is_relu
from retrograd.ops.nn.gru import Gru
from retrograd.ops.nn.lstm import Lstm
from retrograd.ops.nn.rnn import Rnn

__all__ = ["gru", "lstm", "rnn"]


def rnn(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    /,
    *,
    h0: Any = None,
    lengths: Any = None,
    activation: str = "tanh",
    bidirectional: bool = False,
    time_major: bool = False,
) -> tuple[Tensor, Tensor]:
    """All outputs of a plain recurrent network, and its last states: (y, h).

    h = tanh or relu of x @ w_ih + b_ih + h @ w_hh + b_hh, from h0 (0 unless given). y holds h
    at each step, of both directions side by side. Sequence n has lengths[n] steps: beyond them
    its state stands still, y is 0, and x is not read.
    """
    relu = is_relu("rnn", activation)
    stack = Layers("rnn", 1, x, w_ih, w_hh, b_ih, b_hh, lengths, bidirectional, time_major)

    def layer(x, lengths, w_ih, w_hh, b_ih, b_hh, h0, *, backwards):
        return apply(Rnn(backwards, relu), x, w_ih, w_hh, b_ih + b_hh, h0, lengths)

    return stack.run(layer, h0=h0)


def lstm(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    /,
    *,
    h0: Any = None,
    c0: Any = None,
    lengths: Any = None,
    bidirectional: bool = False,
    time_major: bool = False,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """All outputs of an LSTM, and its last states: y, (h, c).

    The gates stand in the order i, f, g, o; c = sigmoid(f) * c + sigmoid(i) * tanh(g), and
    h = sigmoid(o) * tanh(c). States start at 0 unless given. Lengths are as in `rnn`.
    """
    stack = Layers("lstm", 4, x, w_ih, w_hh, b_ih, b_hh, lengths, bidirectional, time_major)

    def layer(x, lengths, w_ih, w_hh, b_ih, b_hh, h0, c0, *, backwards):
        found = apply(Lstm(backwards), x, w_ih, w_hh, b_ih + b_hh, h0, c0, lengths)
        return found[:3]

    y, h, c = stack.run(layer, h0=h0, c0=c0)
    return y, (h, c)


def gru(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    /,
    *,
    h0: Any = None,
    lengths: Any = None,
    bidirectional: bool = False,
    time_major: bool = False,
) -> tuple[Tensor, Tensor]:
    """All outputs of a GRU, and its last states: (y, h).

    The gates stand in the order r, z, n; h = (1 - z) * n + z * h, where r and z are sigmoids
    and n = tanh(x's part + r * h's part), b_hh inside of h's. Lengths are as in `rnn`.
    """
    stack = Layers("gru", 3, x, w_ih, w_hh, b_ih, b_hh, lengths, bidirectional, time_major)

    def layer(x, lengths, w_ih, w_hh, b_ih, b_hh, h0, *, backwards):
        return apply(Gru(backwards), x, w_ih, w_hh, b_ih, b_hh, h0, lengths)[:2]

    return stack.run(layer, h0=h0)


class Layers:
    """Layers and directions of one network: what the three kinds have in common."""

    def __init__(
        self,
        who: str,
        gates: int,
        x: Any,
        w_ih: Any,
        w_hh: Any,
        b_ih: Any,
        b_hh: Any,
        lengths: Any,
        bidirectional: bool,  # noqa: FBT001 - handed on by position, with nine others
        time_major: bool,  # noqa: FBT001
    ) -> None:
        self.who, self.gates, self.time_major = who, gates, time_major
        self.ways = 2 if bidirectional else 1
        x = lift(x)
        if x.ndim != 3:
            axes = "[T, N, I]" if time_major else "[N, T, I]"
            raise ShapeError(f"{who}: x is {axes}; got shape {x.shape}")
        self.x = x if time_major else shape.swapaxes(x, 0, 1)
        self.single = not isinstance(w_ih, (tuple, list))
        self.w_ih = self._listed("w_ih", w_ih)
        self.count = len(self.w_ih)
        if self.count % self.ways or not self.count:
            raise ArgumentError(
                f"{who}: w_ih has {self.count} entries; there must be one for each layer, two "
                f"if bidirectional"
            )
        self.w_hh = self._listed("w_hh", w_hh)
        self.width = self.w_hh[0].shape[0] if self.w_hh and self.w_hh[0].ndim else 0
        self.b_ih, self.b_hh = self._biases("b_ih", b_ih), self._biases("b_hh", b_hh)
        self.lengths = self._lengths(lengths)

    def run(self, layer: Any, **states: Any) -> Any:
        """y and the last states; layer(x, lengths, weights, biases, states) is one op."""
        firsts = [self._states(name, state) for name, state in states.items()]
        x, ends = self.x, []
        for i in range(0, self.count, self.ways):
            found = [self._one(layer, x, j, firsts) for j in range(i, i + self.ways)]
            x = found[0][0] if self.ways == 1 else join.concat([f[0] for f in found], axis=-1)
            ends += [f[1:] for f in found]
        y = x if self.time_major else shape.swapaxes(x, 0, 1)
        last = (
            ends[0] if self.single else [join.stack(list(e)) for e in zip(*ends, strict=True)]
        )
        return y, *last

    def _one(self, layer: Any, x: Any, j: int, firsts: list[Any]) -> Any:
        w_ih, w_hh, b_ih, b_hh = self.w_ih[j], self.w_hh[j], self.b_ih[j], self.b_hh[j]
        columns = (self.width * self.gates,)
        for name, given, to in (
            ("w_ih", w_ih, (x.shape[-1], *columns)),
            ("w_hh", w_hh, (self.width, *columns)),
            ("b_ih", b_ih, columns),
            ("b_hh", b_hh, columns),
        ):
            if given.shape != to:
                place = "" if self.single else f"[{j}]"
                raise ShapeError(
                    f"{self.who}: {name}{place} has shape {given.shape}; for {x.shape[-1]} "
                    f"features and states of {self.width} it must have {to}",
                    hint="w.mT      if it is PyTorch's, [gates * H, in]",
                )
        backwards = self.ways == 2 and j % 2 == 1
        states = [f[j] for f in firsts]
        return layer(x, self.lengths, w_ih, w_hh, b_ih, b_hh, *states, backwards=backwards)

    def _listed(self, name: str, given: Any) -> list[Any]:
        if isinstance(given, (tuple, list)) == self.single:
            raise ArgumentError(
                f"{self.who}: w_ih is {'one tensor' if self.single else 'a sequence'}, {name} "
                f"is {'a sequence' if self.single else 'one tensor'}; both must be of one kind"
            )
        found = [lift(w) for w in ([given] if self.single else given)]
        if name != "w_ih" and len(found) != self.count:
            raise ArgumentError(
                f"{self.who}: w_ih has {self.count} entries, {name} has {len(found)}"
            )
        return found

    def _biases(self, name: str, given: Any) -> list[Any]:
        if given is not None:
            return self._listed(name, given)
        return [create.zeros(self.width * self.gates, dtype=self.x.dtype)] * self.count

    def _lengths(self, given: Any) -> Any:
        steps, n, _ = self.x.shape
        if given is None:
            return create.made(np.full(n, steps))
        given = lift(given)
        if given.shape != (n,):
            raise ShapeError(
                f"{self.who}: lengths have shape {given.shape}; for a batch of {n} they must "
                f"have {(n,)}"
            )
        if given.dtype not in dt.INTEGERS:
            raise DtypeError(f"{self.who}: lengths are integers; got {given.dtype}")
        return given

    def _states(self, name: str, given: Any) -> Any:
        n = self.x.shape[1]
        if given is None:
            return [create.zeros((n, self.width), dtype=self.x.dtype)] * self.count
        given = lift(given)
        to = (n, self.width) if self.single else (self.count, n, self.width)
        if given.shape != to:
            raise ShapeError(f"{self.who}: {name} has shape {given.shape}; it must have {to}")
        return [given] if self.single else join.unstack(given)
