"""One step of a recurrent layer: for loops of one's own, and for decoding.

Weights are [in, gates * H] and [H, gates * H], biases [gates * H]; the columns of the gates
stand in PyTorch's order (its matrices are the transposes of these). Axes in front are a batch.
"""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, join, linalg
from retrograd.ops.nn import gru, lstm, rnn

__all__ = ["gru_cell", "lstm_cell", "rnn_cell"]


def rnn_cell(
    x: Any,
    h: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    /,
    *,
    activation: str = "tanh",
) -> Tensor:
    """The next state, tanh or relu of x @ w_ih + b_ih + h @ w_hh + b_hh.

    At 0 the slope of relu is 0.
    """
    relu = is_relu("rnn_cell", activation)
    inside, outside = _sums("rnn_cell", 1, x, h, w_ih, w_hh, b_ih, b_hh)
    return rnn.bent(inside + outside, relu=relu)


def lstm_cell(
    x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, /
) -> tuple[Tensor, Tensor]:
    """The next state (h, c) of an LSTM at (h, c). The gates stand in the order i, f, g, o.

    c = sigmoid(f) * c + sigmoid(i) * tanh(g), and h = sigmoid(o) * tanh(c).
    """
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise ArgumentError(
            f"lstm_cell: the state is a pair (h, c); got {type(state).__name__}"
        )
    h, c = map(lift, state)
    inside, outside = _sums("lstm_cell", 4, x, h, w_ih, w_hh, b_ih, b_hh)
    if c.shape != h.shape:
        raise ShapeError(f"lstm_cell: h {h.shape} and c {c.shape} must have one shape")
    i, f, g, o = join.split(lstm.bent(inside + outside), 4, axis=-1)
    c = f * c + i * g
    return o * elementary.tanh(c), c


def gru_cell(
    x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, /
) -> Tensor:
    """The next state n + z * (h - n) of a GRU. The gates stand in the order r, z, n.

    r and z are sigmoids; n = tanh(x's part + r * h's part), b_hh inside of h's.
    """
    h = lift(h)
    _, _, z, n = gru.bent(*_sums("gru_cell", 3, x, h, w_ih, w_hh, b_ih, b_hh))
    return n + z * (h - n)


def is_relu(who: str, activation: str) -> bool:
    """Whether the activation is relu; refuses what is neither that nor tanh."""
    if activation not in ("relu", "tanh"):
        raise ArgumentError(f"{who}: activation must be 'tanh' or 'relu'; got {activation!r}")
    return activation == "relu"


def _sums(who: str, gates: int, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any):
    """x @ w_ih + b_ih and h @ w_hh + b_hh; refuses shapes that do not fit, by name."""
    x, h, w_ih, w_hh = map(lift, (x, h, w_ih, w_hh))
    if not x.ndim or not h.ndim:
        raise ShapeError(f"{who}: x and h need axes; got x {x.shape} and h {h.shape}")
    columns = gates * h.shape[-1]
    wanted: dict[str, tuple[int, ...]] = {
        "w_ih": (x.shape[-1], columns),
        "w_hh": (h.shape[-1], columns),
    }
    found = {"w_ih": w_ih.shape, "w_hh": w_hh.shape}
    for name, b in (("b_ih", b_ih), ("b_hh", b_hh)):
        if b is not None:
            wanted[name], found[name] = (columns,), lift(b).shape
    for name, to in wanted.items():
        if found[name] != to:
            raise ShapeError(
                f"{who}: {name} has shape {found[name]}; beside x {x.shape} and h {h.shape} it "
                f"must have {to}"
            )
    if x.shape[:-1] != h.shape[:-1]:
        raise ShapeError(f"{who}: x {x.shape} and h {h.shape} must have one batch")
    return linalg.linear(x, w_ih, b_ih), linalg.linear(h, w_hh, b_hh)
