"""The gated recurrent unit over whole sequences, as one op whose backward is written by hand.

    r, z = sigmoid of x @ w_ih + b_ih + h @ w_hh + b_hh
    m = h @ w_hh + b_hh, the part of the candidate that the reset gate r holds back
    n = tanh(x @ w_ih + b_ih + r * m)
    h = n + z * (h - n)

Columns of the weights stand in the order r, z, n, which is PyTorch's, as is the place of b_hh
inside of the reset gate.
"""

from __future__ import annotations

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import op
from retrograd.core.spec import Spec, spec_of
from retrograd.ops import elementary, join, linalg, select
from retrograd.ops.nn import walk


@op
class Gru(walk.Sequence):
    """GRU over sequences; m, r, z and n of all steps are a result, as backward needs them.

    Keeps x, the weights, h0, lengths, y and these gates (4 H a step).
    """

    native = "recurrent"
    outputs = ("y", "h", "gates")
    timed = (True, False, True)
    gates = 3

    def shape(
        self, x: Spec, w_ih: Spec, w_hh: Spec, b_ih: Spec, b_hh: Spec, h0: Spec, lengths: Spec
    ) -> tuple[Spec, ...]:
        time, n, width = self.sizes(x, w_ih, w_hh, b_ih, b_hh, h0, lengths)
        return x.with_shape((*time, n, width)), h0, x.with_shape((*time, n, 4 * width))

    def forward(self, x, w_ih, w_hh, b_ih, b_hh, h0, lengths):
        specs = self.shape(*map(spec_of, (x, w_ih, w_hh, b_ih, b_hh, h0, lengths)))
        way = walk.Walk("gru", lengths, len(x), backwards=self.backwards)
        y, width = np.empty(specs[0].shape, x.dtype), h0.shape[-1]
        half = np.repeat(np.asarray((0.5, 0.5, 1), x.dtype), width)
        gates = walk.project(way.read(x), w_ih * half, b_ih * half, room=width)
        w, b, h = _rolled(w_hh * half), _rolled(b_hh * half)[..., None, :], h0
        for t in way.order:
            all_, out, on = gates[t], y[t], way.alive(t)
            m, rz, n = all_[..., :width], all_[..., width : 3 * width], all_[..., 3 * width :]
            inner = np.matmul(h, w)
            inner += b
            m[...] = inner[..., :width]
            rz += inner[..., width:]
            np.tanh(rz, out=rz)  # sigmoid(a) = tanh(a / 2) / 2 + 1/2
            rz *= 0.5
            rz += 0.5
            n += rz[..., :width] * m
            np.tanh(n, out=n)
            np.subtract(h, n, out=out)
            out *= rz[..., width:]
            out += n
            if on is None:
                h = out
            else:
                h = np.where(on, out, h)
                for part in (out, all_):
                    np.copyto(part, 0, where=~on)
        return y, h.copy(), gates

    def vjp(
        self,
        g_y,
        g_h,
        g_gates=None,
        x=None,
        w_ih=None,
        w_hh=None,
        h0=None,
        lengths=None,
        y=None,
        gates=None,
    ):
        inner = walk.given((g_gates, gates))
        kept = (x, w_ih, w_hh, h0, lengths, y, gates)
        return apply(GruGrad(self.backwards), *kept, g_y, g_h, *inner)

    def expand(self, x, w_ih, w_hh, b_ih, b_hh, h0, lengths):
        on = walk.alive(lengths, x.shape[0])
        inputs = walk.affine(walk.read(x, on), w_ih, b_ih)

        def step(h, row):
            given, on = row
            parts = bent(given, walk.affine(h, w_hh, b_hh))
            _, _, z, n = parts
            out = n + z * (h - n)
            gates = select.where(on, join.concat(list(parts), axis=-1), 0.0)
            return select.where(on, out, h), (select.where(on, out, 0.0), gates)

        h, (y, gates) = walk.walked(step, h0, (inputs, on), reverse=self.backwards)
        return y, h, gates

    @staticmethod
    def samples(rng):
        for back, lengths in (
            (False, [3, 3]),
            (True, [4, 4, 4]),
            (False, []),
            (False, [4, 0, 2]),
            (True, [1, 4, 0]),
        ):
            steps = max(lengths, default=2)
            xs = walk.operands(rng, 3, 1, steps, len(lengths), biases=2)
            yield Gru(back), *xs, np.array(lengths, np.int64)

    @staticmethod
    def refuses(rng):
        xs = walk.operands(rng, 3, 1, 3, 2, biases=2)
        yield Gru(), *xs[:3], xs[3][:1], *xs[4:], np.array([3, 3]), "b_ih has shape (1,)"
        yield Gru(), *xs, np.array([3]), "lengths has shape (1,)"


