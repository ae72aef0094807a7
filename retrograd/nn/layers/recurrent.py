"""Recurrent layers over whole sequences: several layers, both directions.

x is [N, T, in], or [T, N, in] with `time_major`; states are [layers * directions, N, hidden],
as in PyTorch. Weights are tuples with one entry for each layer and direction,
[in, gates * hidden] and [hidden, gates * hidden]; all are uniform in ±1 / sqrt(hidden), as in
PyTorch.
"""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.nn import init
from retrograd.nn.module import Module
from retrograd.ops import options
from retrograd.ops.nn import recurrent

__all__ = ["GRU", "LSTM", "RNN"]


class Recurrent(Module):
    """What the three kinds have in common: weights, and how many of them."""

    w_ih: tuple[Tensor, ...]
    w_hh: tuple[Tensor, ...]
    b_ih: tuple[Tensor, ...] | None
    b_hh: tuple[Tensor, ...] | None
    in_size: int
    hidden: int
    layers: int
    bidirectional: bool
    time_major: bool

    def _draw(self, gates: int, sizes: tuple[Any, ...], key: Any, dtype: Any, *, bias: bool):
        """Set the weights of all layers and directions."""
        who, (deep, wide, layers) = type(self).__name__, sizes
        self.in_size = options.integer(who, "in_size", deep, least=1)
        self.hidden = wide = options.integer(who, "hidden", wide, least=1)
        self.layers = options.integer(who, "layers", layers, least=1)
        ways = 2 if self.bidirectional else 1
        inner = [self.in_size] * ways + [ways * wide] * (ways * (self.layers - 1))
        keys = init.keys(who, key, 4 * len(inner)).reshape(4, len(inner), 2)

        def drawn(i: int, rows: list[tuple[int, ...]]) -> tuple[Tensor, ...]:
            pairs = zip(keys[i], rows, strict=True)
            return tuple(init.fan_uniform(k, (*r, gates * wide), wide, dtype) for k, r in pairs)

        self.w_ih = drawn(0, [(n,) for n in inner])
        self.w_hh = drawn(1, [(wide,) for _ in inner])
        self.b_ih = drawn(2, [() for _ in inner]) if bias else None
        self.b_hh = drawn(3, [() for _ in inner]) if bias else None

    def _weights(self) -> tuple[Any, ...]:
        return self.w_ih, self.w_hh, self.b_ih, self.b_hh

    def _options(self) -> dict[str, bool]:
        return {"bidirectional": self.bidirectional, "time_major": self.time_major}

    def about(self) -> str:
        """Its sizes, layers and directions."""
        words = [f"{self.in_size} -> {self.hidden}"]
        words += [f"{self.layers} layers"] if self.layers > 1 else []
        words += ["bidirectional"] if self.bidirectional else []
        return ", ".join(words)


class RNN(Recurrent):
    """A plain recurrent network: h = tanh or relu of x @ w_ih + b_ih + h @ w_hh + b_hh."""

    activation: str

    def __init__(
        self,
        in_size: int,
        hidden: int,
        *,
        layers: int = 1,
        activation: str = "tanh",
        bidirectional: bool = False,
        time_major: bool = False,
        bias: bool = True,
        key: Any,
        dtype: Any = None,
    ) -> None:
        self.bidirectional, self.time_major = bool(bidirectional), bool(time_major)
        if activation not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: activation must be 'tanh' or 'relu'; got {activation!r}")
        self.activation = activation
        self._draw(1, (in_size, hidden, layers), key, dtype, bias=bias)

    def __call__(
        self, x: Any, state: Any = None, *, lengths: Any = None
    ) -> tuple[Tensor, Tensor]:
        """All outputs and the last states, (y, h), from `state`, 0 unless given."""
        return recurrent.rnn(
            x,
            *self._weights(),
            h0=state,
            lengths=lengths,
            activation=self.activation,
            **self._options(),
        )


class LSTM(Recurrent):
    """Long short-term memory, gates in the order i, f, g, o.

    >>> layer = rg.nn.LSTM(8, 16, layers=2, key=rg.random.key(0))
    >>> layer
    LSTM(8 -> 16, 2 layers, 3,840 numbers)
    >>> y, (h, c) = layer(rg.ones((4, 10, 8)))
    >>> y.shape, h.shape
    ((4, 10, 16), (2, 4, 16))
    """

    def __init__(
        self,
        in_size: int,
        hidden: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        time_major: bool = False,
        bias: bool = True,
        key: Any,
        dtype: Any = None,
    ) -> None:
        self.bidirectional, self.time_major = bool(bidirectional), bool(time_major)
        self._draw(4, (in_size, hidden, layers), key, dtype, bias=bias)

    def __call__(
        self, x: Any, state: Any = None, *, lengths: Any = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """All outputs and the last states, y, (h, c), from `state`, 0 unless given."""
        if state is not None and (not isinstance(state, (tuple, list)) or len(state) != 2):
            raise ArgumentError(
                f"LSTM: the state is a pair (h, c); got a {type(state).__name__}"
            )
        h0, c0 = (None, None) if state is None else state
        more = self._options()
        return recurrent.lstm(x, *self._weights(), h0=h0, c0=c0, lengths=lengths, **more)


class GRU(Recurrent):
    """Gated recurrent units, gates in the order r, z, n."""

    def __init__(
        self,
        in_size: int,
        hidden: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        time_major: bool = False,
        bias: bool = True,
        key: Any,
        dtype: Any = None,
    ) -> None:
        self.bidirectional, self.time_major = bool(bidirectional), bool(time_major)
        self._draw(3, (in_size, hidden, layers), key, dtype, bias=bias)

    def __call__(
        self, x: Any, state: Any = None, *, lengths: Any = None
    ) -> tuple[Tensor, Tensor]:
        """All outputs and the last states, (y, h), from `state`, 0 unless given."""
        more = self._options()
        return recurrent.gru(x, *self._weights(), h0=state, lengths=lengths, **more)
