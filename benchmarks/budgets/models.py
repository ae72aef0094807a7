"""The models: layers that each library writes its own way, and what to keep of each.

A model becomes a row of the training steps (`steps/row.py`): so each library runs it as it runs
those. What differs between settings of a library is the loss alone; of ours, the budget.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.steps import cnn, mamba3, transformer
from benchmarks.steps.row import CALM, Arrays, Draw, Drawn, Row

POLICIES = (
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
)
ROWS = 128  # of the data, that are looked at to scale weights
# What a library gives for a model: a layer (its weights, x), and the loss (weights, x, data).
Parts = tuple[Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True)
class Model:
    """Layers that follow each other, and a loss at the end, which has the last weights."""

    key: str
    name: str
    draw: Callable[[], tuple[list[Arrays], Arrays]]
    ours: Callable[[Any], Parts]
    pytorch: Callable[[Any], Parts]
    jax: Callable[[Any], Parts]
    segments: tuple[int, ...]  # of torch.utils.checkpoint
    policies: tuple[str, ...]  # of jax.checkpoint
    layouts: dict[str, str] = field(default_factory=dict)
    lr: float = 1e-3
    kinks: bool = False

    def row(self, *, segments: int = 0, policy: str = "") -> Row:
        """The training step. PyTorch's layers in segments, JAX's each with a policy."""
        layers, data = self.draw()
        flat = {f"{i}.{n}": a for i, p in enumerate(layers) for n, a in p.items()}
        names = [list(p) for p in layers]
        tail = {n: self.layouts[n.split(".", 1)[1]] for n in flat if self._held_otherwise(n)}
        return Row(
            self.key,
            self.name,
            lambda: Drawn(flat, data),
            lambda rg: _loss(names, *self.ours(rg)),
            lambda torch: _loss(names, *self.pytorch(torch), _segmented(segments)),
            lambda jax: _loss(names, *_checkpointed(jax, self.jax(jax), policy)),
            lr=self.lr,
            layouts={**tail, **{n: k for n, k in self.layouts.items() if n in data}},
            kinks=self.kinks,
        )

    def _held_otherwise(self, name: str) -> bool:
        return name.split(".", 1)[1] in self.layouts


def _loss(names: list[list[str]], layer: Any, last: Any, run: Any = None) -> Any:
    """One layer after the other; `run` says how, where it matters."""
    run = run or (lambda steps, x: functools.reduce(lambda x, step: step(x), steps, x))

    def loss(p: Any, d: Any) -> Any:
        weights = [{n: p[f"{i}.{n}"] for n in own} for i, own in enumerate(names)]
        steps = [functools.partial(layer, w) for w in weights[:-1]]
        return last(weights[-1], run(steps, d["x"]), d)

    return loss


def _segmented(count: int) -> Any:
    """As torch.utils.checkpoint.checkpoint_sequential: the last segment keeps everything."""
    if not count:
        return None
    from torch.utils.checkpoint import checkpoint

    def chain(steps: Any, x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    def run(steps: list[Any], x: Any) -> Any:
        cuts = [round(k * len(steps) / count) for k in range(count + 1)]
        for start, end in itertools.pairwise(cuts[:-1]):
            part = functools.partial(chain, steps[start:end])
            x = checkpoint(part, x, use_reentrant=False)
        return chain(steps[cuts[-2] :], x)

    return run


def _checkpointed(jax: Any, parts: Parts, policy: str) -> Parts:
    layer, last = parts
    if not policy:
        return parts
    return jax.checkpoint(layer, policy=getattr(jax.checkpoint_policies, policy)), last


# -- the deep MLP --------------------------------------------------------------------------


def deep_mlp(depth: int, batch: int, width: int) -> Model:
    """Matrix, gelu, and again."""

    def draw() -> tuple[list[Arrays], Arrays]:
        made = Draw()
        data, layers = {"x": made.normal(batch, width, scale=CALM)}, []
        x = data["x"][:ROWS]
        for _ in range(depth):
            w = made.rotation(width)
            layers.append({"w": w * (CALM / (x @ w).std())})
            x = x @ layers[-1]["w"]
            x = x / (1 + np.exp(-1.702 * x))  # nearly a gelu
        return [*layers, {}], data

    return Model(
        "mlp",
        f"MLP, {depth} layers of [{batch}, {width}], gelu",
        draw,
        lambda rg: (lambda p, x: rg.nn.gelu(x @ p["w"]), lambda p, x, d: rg.mean(x * x)),
        lambda torch: (
            lambda p, x: torch.nn.functional.gelu(torch.nn.functional.linear(x, p["w"])),
            lambda p, x, d: (x * x).mean(),
        ),
        lambda jax: (
            lambda p, x: jax.nn.gelu(x @ p["w"], approximate=False),
            lambda p, x, d: jax.numpy.mean(x * x),
        ),
        (4, 8, 16),
        ("", *POLICIES[:2]),
        {"w": "t"},
        1e-6,
    )


# -- the transformer and the Mamba-3 stack -------------------------------------------------


def deep_transformer(depth: int, batch: int, length: int) -> Model:
    """Blocks of attention and an MLP."""

    def draw() -> tuple[list[Arrays], Arrays]:
        made, shape = Draw(), (batch, length, transformer.SIZE)
        layers = [transformer.layer(made) for _ in range(depth)]
        return [*layers, {}], {"x": made.normal(*shape), "y": made.normal(*shape)}

    return Model(
        "transformer",
        f"transformer, {depth} blocks, sequence {length}, batch {batch}",
        draw,
        lambda rg: (transformer.our_block(rg), lambda p, x, d: rg.nn.mse(x, d["y"])),
        lambda torch: (
            transformer.pytorch_block(torch),
            lambda p, x, d: torch.nn.functional.mse_loss(x, d["y"]),
        ),
        lambda jax: (
            transformer.jax_block(jax),
            lambda p, x, d: jax.numpy.mean((x - d["y"]) ** 2),
        ),
        (2, 4, 12),
        ("", *POLICIES[:2]),
        {f"{n}.w": "t" for n in ("qkv", "out", "up", "down")},
    )


def _mamba3(depth: int, batch: int, length: int) -> Model:
    def draw() -> tuple[list[Arrays], Arrays]:
        made, shape = Draw(), (batch, length, mamba3.SIZE)
        layers = [
            {"norm": made.uniform(0.8, 1.2, mamba3.SIZE), **mamba3.layer(made)}
            for _ in range(depth)
        ]
        return [*layers, {}], {"x": made.normal(*shape), "y": made.normal(*shape)}

    def residual(block: Any, norm: Any) -> Any:
        return lambda p, x: x + block(p, norm(x, p["norm"]))

    def ours(rg: Any) -> Parts:
        block = mamba3.our_block(rg)
        return residual(block, rg.nn.rms_norm), lambda p, x, d: rg.nn.mse(x, d["y"])

    def pytorch(torch: Any) -> Parts:
        f, block = torch.nn.functional, mamba3.pytorch_block(torch)
        norm = lambda x, w: f.rms_norm(x, (mamba3.SIZE,), w, 1e-5)  # noqa: E731
        return residual(block, norm), lambda p, x, d: f.mse_loss(x, d["y"])

    def jaxs(jax: Any) -> Parts:
        jnp, block = jax.numpy, mamba3.jax_block(jax)

        def norm(x: Any, w: Any) -> Any:
            return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5) * w

        return residual(block, norm), lambda p, x, d: jnp.mean((x - d["y"]) ** 2)

    return Model(
        "mamba3",
        f"Mamba-3, {depth} blocks, sequence {length}, batch {batch}",
        draw,
        ours,
        pytorch,
        jaxs,
        (2, depth),
        ("", *POLICIES[:2]),
        {"in": "t", "out": "t"},
    )


# -- the residual CNN ----------------------------------------------------------------------


def _cnn(blocks: int, batch: int) -> Model:
    def draw() -> tuple[list[Arrays], Arrays]:
        nets, before = [cnn.Net()], cnn.WIDTHS[0]
        nets[0].conv("stem", 3, 3, 3, before)
        for width in cnn.WIDTHS:
            for _ in range(blocks):
                nets.append(cnn.Net(len(nets)))
                nets[-1].conv("1", 3, 3, before, width)
                nets[-1].conv("2", 3, 3, width, width)
                if before != width:
                    nets[-1].conv("skip", 1, 1, before, width)
                before = width
        last = cnn.Net(len(nets))
        drawn = last.drawn(before, (batch, 32, 32, 3))
        return [*(n.params for n in nets), drawn.params], drawn.data

    def parts(conv: Any, relu: Any, head: Any, zeros: Any) -> Parts:
        def normed(p: Any, name: str, x: Any, stride: int = 1) -> Any:
            w = p[f"{name}.w"]  # running statistics are nobody's here
            kept = {f"{name}.mean": zeros(w), f"{name}.var": zeros(w)}
            return conv(p, kept, {}, name, x, stride)

        def layer(p: Any, x: Any) -> Any:
            if "stem.k" in p:
                return relu(normed(p, "stem", x))
            stride = 2 if "skip.k" in p else 1
            inner = normed(p, "2", relu(normed(p, "1", x, stride)))
            return relu(inner + (normed(p, "skip", x, 2) if "skip.k" in p else x))

        def last(p: Any, x: Any, d: Any) -> Any:
            found = head(p, d, x, {})
            return found[0] if isinstance(found, tuple) else found

        return layer, last

    def three(*found: Any) -> Any:
        return found

    return Model(
        "cnn",
        f"residual CNN, {3 * blocks} blocks of 32-64-128, batch {batch}",
        draw,
        lambda rg: parts(*cnn.ours(three)(rg), rg.zeros_like),
        lambda torch: parts(*cnn.pytorch(three)(torch), torch.zeros_like),
        lambda jax: parts(*cnn.jaxs(three)(jax), jax.numpy.zeros_like),
        (2, 5, 1 + 3 * blocks),
        ("", *POLICIES[:2]),
        {**{f"{n}.k": "conv" for n in ("stem", "1", "2", "skip")}, "head.w": "t", "x": "image"},
        kinks=True,
    )


MODELS = {
    m.key: m
    for m in (
        deep_mlp(64, 2048, 512),
        deep_transformer(12, 8, 256),
        _cnn(3, 64),
        _mamba3(4, 4, 256),
    )
}
SMALL = {
    m.key: m
    for m in (
        deep_mlp(12, 256, 128),
        deep_transformer(3, 2, 64),
        _cnn(1, 8),
        _mamba3(2, 1, 128),
    )
}


def model(key: str, *, small: bool) -> Model:
    """By its key; small ones are for trying out."""
    return (SMALL if small else MODELS)[key]
