"""Process memory follows the budget: training steps in processes of their own."""

import subprocess
import sys
import textwrap

import pytest

SLACK = 64 << 20  # beyond the budget: code, the interpreter, what the C library keeps

SCRIPT = """
    import sys
    import numpy as np
    import retrograd as rg

    SIZE, HEADS, LENGTH = 256, 8, 256
    nn, rng = rg.nn, np.random.default_rng(0)

    def resident():
        with open("/proc/self/status") as status:
            return next(int(l.split()[1]) for l in status if l.startswith("VmHWM")) * 1024

    def draw(*shape):  # such that gelu layers keep sizes: what vanishes is slow to compute
        return rg.asarray(1.5 * rng.normal(size=shape).astype("f") / shape[0] ** 0.5)

    def dense(p, x):
        return nn.gelu(x @ p["w"])

    def block(p, x):
        q, k, v = rg.split(nn.layer_norm(x, p["one"], p["zero"]) @ p["qkv"], 3, axis=-1)
        heads = [t.reshape(*x.shape[:2], HEADS, SIZE // HEADS) for t in (q, k, v)]
        x = x + nn.attention(*heads, causal=True).reshape(x.shape) @ p["out"]
        return x + nn.gelu(nn.layer_norm(x, p["two"], p["zero"]) @ p["up"]) @ p["down"]

    def weights():
        mats = {"qkv": 3 * SIZE, "out": SIZE, "up": 4 * SIZE}
        found = {name: draw(SIZE, n) for name, n in mats.items()}
        rows = {"one": rg.ones(SIZE), "two": rg.ones(SIZE), "zero": rg.zeros(SIZE)}
        return {**found, "down": draw(4 * SIZE, SIZE), **rows}

    if sys.argv[1] == "mlp":  # 64 layers of [2048, 512]
        layer, ws, x = dense, [{"w": draw(512, 512)} for _ in range(64)], 30 * draw(2048, 512)
    else:  # a transformer of 12 blocks
        layer, ws, x = block, [weights() for _ in range(12)], draw(8, LENGTH, SIZE)

    def loss(ws, x):
        for p in ws:
            x = layer(p, x)
        return rg.mean(x * x)

    def step(ws, x):
        value, grads = rg.value_and_grad(loss)(ws, x)
        return rg.tree.map(lambda w, g: w - 1e-4 * g, ws, grads), value

    budget = None if sys.argv[2] == "none" else int(sys.argv[2])
    f = rg.jit(step, donate="ws", budget=budget)
    f.lower(ws, x).compile()
    before = resident()
    for _ in range(2):
        ws, value = f(ws, x)
    assert np.isfinite(float(value))
    print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("model", "mib"), [("mlp", 160), ("transformer", 80)])
def test_the_process_keeps_to_it(model, mib):
    """Resident memory stays within the budget; without one it is more than twice that."""

    def grown(budget):
        command = [sys.executable, "-c", textwrap.dedent(SCRIPT), model, str(budget)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    budget = mib << 20
    assert grown(budget) <= budget + SLACK
    assert grown("none") > 2 * budget


COMPILES = """
    import retrograd as rg

    rg.jit(lambda x: rg.sum(rg.exp(x @ x)))(rg.ones((64, 64)))
    inside, kept = False, 0
    for line in open("/proc/self/smaps"):
        word, *rest = line.split()
        if not word.endswith(":"):
            inside = "libllvmlite" in line and rest[0] == "r-xp"
        elif inside and word == "Rss:":
            kept += int(rest[0]) * 1024
    print(kept)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_what_compiles_leaves_the_process_when_it_is_done():
    """A compiler's code is tens of MB; a program needs it once."""
    code = textwrap.dedent(COMPILES)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 8 << 20
