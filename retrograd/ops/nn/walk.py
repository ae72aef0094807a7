"""Walking through time: what the ops on whole sequences share.

Inside these ops time is the first axis: x is [T, *L, N, I], a state [*L, N, H], a matrix of
weights [*L, I, G], lengths are [*L, N]. L is empty but for vmap over the weights, where each
of the mapped sequences has weights of its own.

A sequence n lives while t < lengths[n]. Before that (walking backwards) and after it, its
state stands still and its outputs are 0; what x holds there is not read.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import FUNCTIONS, Composite, front
from retrograd.core.spec import Spec
from retrograd.ops import arithmetic, create, gather, join, linalg, pad, reduce, select, shape

BUFFERS = 1 << 16  # of NumPy's own


class Sequence(Composite):
    """A recurrent layer over whole sequences: x, w_ih, w_hh, biases, states, lengths."""

    backwards: bool = False
    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "floating"
    fixed: ClassVar[tuple[str, ...]] = ("lengths",)
    gates: ClassVar[int]  # how many times the state's width the weights have columns
    states: ClassVar[int] = 1
    timed: ClassVar[tuple[bool, ...]]  # which outputs have the axis of time

    def sizes(self, *specs: Spec) -> tuple[tuple[int, ...], int, int]:
        """(T, *L), N and H; refuses operands that do not fit each other, by name."""
        named = dict(zip(self.inputs, specs, strict=True))
        x, w_hh, lengths = (named[n] for n in ("x", "w_hh", "lengths"))
        if x.ndim < 3 or w_hh.ndim < 2:
            raise ShapeError(
                f"{self.name}: x has axes for time, batch and features, w_hh two; got "
                f"x {x.shape} and w_hh {w_hh.shape}"
            )
        (_, *lead, n, width), hidden = x.shape, w_hh.shape[-2]
        columns = self.gates * hidden
        wanted = {"w_ih": (width, columns), "w_hh": (hidden, columns), "lengths": (n,)}
        wanted |= {k: (columns,) for k in named if k[0] == "b"}
        wanted |= {k: (n, hidden) for k in named if k in ("h0", "c0")}
        for name, tail in wanted.items():
            if named[name].shape != (*lead, *tail):
                raise ShapeError(
                    f"{self.name}: {name} has shape {named[name].shape}; beside x {x.shape} "
                    f"and w_hh {w_hh.shape} it must have {(*lead, *tail)}"
                )
        if lengths.dtype.kind not in "iu":
            raise DtypeError(f"{self.name}: lengths are integers; got {lengths.dtype}")
        return x.shape[:-2], n, hidden

    def workspace(self, *specs: Spec) -> int:
        x, w_ih, w_hh = specs[:3]  # x that is read, scaled weights, and some of a step's size
        step = 4 * w_hh.shape[-1] * x.shape[-2] * x.dtype.itemsize
        return 2 * x.nbytes + w_ih.nbytes + 2 * w_hh.nbytes + step + BUFFERS

    def batch(self, size, args, mapped):
        moving = mapped[1 : len(args) - 1 - self.states]  # weights and biases
        if any(moving):
            args = front(size, args, mapped)
            args[0] = shape.moveaxis(args[0], 0, 1)
            outs = apply(self, *args)
            pairs = zip(outs, self.timed, strict=True)
            return tuple(shape.moveaxis(o, 1, 0) if timed else o for o, timed in pairs)
        return self._larger(size, args, front(size, args, mapped), len(moving))

    def _larger(self, size, args, mapped, weights):
        """Mapped sequences with the same weights are a larger batch."""
        last, n = len(args) - 1, mapped[0].shape[-2]
        given = []
        for i, (a, m) in enumerate(zip(args, mapped, strict=True)):
            if 1 <= i <= weights:
                given.append(a)
                continue
            axis = m.ndim - (2 if i == last else 3)
            given.append(shape.flatten(shape.moveaxis(m, 0, axis), start=axis, end=axis + 1))
        outs = apply(self, *given)
        apart = (shape.reshape(o, (*o.shape[:-2], size, n, o.shape[-1])) for o in outs)
        return tuple(shape.moveaxis(o, -3, 0) for o in apart)


class SequenceGrad(Composite):
    """The gradient of such a layer, from what it kept; a variadic op.

    Its first result is the gradient of x, and the only one that has an axis of time.
    """

    backwards: bool = False
    outputs = ("*cotangents",)
    timed: ClassVar[tuple[int, ...]]  # positions of the operands with an axis of time
    blame: ClassVar[int]  # the operand that has the size of the blame of all steps

    def workspace(self, *specs: Spec) -> int:
        x, w_hh, blame = specs[0], specs[2], specs[self.blame]
        step = 4 * blame.nbytes // max(x.shape[0], 1)
        return blame.nbytes + 2 * x.nbytes + 2 * w_hh.nbytes + step + BUFFERS

    def batch(self, size, args, mapped):
        args = front(size, args, mapped)
        args = [shape.moveaxis(a, 0, 1) if i in self.timed else a for i, a in enumerate(args)]
        dx, *others = apply(self, *args)
        return (shape.moveaxis(dx, 1, 0), *others)


# -- in NumPy ----------------------------------------------------------------------------------


class Walk:
    """The steps of a batch of sequences: their order, and who is alive at each."""

    def __init__(self, who: str, lengths: np.ndarray, steps: int, *, backwards: bool) -> None:
        self.lengths, self.backwards = lengths, backwards
        self.order = range(steps)[:: -1 if backwards else 1]
        low, high = (lengths.min(), lengths.max()) if lengths.size else (steps, steps)
        if low < 0 or high > steps:
            raise ArgumentError(
                f"{who}: lengths must be from 0 to {steps}, the number of steps; got "
                f"{low if low < 0 else high}"
            )
        self.shortest = int(low)
        self.ragged = low < steps

    def alive(self, t: int) -> np.ndarray | None:
        """Which sequences are at step t, as [*L, N, 1]; None if all are."""
        return None if t < self.shortest else (t < self.lengths)[..., None]

    def read(self, x: np.ndarray) -> np.ndarray:
        """x with 0 in place of what lies beyond the lengths."""
        if not self.ragged:
            return x
        steps = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
        return np.where(steps < self.lengths[..., None], x, x.dtype.type(0))

    def before(self, t: int, states: np.ndarray, first: np.ndarray) -> np.ndarray:
        """The state before step t, of the states after each step and the first one."""
        if t == self.order[0]:
            return first
        return states[t + 1 if self.backwards else t - 1]

    def stood(self, t: int, y: np.ndarray, first: np.ndarray) -> np.ndarray:
        """The same, of outputs, which are 0 where the first state still stands."""
        found = self.before(t, y, first)
        if self.backwards and found is not first:
            on = self.alive(t + 1)
            found = found if on is None else np.where(on, found, first)
        return found

    def blame(self, y: np.ndarray, h0: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The sum over time of (state before)ᵀ @ d, which is 0 where a state stood still."""
        if not len(y):
            return np.zeros((*h0.shape[:-2], h0.shape[-1], d.shape[-1]), d.dtype)
        first = d[self.order[0]]
        if self.ragged and self.backwards:
            last = np.maximum(self.lengths - 1, 0)[None, ..., None]  # of length 0, d is 0
            y, first = self.read(y), np.take_along_axis(d, last, 0)[0]
        y, d = (y[1:], d[:-1]) if self.backwards else (y[:-1], d[1:])
        total = np.matmul(np.swapaxes(rows(y), -1, -2), rows(d))
        total += np.matmul(np.swapaxes(h0, -1, -2), first)
        return total


