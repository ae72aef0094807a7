"""Long short-term memory over whole sequences, as one op whose backward is written by hand.

    i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x @ w_ih + h @ w_hh + b
    c = f * c + i * g
    h = o * tanh(c)

Columns of the weights stand in this order, which is PyTorch's.
"""

from __future__ import annotations

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import op
from retrograd.core.spec import Spec, spec_of
from retrograd.ops import elementary, join, linalg, select
from retrograd.ops.nn import walk


@op
class Lstm(walk.Sequence):
    """LSTM over sequences; gates and cells of all steps are results, as backward needs them.

    Keeps x, the weights, h0, c0, lengths, y, gates (4 H a step) and cells (H a step).
    """

    native = "recurrent"
    outputs = ("y", "h", "c", "gates", "cells")
    timed = (True, False, False, True, True)
    gates = 4
    states = 2

    def shape(
        self, x: Spec, w_ih: Spec, w_hh: Spec, b: Spec, h0: Spec, c0: Spec, lengths: Spec
    ) -> tuple[Spec, ...]:
        time, n, width = self.sizes(x, w_ih, w_hh, b, h0, c0, lengths)
        y = x.with_shape((*time, n, width))
        return y, h0, c0, x.with_shape((*time, n, 4 * width)), y

    def forward(self, x, w_ih, w_hh, b, h0, c0, lengths):
        y_spec = self.shape(*map(spec_of, (x, w_ih, w_hh, b, h0, c0, lengths)))[0]
        way = walk.Walk("lstm", lengths, len(x), backwards=self.backwards)
        scale, shift = _bend(w_hh)
        gates = walk.project(way.read(x), w_ih * scale, b * scale)
        y, cells = np.empty(y_spec.shape, x.dtype), np.empty(y_spec.shape, x.dtype)
        w, h, c, spare = w_hh * scale, h0, c0, np.empty_like(gates[0]) if len(x) else None
        for t in way.order:
            z, new, out = gates[t], cells[t], y[t]
            z += np.matmul(h, w, out=spare)
            np.tanh(z, out=z)
            z *= scale
            z += shift
            i, f, g, o = _quarters(z)
            np.multiply(f, c, out=new)
            new += i * g
            np.tanh(new, out=out)
            out *= o
            on = way.alive(t)
            if on is None:
                h = out
            else:
                np.copyto(new, c, where=~on)
                h = np.where(on, out, h)
                for part in (out, z):
                    np.copyto(part, 0, where=~on)
            c = new
        return y, h.copy(), c.copy(), gates, cells

    def vjp(
        self,
        g_y,
        g_h,
        g_c,
        g_gates=None,
        g_cells=None,
        x=None,
        w_ih=None,
        w_hh=None,
        h0=None,
        c0=None,
        lengths=None,
        y=None,
        gates=None,
        cells=None,
    ):
        inner = walk.given((g_gates, gates), (g_cells, cells))
        kept = (x, w_ih, w_hh, h0, c0, lengths, y, gates, cells)
        return apply(LstmGrad(self.backwards), *kept, g_y, g_h, g_c, *inner)

    def expand(self, x, w_ih, w_hh, b, h0, c0, lengths):
        on = walk.alive(lengths, x.shape[0])
        inputs = walk.affine(walk.read(x, on), w_ih, b)

        def step(state, row):
            (h, c), (given, on) = state, row
            z = bent(given + linalg.matmul(h, w_hh))
            i, f, g, o = join.split(z, 4, axis=-1)
            new = f * c + i * g
            out = o * elementary.tanh(new)
            y, gates = select.where(on, out, 0.0), select.where(on, z, 0.0)
            h, c = select.where(on, out, h), select.where(on, new, c)
            return (h, c), (y, gates, c)

        found = walk.walked(step, (h0, c0), (inputs, on), reverse=self.backwards)
        (h, c), (y, gates, cells) = found
        return y, h, c, gates, cells

    @staticmethod
    def samples(rng):
        for back, steps, batch in ((False, 3, 2), (True, 4, 3), (False, 1, 0), (True, 0, 2)):
            full = np.full(batch, steps)
            yield (Lstm(back), *walk.operands(rng, 4, 2, steps, batch), full)
        yield (Lstm(), *walk.operands(rng, 4, 2, 4, 3), np.array([4, 0, 2]))
        yield (Lstm(True), *walk.operands(rng, 4, 2, 4, 3), np.array([1, 3, 0]))

    @staticmethod
    def refuses(rng):
        xs = walk.operands(rng, 4, 2, 3, 2)
        yield Lstm(), *xs, np.array([3, 4]), "lengths must be from 0 to 3"
        yield Lstm(), *xs[:4], xs[4][:1], xs[5], np.array([3, 3]), "h0 has shape (1, 3)"


