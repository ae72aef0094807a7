"""The plain recurrent layer over sequences: h = tanh or relu of x @ w_ih + h @ w_hh + b."""

from __future__ import annotations

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import op
from retrograd.core.spec import Spec, spec_of
from retrograd.ops import cast, elementary, linalg, select
from retrograd.ops.nn import activations, walk


@op
class Rnn(walk.Sequence):
    """A plain recurrent layer over sequences. At 0 the slope of relu is 0.

    Keeps x, the weights, h0, lengths and y.
    """

    backwards: bool = False
    relu: bool = False
    native = "recurrent"
    outputs = ("y", "h")
    timed = (True, False)
    gates = 1

    def shape(
        self, x: Spec, w_ih: Spec, w_hh: Spec, b: Spec, h0: Spec, lengths: Spec
    ) -> tuple[Spec, ...]:
        time, n, width = self.sizes(x, w_ih, w_hh, b, h0, lengths)
        return x.with_shape((*time, n, width)), h0

    def forward(self, x, w_ih, w_hh, b, h0, lengths):
        self.shape(*map(spec_of, (x, w_ih, w_hh, b, h0, lengths)))
        way = walk.Walk("rnn", lengths, len(x), backwards=self.backwards)
        y, h = walk.project(way.read(x), w_ih, b), h0
        for t in way.order:
            out, on = y[t], way.alive(t)
            out += np.matmul(h, w_hh)
            np.maximum(out, 0, out=out) if self.relu else np.tanh(out, out=out)
            if on is None:
                h = out
            else:
                h = np.where(on, out, h)
                np.copyto(out, 0, where=~on)
        return y, h.copy()

    def vjp(self, g_y, g_h, x=None, w_ih=None, w_hh=None, h0=None, lengths=None, y=None):
        rule = RnnGrad(self.backwards, self.relu)
        return apply(rule, x, w_ih, w_hh, h0, lengths, y, g_y, g_h)

    def expand(self, x, w_ih, w_hh, b, h0, lengths):
        on = walk.alive(lengths, x.shape[0])
        inputs = walk.affine(walk.read(x, on), w_ih, b)

        def step(h, row):
            given, on = row
            out = bent(given + linalg.matmul(h, w_hh), relu=self.relu)
            return select.where(on, out, h), select.where(on, out, 0.0)

        h, y = walk.walked(step, h0, (inputs, on), reverse=self.backwards)
        return y, h

    @staticmethod
    def samples(rng):
        for back, relu, lengths in (
            (False, False, [3, 3]),
            (True, True, [4, 4, 4]),
            (False, True, []),
            (False, False, [4, 0, 2]),
            (True, False, [1, 4, 0]),
        ):
            steps = max(lengths, default=2)
            xs = walk.operands(rng, 1, 1, steps, len(lengths))
            yield Rnn(back, relu), *xs, np.array(lengths, np.int64)

    @staticmethod
    def refuses(rng):
        xs = walk.operands(rng, 1, 1, 3, 2)
        yield (
            Rnn(),
            *xs,
            np.array([-1, 3]),
            "lengths must be from 0 to 3, the number of steps; got -1",
        )
        yield Rnn(), *xs, np.array([1.0, 3.0]), "lengths are integers; got float64"
        yield Rnn(), xs[0][0], *xs[1:], np.array([3, 3]), "axes for time, batch and features"


@op
class RnnGrad(walk.SequenceGrad):
    """The gradients of x, w_ih, w_hh, b and h0 of a plain recurrent layer.

    From x, w_ih, w_hh, h0, lengths, y and the cotangents of y and h.
    """

    backwards: bool = False
    relu: bool = False
    native = "recurrent back"
    timed = (0, 5, 6)
    blame = 5

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        x, w_ih, w_hh, h0 = args[:4]
        return x, w_ih, w_hh, w_ih.with_shape((*w_ih.shape[:-2], w_ih.shape[-1])), h0

    def forward(self, *args):
        x, w_ih, w_hh, h0, lengths, y, g_y, dh = args
        way = walk.Walk("rnn", lengths, len(x), backwards=self.backwards)
        d = (y > 0).astype(y.dtype) if self.relu else 1 - y * y
        back = walk.turned(w_hh)
        for t in reversed(way.order):
            blame, on = d[t], way.alive(t)
            blame *= dh + g_y[t]
            before = np.matmul(blame, back)
            if on is not None:
                np.copyto(blame, 0, where=~on)
                before = np.where(on, before, dh)
            dh = before
        dw_hh = way.blame(y, h0, d)
        dx, dw_ih, db = walk.inward(d, way.read(x), w_ih)
        return dx, dw_ih, dw_hh, db, dh

    def expand(self, *args):
        x, w_ih, w_hh, h0, lengths, y, g_y, dh = args
        on = walk.alive(lengths, x.shape[0])
        slopes = cast.astype(y > 0.0, x.dtype) if self.relu else 1.0 - y * y
        back = linalg.matrix_transpose(w_hh)

        def step(dh, row):
            slope, g_y, on = row
            d = select.where(on, (dh + g_y) * slope, 0.0)
            return select.where(on, linalg.matmul(d, back), dh), d

        dh, d = walk.walked(step, dh, (slopes, g_y, on), reverse=not self.backwards)
        before = walk.before(walk.stood(on, y, h0), h0, backwards=self.backwards)
        dx = linalg.matmul(d, linalg.matrix_transpose(w_ih))
        dw_ih, dw_hh = walk.products(walk.read(x, on), d), walk.products(before, d)
        return dx, dw_ih, dw_hh, walk.column_sums(d), dh

    @staticmethod
    def samples(rng):
        for layer, x, w_ih, w_hh, b, h0, lengths in Rnn.samples(rng):
            y, h = layer.forward(x, w_ih, w_hh, b, h0, lengths)
            given = (rng.normal(size=a.shape) for a in (y, h))
            kept = (x, w_ih, w_hh, h0, lengths, y + 0.1 * layer.relu)  # relu's y is often 0
            yield RnnGrad(layer.backwards, layer.relu), *kept, *given


def bent(z, *, relu):
    """The activation, in ops; at 0 the slope of relu is 0."""
    return activations.relu(z) if relu else elementary.tanh(z)