def rows(a: np.ndarray) -> np.ndarray:
    """[T, *L, N, K] as [*L, T * N, K]: all steps at once, for one product."""
    steps, *lead, n, k = a.shape
    return np.moveaxis(a, 0, -3).reshape(*lead, steps * n, k)


def turned(w: np.ndarray) -> np.ndarray:
    """The transpose as memory of its own: many small products go faster with it."""
    return np.ascontiguousarray(np.swapaxes(w, -1, -2))


def project(x: np.ndarray, w: np.ndarray, b: np.ndarray, *, room: int = 0) -> np.ndarray:
    """x @ w + b over all steps, as one product, after columns that are left as they are."""
    flat = rows(x)
    out = np.empty((*flat.shape[:-1], room + w.shape[-1]), x.dtype)
    part = out[..., room:]
    np.matmul(flat, w, out=part)
    part += b[..., None, :]
    return unrows(out, (*x.shape[:-1], out.shape[-1]))


def inward(d: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """The gradients of x, w and b, from that of x @ w + b over all steps."""
    flat = rows(d)
    dx = np.matmul(flat, np.swapaxes(w, -1, -2))
    dw = np.matmul(np.swapaxes(rows(x), -1, -2), flat)
    return unrows(dx, x.shape), dw, np.add.reduce(flat, axis=-2)


def unrows(a: np.ndarray, to: tuple[int, ...]) -> np.ndarray:
    """[*L, T * N, K] as `to`, which is [T, *L, N, K]."""
    steps, *lead, n, k = to
    return np.moveaxis(a.reshape(*lead, steps, n, k), -3, 0)


# -- in ops, for the plain twins ---------------------------------------------------------------


def alive(lengths: Any, steps: int) -> Any:
    """Which sequences are at which step, as [T, *L, N, 1]; refuses lengths beyond them."""
    lengths = apply(gather.RowNumbers(steps + 1), lengths)
    time = lift(np.arange(steps, dtype=lengths.dtype).reshape(steps, *(1,) * lengths.ndim))
    return shape.expand_dims(time < lengths, axis=-1)


def read(x: Any, on: Any) -> Any:
    """x with 0 beyond the lengths."""
    return select.where(on, x, 0.0)


def affine(x: Any, w: Any, b: Any) -> Any:
    """x @ w + b, for x [.., *L, N, I] and b [*L, G]."""
    return arithmetic.add(linalg.matmul(x, w), shape.expand_dims(b, axis=-2))


def walked(step: Any, first: Any, each: Any, *, reverse: bool) -> tuple[Any, Any]:
    """The last state and what all steps give: step(state, rows of `each`) in turn."""
    return FUNCTIONS["scan"](step, first, each, reverse=reverse)


def before(states: Any, first: Any, *, backwards: bool) -> Any:
    """The states before each step, of those after it and the first one."""
    steps, start = states.shape[0], shape.expand_dims(first, axis=0)
    if not steps:
        return states
    others = range(1, steps) if backwards else range(steps - 1)
    rest = pad.piece(states, 0, others.start, len(others))
    return join.concat([rest, start] if backwards else [start, rest], axis=0)


def stood(on: Any, y: Any, h0: Any) -> Any:
    """The states after each step, of outputs, which are 0 where the first one still stands."""
    return select.where(on, y, h0)


def flat(a: Any) -> Any:
    """[T, *L, N, K] as [*L, T * N, K]: all steps are rows of one matrix."""
    steps, *lead, n, k = a.shape
    return shape.reshape(shape.moveaxis(a, 0, -3), (*lead, steps * n, k))


def products(before: Any, d: Any) -> Any:
    """The sum of beforeᵀ @ d over the steps."""
    return linalg.matmul(linalg.matrix_transpose(flat(before)), flat(d))


def column_sums(d: Any) -> Any:
    """The sum of d over the steps and the batch."""
    return reduce.sum(flat(d), axis=-2)


def given(*pairs: tuple[Any, Any]) -> tuple[Any, ...]:
    """Cotangents of (cotangent or None, value): zeros for None, nothing if all are None."""
    if all(g is None for g, _ in pairs):
        return ()
    return tuple(create.zeros_like(value) if g is None else g for g, value in pairs)


def operands(rng: Any, gates: int, states: int, steps: int, batch: int, *, biases: int = 1):
    """x, w_ih, w_hh, biases and states for samples: 2 features in, states of 3."""
    sizes = [(steps, batch, 2), (2, gates * 3), (3, gates * 3)]
    sizes += [(gates * 3,)] * biases + [(batch, 3)] * states
    return [rng.uniform(-1, 1, size) for size in sizes]