@op
class LstmGrad(walk.SequenceGrad):
    """The gradients of x, w_ih, w_hh, b, h0 and c0 of an LSTM.

    From x, w_ih, w_hh, h0, c0, lengths, y, gates, cells and the cotangents of y, h and c;
    those of gates and cells may follow. All steps are one product where they can be.
    """

    native = "recurrent back"
    timed = (0, 6, 7, 8, 9, 12, 13)
    blame = 7

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        x, w_ih, w_hh, h0, c0 = args[:5]
        return x, w_ih, w_hh, w_ih.with_shape((*w_ih.shape[:-2], w_ih.shape[-1])), h0, c0

    def forward(self, *args):
        x, w_ih, w_hh, h0, c0, lengths, y, gates, cells, g_y, dh, dc, *inner = args
        way = walk.Walk("lstm", lengths, len(x), backwards=self.backwards)
        d, back = np.empty_like(gates), walk.turned(w_hh)
        for t in reversed(way.order):
            z, on, blame = gates[t], way.alive(t), d[t]
            i, f, g, o = _quarters(z)
            di, df, dg, do = _quarters(blame)
            bent_c = np.tanh(cells[t])
            total = dh + g_y[t]
            np.multiply(total, bent_c, out=do)
            bent_c *= bent_c
            total *= o
            total -= total * bent_c  # what reaches the cell through the output
            total += dc
            if inner:
                total += inner[1][t]
            np.multiply(total, g, out=di)
            np.multiply(total, way.before(t, cells, c0), out=df)
            np.multiply(total, i, out=dg)
            if inner:
                blame += inner[0][t]
            blame *= _slopes(z)
            total *= f
            before = np.matmul(blame, back)
            if on is not None:
                np.copyto(blame, 0, where=~on)
                stood = dc + inner[1][t] if inner else dc
                before, total = np.where(on, before, dh), np.where(on, total, stood)
            dh, dc = before, total
        dw_hh = way.blame(y, h0, d)
        dx, dw_ih, db = walk.inward(d, way.read(x), w_ih)
        return dx, dw_ih, dw_hh, db, dh, dc

    def expand(self, *args):
        x, w_ih, w_hh, h0, c0, lengths, y, gates, cells, g_y, dh, dc, *inner = args
        on = walk.alive(lengths, x.shape[0])
        past = walk.before(cells, c0, backwards=self.backwards)
        back = linalg.matrix_transpose(w_hh)

        def step(state, row):
            (dh, dc), (z, bent_c, c, g_y, on, *extra) = state, row
            i, f, g, o = join.split(z, 4, axis=-1)
            total = dh + g_y
            stood = dc + extra[1] if extra else dc
            blame_c = stood + total * o * (1.0 - bent_c * bent_c)
            blame = [blame_c * g, blame_c * c, blame_c * i, total * bent_c]
            blame = join.concat(blame, axis=-1)
            blame = blame + extra[0] if extra else blame
            slopes = [i - i * i, f - f * f, 1.0 - g * g, o - o * o]
            d = select.where(on, blame * join.concat(slopes, axis=-1), 0.0)
            dh = select.where(on, linalg.matmul(d, back), dh)
            return (dh, select.where(on, blame_c * f, stood)), d

        each = (gates, elementary.tanh(cells), past, g_y, on, *inner)
        (dh, dc), d = walk.walked(step, (dh, dc), each, reverse=not self.backwards)
        before = walk.before(walk.stood(on, y, h0), h0, backwards=self.backwards)
        dx = linalg.matmul(d, linalg.matrix_transpose(w_ih))
        dw_ih, dw_hh = walk.products(walk.read(x, on), d), walk.products(before, d)
        return dx, dw_ih, dw_hh, walk.column_sums(d), dh, dc

    @staticmethod
    def samples(rng):
        for layer, x, w_ih, w_hh, b, *states, lengths in Lstm.samples(rng):
            y, h, c, gates, cells = layer.forward(x, w_ih, w_hh, b, *states, lengths)
            kept = (x, w_ih, w_hh, *states, lengths, y, gates, cells)
            given = [rng.normal(size=a.shape) for a in (y, h, c, gates, cells)]
            yield LstmGrad(layer.backwards), *kept, *(given if len(x) == 4 else given[:3])


def bent(z):
    """The gates of their sums, in ops: sigmoid, but tanh of the third."""
    i, f, g, o = join.split(z, 4, axis=-1)
    sigmoid = elementary.sigmoid
    return join.concat([sigmoid(i), sigmoid(f), elementary.tanh(g), sigmoid(o)], axis=-1)


def _bend(w_hh):
    """sigmoid(z) = tanh(z / 2) / 2 + 1/2: all gates are scale * tanh(scale * z) + shift."""
    half = np.full(w_hh.shape[-1], 0.5, w_hh.dtype)
    shift = half.copy()
    _quarters(half)[2][...] = 1
    _quarters(shift)[2][...] = 0
    return half, shift


def _slopes(z):
    """The derivatives of the gates, of their values: z - z * z, but 1 - z * z of the third."""
    out = z * z
    np.subtract(z, out, out=out)
    g = _quarters(z)[2]
    _quarters(out)[2][...] += 1 - g
    return out


def _quarters(z):
    n = z.shape[-1] // 4
    return z[..., :n], z[..., n : 2 * n], z[..., 2 * n : 3 * n], z[..., 3 * n :]
