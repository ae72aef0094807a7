"""Ten small programs as text, as traced and after all passes, line by line as in golden/.

A change of the engine that should not change programs must not change these files.
RETROGRAD_ACCEPT=1 writes them anew; read the difference before it is committed:

    RETROGRAD_ACCEPT=1 python -m pytest tests/ir/test_golden.py && git diff tests/ir/golden
"""

import os
from pathlib import Path

import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.spec import Spec
from retrograd.ir.parse import parse
from retrograd.ir.text import show
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.passes import optimized

GOLDEN = Path(__file__).parent / "golden"
ACCEPT = os.environ.get("RETROGRAD_ACCEPT", "0") not in ("", "0")


def spec(*shape, dtype=dt.float32):
    return Spec(shape, dtype)


def mlp(w1, b1, w2, x, y):
    h = rg.maximum(x @ w1 + b1, 0)
    return rg.mean((h @ w2 - y) ** 2)


def adam(p, g, m, v, step):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    t = step + 1
    rate = 1e-3 * rg.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return [p - rate * m / (rg.sqrt(v) + 1e-8), m, v, t]


def running(a, xs):
    def step(h, x):
        h = rg.tanh(a * h + x)
        return h, h * h

    carry, ys = rg.scan(step, rg.zeros(3), xs)
    return rg.sum(carry) + rg.sum(ys)


def newton(x):
    def better(state):
        guess, n = state
        return 0.5 * (guess + x / guess), n + 1

    wrong = lambda state: rg.abs(state[0] * state[0] - x) > 1e-6 * x
    return list(rg.while_loop(wrong, better, (x, rg.asarray(0))))


def blocks(w, x):
    @rg.checkpoint
    def block(x):
        return rg.sin(x @ w) * 2.0

    return rg.sum(block(block(x)))


def head(q, k, v):
    scores = q @ k.mT / 8
    seen = rg.arange(16)[:, None] >= rg.arange(16)
    return rg.nn.softmax(rg.where(seen, scores, -rg.inf)) @ v


PROGRAMS = {
    "mlp_grad": (
        lambda *a: list(rg.grad(mlp, (0, 1, 2))(*a)),
        [spec(4, 8), spec(8), spec(8, 2), spec(16, 4), spec(16, 2)],
    ),
    "cross_entropy_grad": (
        lambda x, y: [rg.grad(lambda x: rg.nn.cross_entropy(x, y))(x)],
        [spec(16, 10), spec(16, dtype=dt.int64)],
    ),
    "layer_norm": (
        lambda x, w, b: [rg.nn.layer_norm(x, w, b)],
        [spec(4, 8), spec(8), spec(8)],
    ),
    "adam": (adam, [spec(100)] * 4 + [spec()]),
    "scan_grad": (lambda a, xs: [rg.grad(running)(a, xs)], [spec(3), spec(5, 3)]),
    "cond": (
        lambda x: [rg.cond(rg.sum(x) > 0, rg.exp, lambda y: y * 2 + 1, x)],
        [spec(3)],
    ),
    "while_loop": (newton, [spec()]),
    "vmap": (
        lambda w, xs: [rg.vmap(lambda x: rg.tanh(w @ x) / rg.sqrt(rg.sum(x * x)))(xs)],
        [spec(4, 3), spec(10, 3)],
    ),
    "checkpoint_grad": (lambda w, x: [rg.grad(blocks)(w, x)], [spec(4, 4), spec(2, 4)]),
    "attention": (lambda q, k, v: [head(q, k, v)], [spec(2, 16, 64)] * 3),
}


def text(name):
    """The program as traced, and after all passes."""
    f, specs = PROGRAMS[name]
    graph, captured = trace(f, specs)
    assert not captured
    graphs = {"traced": graph, "after all passes": optimized(graph)}
    for found in graphs.values():
        assert parse(show(verify(found), lines=False)) == found
    return "".join(f"# {title}\n{show(g, lines=False)}\n\n" for title, g in graphs.items())


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    file = GOLDEN / f"{name}.txt"
    found = text(name)
    if ACCEPT:
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8"), "RETROGRAD_ACCEPT=1 writes it anew"


def test_no_file_is_left_over():
    assert {f.stem for f in GOLDEN.iterdir()} == set(PROGRAMS)
