"""Row: one training step, as each library would write it.

A row draws its numbers once, for all: weights ("params") and data, as NumPy arrays in
retrograd's layouts. It then says for each library what the loss is; loss, gradient and update
of all weights make the step (`ours.py`, `pytorch.py`, `jaxes.py`). A row whose step is
something else (a Hessian product, an optimizer alone) writes its whole step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Drawn(NamedTuple):
    """The numbers of a row: what is trained, what is given, what is kept beside."""

    params: Arrays
    data: Arrays
    buffers: Arrays = {}  # noqa: RUF012 - nobody writes to it


@dataclass(frozen=True)
class Row:
    """A training step. `ours`, `pytorch` and `jax` take the library and give a loss function.

    The loss takes params and data; with buffers (running statistics) these come third, and
    ours and JAX's give (loss, buffers after it), while PyTorch's writes into them. `layouts`
    names what PyTorch holds otherwise: "t" for a transposed matrix, "conv" and "image" for
    kernels and images with the channels first (of 2 and 3 axes: first in name, last in memory).
    With `whole` the three functions give a step instead: (state, data) to (state, loss), for
    PyTorch in place.
    """

    key: str
    name: str
    draw: Callable[[], Drawn]
    ours: Callable[[Any], Callable[..., Any]]
    pytorch: Callable[[Any], Callable[..., Any]]
    jax: Callable[[Any], Callable[..., Any]]
    optimizer: str = "sgd"
    lr: float = 1e-3
    layouts: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    kinks: bool = False  # relus, so that float32 and float64 may take different sides


# The size of values in deep MLPs. A gelu halves small numbers, and nearly keeps large ones:
# with values of size one, those of most samples vanish in 64 layers and those of others grow,
# down to numbers below the normal ones, on which all CPUs are slow. Small ones stay as they are
# if matrices turn and double.
CALM = 0.05


class Draw:
    """Random numbers of one row, float32."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Normal numbers."""
        found = self.rng.standard_normal(shape, np.float32)
        found *= np.float32(scale)  # in place: what a process holds is measured
        return found

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Uniform numbers."""
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def weight(self, *shape: int) -> np.ndarray:
        """A matrix or a kernel whose last axis is what comes out, scaled by what goes in."""
        return self.normal(*shape, scale=float(np.prod(shape[:-1])) ** -0.5)

    def rotation(self, size: int) -> np.ndarray:
        """A square matrix that keeps lengths."""
        return np.linalg.qr(self.normal(size, size))[0]

    def integers(self, high: int, *shape: int) -> np.ndarray:
        """Integers below a bound."""
        return self.rng.integers(0, high, shape)

    def linear(self, params: Arrays, name: str, size: int, out: int) -> None:
        """A weight and a bias."""
        params[f"{name}.w"] = self.weight(size, out)
        params[f"{name}.b"] = self.normal(out, scale=0.01)
