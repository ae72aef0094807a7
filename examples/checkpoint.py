"""checkpoint(f): keep the inputs of f, compute the rest again. The bytes are measured."""

import tracemalloc

import retrograd as rg

LAYERS, INNER, ROWS, WIDE = 12, 6, 512, 256


def block(x, w) -> rg.Tensor:
    """A block of many ops; each of them keeps something for the backward pass."""
    for _ in range(INNER):
        x = x + rg.tanh(x @ w) * rg.sigmoid(x)
    return x * (1 / (1 + INNER))


def loss(weights, x, run) -> rg.Tensor:
    """The blocks one after another, each applied by `run`."""
    for w in weights:
        x = run(block)(x, w)
    return rg.mean(x * x)


def measured(weights, x, run) -> tuple[int, int, list]:
    """Bytes on the tape, peak bytes of one training step, and the gradients."""
    tracemalloc.start()
    leaves = [rg.tensor(w, requires_grad=True) for w in weights]
    value = loss(leaves, x, run)
    kept = rg.debug.graph(value).nbytes
    value.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return kept, peak, [leaf.grad for leaf in leaves]


def main() -> None:
    """The same step with and without checkpoints."""
    keys = rg.random.split(rg.random.key(0), LAYERS + 1)
    x = rg.random.normal(keys[LAYERS], (ROWS, WIDE))
    weights = [rg.random.normal(keys[i], (WIDE, WIDE), std=WIDE**-0.5) for i in range(LAYERS)]

    grads = {}
    runs = {"plain": lambda f: f, "checkpoint": rg.checkpoint}
    print(f"{LAYERS} blocks of {INNER} layers, activations of {x.nbytes / 2**20:.1f} MiB\n")
    print(f"{'':<12}{'on the tape':>14}{'peak of a step':>18}")
    for name, run in runs.items():
        kept, peak, grads[name] = measured(weights, x, run)
        print(f"{name:<12}{kept / 2**20:>10.1f} MiB{peak / 2**20:>14.1f} MiB")

    pairs = zip(grads["plain"], grads["checkpoint"], strict=True)
    same = all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)
    print(f"\ngradients are the same to the bit: {same}")


if __name__ == "__main__":
    main()
