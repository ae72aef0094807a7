"""(d) LSTM and GRU over 64 steps, 128 to 256; the last output is classified; AdamW."""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

TIME, BATCH, SIZE, HIDDEN, CLASSES = 64, 32, 128, 256, 10


def _draw(gates: int) -> Drawn:
    draw, bound = Draw(), HIDDEN**-0.5
    params = {
        "w_ih": draw.uniform(-bound, bound, SIZE, gates * HIDDEN),
        "w_hh": draw.uniform(-bound, bound, HIDDEN, gates * HIDDEN),
        "b_ih": draw.uniform(-bound, bound, gates * HIDDEN),
        "b_hh": draw.uniform(-bound, bound, gates * HIDDEN),
    }
    draw.linear(params, "head", HIDDEN, CLASSES)
    data = {"x": draw.normal(TIME, BATCH, SIZE), "y": draw.integers(CLASSES, BATCH)}
    return Drawn(params, data)


def _ours(kind: str) -> Any:
    def make(rg: Any) -> Any:
        layer = getattr(rg.nn, kind)

        def loss(p: Any, d: Any) -> Any:
            weights = (p[n] for n in ("w_ih", "w_hh", "b_ih", "b_hh"))
            y, _ = layer(d["x"], *weights, time_major=True)
            return rg.nn.cross_entropy(y[-1] @ p["head.w"] + p["head.b"], d["y"])

        return loss

    return make


def _pytorch(kind: str) -> Any:
    def make(torch: Any) -> Any:
        f = torch.nn.functional
        layer = getattr(torch._VF, kind)  # what nn.LSTM and nn.GRU call with their weights
        # Inductor has no way to run oneDNN's LSTM, but the layer can run apart from its code.
        apart = torch.compiler.disable(layer)
        alone = kind == "lstm"

        def loss(p: Any, d: Any) -> Any:
            x = d["x"]
            start = x.new_zeros(1, BATCH, HIDDEN)
            state = (start, start) if kind == "lstm" else start
            weights = [p[n] for n in ("w_ih", "w_hh", "b_ih", "b_hh")]
            options = (True, 1, 0.0, True, False, False)
            run = apart if alone and torch.compiler.is_compiling() else layer
            y = run(x, state, weights, *options)[0]
            return f.cross_entropy(f.linear(y[-1], p["head.w"], p["head.b"]), d["y"])

        return loss

    return make


def _jax(kind: str) -> Any:
    def make(jax: Any) -> Any:
        jnp, nn = jax.numpy, jax.nn

        def lstm(p: Any) -> Any:
            def step(state: Any, given: Any) -> Any:
                h, c = state
                i, f, g, o = jnp.split(given + h @ p["w_hh"], 4, -1)
                c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
                h = nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), None

            return step

        def gru(p: Any) -> Any:
            def step(state: Any, given: Any) -> Any:
                (h,) = state
                more = h @ p["w_hh"] + p["b_hh"]
                r, z = jnp.split(nn.sigmoid((given + more)[:, : 2 * HIDDEN]), 2, -1)
                n = jnp.tanh(given[:, 2 * HIDDEN :] + r * more[:, 2 * HIDDEN :])
                return ((1 - z) * n + z * h,), None

            return step

        cell = lstm if kind == "lstm" else gru

        def loss(p: Any, d: Any) -> Any:
            given = d["x"] @ p["w_ih"] + p["b_ih"]  # all times in one product
            if kind == "lstm":
                given = given + p["b_hh"]
            zero = jnp.zeros((BATCH, HIDDEN))
            state = (zero, zero) if kind == "lstm" else (zero,)
            (h, *_), _ = jax.lax.scan(cell(p), state, given)
            log_p = nn.log_softmax(h @ p["head.w"] + p["head.b"])
            return -jnp.mean(jnp.take_along_axis(log_p, d["y"][:, None], 1))

        return loss

    return make


def _row(key: str, kind: str, gates: int) -> Row:
    return Row(
        key,
        f"{kind.upper()}, T 64, batch 32, 128 to 256",
        lambda: _draw(gates),
        _ours(kind),
        _pytorch(kind),
        _jax(kind),
        optimizer="adamw",
        layouts={"w_ih": "t", "w_hh": "t", "head.w": "t"},
    )


ROWS = [_row("d1", "lstm", 4), _row("d2", "gru", 3)]
