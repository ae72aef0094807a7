"""(b) A residual CNN with batch norm on 32 x 32 images, and (p) a depthwise-separable one."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.row import Draw, Drawn, Row

WIDTHS = (32, 64, 128)
# out channels and stride of each separable block
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))


class Net(Draw):
    """Draws kernels and norms by name."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.params: dict[str, np.ndarray] = {}
        self.buffers: dict[str, np.ndarray] = {}

    def conv(self, name: str, *shape: int) -> None:
        """A kernel without a bias, and the norm after it."""
        out = shape[-1]
        self.params[f"{name}.k"] = self.normal(*shape, scale=(2 / np.prod(shape[:-1])) ** 0.5)
        self.params[f"{name}.w"] = self.uniform(0.8, 1.2, out)
        self.params[f"{name}.b"] = self.normal(out, scale=0.1)
        self.buffers[f"{name}.mean"] = np.zeros(out, np.float32)
        self.buffers[f"{name}.var"] = np.ones(out, np.float32)

    def drawn(self, last: int, images: tuple[int, ...]) -> Drawn:
        """With the classifier and the images."""
        self.linear(self.params, "head", last, 10)
        data = {"x": self.normal(*images), "y": self.integers(10, images[0])}
        return Drawn(self.params, data, self.buffers)


def _residual() -> Drawn:
    net = Net()
    net.conv("stem", 3, 3, 3, WIDTHS[0])
    before = WIDTHS[0]
    for width in WIDTHS:
        net.conv(f"{width}.1", 3, 3, before, width)
        net.conv(f"{width}.2", 3, 3, width, width)
        if width != before:
            net.conv(f"{width}.skip", 1, 1, before, width)
        before = width
    return net.drawn(before, (64, 32, 32, 3))


def _separable() -> Drawn:
    net = Net()
    net.conv("stem", 3, 3, 3, 32)
    before = 32
    for i, (width, _) in enumerate(BLOCKS):
        net.conv(f"{i}.depth", 3, 3, 1, before)
        net.conv(f"{i}.point", 1, 1, before, width)
        before = width
    return net.drawn(before, (16, 96, 96, 3))


# Both nets are written once, in terms of three things that each library does its own way.


def _residual_net(conv: Any, relu: Any, head: Any) -> Any:
    def loss(p: Any, d: Any, b: Any) -> Any:
        kept: dict[str, Any] = {}
        h = relu(conv(p, b, kept, "stem", d["x"], 1))
        for i, width in enumerate(WIDTHS):
            stride = 1 if i == 0 else 2
            inner = relu(conv(p, b, kept, f"{width}.1", h, stride))
            inner = conv(p, b, kept, f"{width}.2", inner, 1)
            skip = h if i == 0 else conv(p, b, kept, f"{width}.skip", h, stride)
            h = relu(inner + skip)
        return head(p, d, h, kept)

    return loss


def _separable_net(conv: Any, relu: Any, head: Any) -> Any:
    def loss(p: Any, d: Any, b: Any) -> Any:
        kept: dict[str, Any] = {}
        h = relu(conv(p, b, kept, "stem", d["x"], 2))
        for i, (_, stride) in enumerate(BLOCKS):
            h = relu(conv(p, b, kept, f"{i}.depth", h, stride))
            h = relu(conv(p, b, kept, f"{i}.point", h, 1))
        return head(p, d, h, kept)

    return loss


def ours(net: Any) -> Any:
    """retrograd: a net of its convolution with norm, relu and head."""

    def make(rg: Any) -> Any:
        nn = rg.nn

        def conv(p: Any, b: Any, kept: Any, name: str, x: Any, stride: int) -> Any:
            k = p[f"{name}.k"]
            pad = k.shape[0] // 2
            if name.endswith("depth"):
                y = nn.depthwise_conv(x, k, stride=stride, padding=pad)
            else:
                y = nn.conv(x, k, stride=stride, padding=pad)
            mean, var = b[f"{name}.mean"], b[f"{name}.var"]
            y, kept[f"{name}.mean"], kept[f"{name}.var"] = nn.batch_norm(
                y, mean, var, p[f"{name}.w"], p[f"{name}.b"], training=True
            )
            return y

        def head(p: Any, d: Any, h: Any, kept: Any) -> Any:
            logits = rg.mean(h, axis=(1, 2)) @ p["head.w"] + p["head.b"]
            return nn.cross_entropy(logits, d["y"]), kept

        return net(conv, nn.relu, head)

    return make


def pytorch(net: Any) -> Any:
    """PyTorch."""

    def make(torch: Any) -> Any:
        f = torch.nn.functional

        def conv(p: Any, b: Any, kept: Any, name: str, x: Any, stride: int) -> Any:
            k = p[f"{name}.k"]
            groups = x.shape[1] if name.endswith("depth") else 1
            y = f.conv2d(x, k, stride=stride, padding=k.shape[-1] // 2, groups=groups)
            mean, var = b[f"{name}.mean"], b[f"{name}.var"]
            return f.batch_norm(y, mean, var, p[f"{name}.w"], p[f"{name}.b"], training=True)

        def head(p: Any, d: Any, h: Any, kept: Any) -> Any:
            logits = f.linear(h.mean((2, 3)), p["head.w"], p["head.b"])
            return f.cross_entropy(logits, d["y"])

        return net(conv, lambda x: f.relu(x, inplace=True), head)

    return make


def jaxs(net: Any) -> Any:
    """JAX."""

    def make(jax: Any) -> Any:
        jnp, nn = jax.numpy, jax.nn

        def conv(p: Any, b: Any, kept: Any, name: str, x: Any, stride: int) -> Any:
            k = p[f"{name}.k"]
            y = jax.lax.conv_general_dilated(
                x,
                k,
                (stride, stride),
                [(k.shape[0] // 2,) * 2] * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=x.shape[-1] if name.endswith("depth") else 1,
            )
            mean, var = jnp.mean(y, (0, 1, 2)), jnp.var(y, (0, 1, 2))
            n = y.size // y.shape[-1]
            kept[f"{name}.mean"] = 0.9 * b[f"{name}.mean"] + 0.1 * mean
            kept[f"{name}.var"] = 0.9 * b[f"{name}.var"] + 0.1 * var * (n / (n - 1))
            scale = jax.lax.rsqrt(var + 1e-5) * p[f"{name}.w"]
            return (y - mean) * scale + p[f"{name}.b"]

        def head(p: Any, d: Any, h: Any, kept: Any) -> Any:
            log_p = nn.log_softmax(jnp.mean(h, (1, 2)) @ p["head.w"] + p["head.b"])
            return -jnp.mean(jnp.take_along_axis(log_p, d["y"][:, None], 1)), kept

        return net(conv, nn.relu, head)

    return make


def _row(key: str, name: str, draw: Any, net: Any) -> Row:
    kinds = {n: "conv" for n in draw().params if n.endswith(".k")}
    layouts = {**kinds, "head.w": "t", "x": "image"}
    libraries = (ours(net), pytorch(net), jaxs(net))
    return Row(key, name, draw, *libraries, layouts=layouts, kinks=True)


ROWS = [
    _row("b", "residual CNN 32-64-128, batch norm, batch 64", _residual, _residual_net),
    _row("p", "separable CNN, 96 x 96, batch 16", _separable, _separable_net),
]