@op
class GruGrad(walk.SequenceGrad):
    """The gradients of x, w_ih, w_hh, b_ih, b_hh and h0 of a GRU.

    From x, w_ih, w_hh, h0, lengths, y, gates and the cotangents of y and h; that of the gates
    may follow.
    """

    native = "recurrent back"
    timed = (0, 5, 6, 7, 9)
    blame = 6

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        x, w_ih, w_hh, h0 = args[:4]
        b = w_ih.with_shape((*w_ih.shape[:-2], w_ih.shape[-1]))
        return x, w_ih, w_hh, b, b, h0

    def forward(self, *args):
        x, w_ih, w_hh, h0, lengths, y, gates, g_y, dh, *inner = args
        way = walk.Walk("gru", lengths, len(x), backwards=self.backwards)
        d, width = np.empty_like(gates), h0.shape[-1]
        back = walk.turned(_rolled(w_hh))
        for t in reversed(way.order):
            on, blame = way.alive(t), d[t]
            m, r, z, n = _quarters(gates[t])
            dm, dr, dz, dn = _quarters(blame)
            total = dh + g_y[t]
            h = way.stood(t, y, h0)
            np.subtract(h, n, out=dz)
            dz *= total
            np.multiply(total, 1 - z, out=dn)
            if inner:
                extra = _quarters(inner[0][t])
                dz += extra[2]
                dn += extra[3]
            dz *= z - z * z
            dn *= 1 - n * n
            np.multiply(dn, r, out=dm)
            np.multiply(dn, m, out=dr)
            if inner:
                dm += extra[0]
                dr += extra[1]
            dr *= r - r * r
            before = np.matmul(blame[..., : 3 * width], back)
            before += total * z
            if on is not None:
                np.copyto(blame, 0, where=~on)
                before = np.where(on, before, dh)
            dh = before
        inside = d[..., : 3 * width]
        dw_hh = _rolled(way.blame(y, h0, inside), back=True)
        dx, dw_ih, db_ih = walk.inward(d[..., width:], way.read(x), w_ih)
        db_hh = _rolled(np.add.reduce(walk.rows(inside), axis=-2), back=True)
        return dx, dw_ih, dw_hh, db_ih, db_hh, dh

    def expand(self, *args):
        x, w_ih, w_hh, h0, lengths, y, gates, g_y, dh, *inner = args
        on = walk.alive(lengths, x.shape[0])
        before = walk.before(walk.stood(on, y, h0), h0, backwards=self.backwards)
        back = linalg.matrix_transpose(w_hh)

        def step(dh, row):
            parts, h, g_y, on, *extra = row
            m, r, z, n = join.split(parts, 4, axis=-1)
            more = join.split(extra[0], 4, axis=-1) if extra else (0.0, 0.0, 0.0, 0.0)
            total = dh + g_y
            dz = (total * (h - n) + more[2]) * (z - z * z)
            dn = (total * (1.0 - z) + more[3]) * (1.0 - n * n)
            dm = dn * r + more[0]
            dr = (dn * m + more[1]) * (r - r * r)
            d = select.where(on, join.concat([dr, dz, dm], axis=-1), 0.0)
            d_in = select.where(on, join.concat([dr, dz, dn], axis=-1), 0.0)
            return select.where(on, linalg.matmul(d, back) + total * z, dh), (d, d_in)

        each = (gates, before, g_y, on, *inner)
        dh, (d, d_in) = walk.walked(step, dh, each, reverse=not self.backwards)
        dx = linalg.matmul(d_in, linalg.matrix_transpose(w_ih))
        dw_ih, dw_hh = walk.products(walk.read(x, on), d_in), walk.products(before, d)
        return dx, dw_ih, dw_hh, walk.column_sums(d_in), walk.column_sums(d), dh

    @staticmethod
    def samples(rng):
        for layer, x, w_ih, w_hh, b_ih, b_hh, h0, lengths in Gru.samples(rng):
            y, h, gates = layer.forward(x, w_ih, w_hh, b_ih, b_hh, h0, lengths)
            given = [rng.normal(size=a.shape) for a in (y, h, gates)]
            kept = (x, w_ih, w_hh, h0, lengths, y, gates)
            yield GruGrad(layer.backwards), *kept, *(given if len(x) == 4 else given[:2])


def bent(inputs, states):
    """m, r, z and n in ops, of the sums that x and h give: [.., 3 H] each."""
    a, c = join.split(inputs, 3, axis=-1), join.split(states, 3, axis=-1)
    r, z = (elementary.sigmoid(a[i] + c[i]) for i in (0, 1))
    return c[2], r, z, elementary.tanh(a[2] + r * c[2])


def _rolled(w, *, back=False):
    """Columns r, z, n as n, r, z: beside x's r, z, n they share the two in the middle."""
    third = w.shape[-1] // 3
    return np.roll(w, -third if back else third, axis=-1)


def _quarters(a):
    n = a.shape[-1] // 4
    return a[..., :n], a[..., n : 2 * n], a[..., 2 * n : 3 * n], a[..., 3 * n :]
