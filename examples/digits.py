"""Train a small network to read digits, and watch it learn.

The pictures are drawn by the script itself: glyphs of a bitmap font, shifted, stretched,
slanted, thickened, with noise. Training and test pictures are different draws.

  python examples/digits.py                     1500 steps, a picture in out/
  python examples/digits.py --steps 300         a quick look
  python examples/digits.py --seed 7 --out seven
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from pictures import save_picture

import retrograd as rg

# Ten glyphs of 5 x 7 dots, one hexadecimal pair for each row.
FONT = """0E11131519110E 040C040404040E 0E11010204081F 1F02040201110E 02060A121F0202
          1F101E0101110E 0608101E11110E 1F010204080808 0E11110E11110E 0E11110F01020C"""
ROWS = np.array([list(bytes.fromhex(glyph)) for glyph in FONT.split()])
GLYPHS = (ROWS[:, :, None] >> np.arange(4, -1, -1) & 1).astype(np.float32)  # [10, 7, 5]
SIDE, HIDDEN, BATCH = 12, 64, 128


def draw(key, count) -> tuple[rg.Tensor, rg.Tensor]:
    """`count` pictures [count, SIDE, SIDE] and their digits."""
    keys = rg.random.split(key, 2)
    u = np.asarray(rg.random.uniform(keys[0], (6, count, 1, 1), low=-1.0, high=1.0))
    digits = np.arange(count) % 10
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2
    row = (y - 1.3 * u[0]) / (1.35 + 0.2 * u[1]) + 3  # where each pixel lies in the glyph
    column = (x - 1.6 * u[2] + 0.25 * u[3] * y) / (1.6 + 0.3 * u[4]) + 2
    near_row = np.maximum(0, 1 - np.abs(row[..., None] - np.arange(7)))
    near_column = np.maximum(0, 1 - np.abs(column[..., None] - np.arange(5)))
    ink = np.einsum("nyxr,nyxc,nrc->nyx", near_row, near_column, GLYPHS[digits], optimize=True)
    ink = 1 / (1 + np.exp(-10 * (ink - 0.45 - 0.15 * u[5])))  # thin strokes and thick ones
    noise = rg.random.normal(keys[1], ink.shape, std=0.2)
    return rg.asarray(ink, dtype=rg.float32) + noise, rg.asarray(digits)


def network(key) -> dict[str, rg.Tensor]:
    """Weights and biases of two layers: a tree of tensors."""
    first, second = rg.random.split(key, 2)
    return {
        "w1": rg.random.normal(first, (SIDE * SIDE, HIDDEN), std=1 / SIDE),
        "b1": rg.zeros(HIDDEN),
        "w2": rg.random.normal(second, (HIDDEN, 10), std=HIDDEN**-0.5),
        "b2": rg.zeros(10),
    }


def scores(net, pictures) -> rg.Tensor:
    """One number for each digit, the largest for the likeliest."""
    x = pictures.reshape(-1, SIDE * SIDE)
    return rg.tanh(x @ net["w1"] + net["b1"]) @ net["w2"] + net["b2"]


def loss(net, pictures, digits) -> rg.Tensor:
    """Cross entropy: the mean of -log(probability of the right digit)."""
    z = scores(net, pictures)
    right = rg.take_along_axis(z, digits[:, None], axis=1)[:, 0]
    return rg.mean(rg.logsumexp(z, axis=1) - right)


def adam(net, grads, state, rate=3e-3) -> tuple:
    """One step of Adam, leaf by leaf."""
    step, m, v = state[0] + 1, *state[1:]
    m = rg.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = rg.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    size = rate * (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)
    net = rg.tree.map(lambda p, m, v: p - size * m / (rg.sqrt(v) + 1e-8), net, m, v)
    return net, (step, m, v)


def accuracy(net, pictures, digits) -> float:
    """The share of right answers."""
    return float(rg.mean(rg.argmax(scores(net, pictures), axis=1) == digits))


def train(net, data, test, steps, key) -> tuple[dict, list[float]]:
    """The trained network, and the loss of each step."""
    zeros = rg.tree.map(rg.zeros_like, net)
    state, curve, start = (0, zeros, zeros), [], time.perf_counter()
    live = sys.stdout.isatty()
    for step in range(1, steps + 1):
        u = rg.random.uniform(rg.random.fold_in(key, step), (BATCH,), high=len(data[1]))
        chosen = u.astype(rg.int64)
        value, grads = rg.value_and_grad(loss)(net, data[0][chosen], data[1][chosen])
        net, state = adam(net, grads, state)
        curve.append(float(value))
        if step % max(1, steps // (50 if live else 10)) == 0 or step == steps:
            line = f"step {step:5}/{steps}  loss {np.mean(curve[-50:]):.4f}  held-out accuracy "
            line += f"{accuracy(net, *test):6.1%}  {time.perf_counter() - start:4.1f} s"
            print(f"\r{line}" if live else line, end="" if live else "\n", flush=True)
    print(end="\n" if live else "")
    return net, curve


def table(found, digits) -> str:
    """How often each digit (rows) was read as which (columns)."""
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (digits, found), 1)
    shown = counts.astype(str)
    shown[counts == 0] = "."
    lines = [f"    {d} |" + "".join(f"{c:>5}" for c in row) for d, row in enumerate(shown)]
    return "\n".join(["read as" + "".join(f"{d:>5}" for d in range(10)), *lines])


def main() -> None:
    """Draw, train, test, save pictures."""
    examples = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=examples)
    parser.add_argument("--steps", type=int, default=1500, help="training steps (1500)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (0)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder to write to (out)"
    )
    options = parser.parse_args()
    if options.steps < 1 or not 0 <= options.seed < 2**64:
        parser.error("--steps must be at least 1, --seed in [0, 2**64)")
    options.out.mkdir(parents=True, exist_ok=True)

    keys = rg.random.split(rg.random.key(options.seed), 4)
    data, test = draw(keys[0], 8000), draw(keys[1], 1000)
    net, curve = train(network(keys[2]), data, test, options.steps, keys[3])

    found, digits = np.asarray(rg.argmax(scores(net, test[0]), axis=1)), np.asarray(test[1])
    print(f"\nheld-out accuracy {np.mean(found == digits):.1%} of {len(digits)} pictures\n")
    print(table(found, digits))
    print("wrote", save_picture(options.out, curve, np.asarray(test[0]), found, digits))
    leaves = rg.tree.map(lambda p: rg.tensor(p, requires_grad=True), net)
    tape = rg.debug.graph(loss(leaves, data[0][:BATCH], data[1][:BATCH]))
    print("wrote", tape.save(options.out / "tape.html"), f"({tape})")


if __name__ == "__main__":
    main()
