"""(c) A transformer block, causal, with AdamW; trained to reproduce given outputs."""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Arrays, Draw, Drawn, Row

SIZE, HEADS = 256, 8


def layer(draw: Draw) -> Arrays:
    """The weights of a block."""
    params: Arrays = {}
    draw.linear(params, "qkv", SIZE, 3 * SIZE)
    draw.linear(params, "out", SIZE, SIZE)
    draw.linear(params, "up", SIZE, 4 * SIZE)
    draw.linear(params, "down", 4 * SIZE, SIZE)
    for name in ("one", "two"):
        params[f"{name}.w"] = draw.uniform(0.8, 1.2, SIZE)
        params[f"{name}.b"] = draw.normal(SIZE, scale=0.1)
    return params


def _draw(batch: int, length: int) -> Drawn:
    draw = Draw()
    params = layer(draw)
    shape = (batch, length, SIZE)
    return Drawn(params, {"x": draw.normal(*shape), "y": draw.normal(*shape)})


def _whole(block: Any, mse: Any) -> Any:
    """The loss of a block's output."""
    return lambda p, d: mse(block(p, d["x"]), d["y"])


def ours(rg: Any) -> Any:
    """retrograd."""
    return _whole(our_block(rg), rg.nn.mse)


def our_block(rg: Any) -> Any:
    """The block alone."""
    nn = rg.nn

    def block(p: Any, x: Any) -> Any:
        h = nn.layer_norm(x, p["one.w"], p["one.b"]) @ p["qkv.w"] + p["qkv.b"]
        q, k, v = (
            t.reshape(*x.shape[:2], HEADS, SIZE // HEADS) for t in rg.split(h, 3, axis=-1)
        )
        h = nn.attention(q, k, v, causal=True).reshape(x.shape)
        x = x + h @ p["out.w"] + p["out.b"]
        h = nn.layer_norm(x, p["two.w"], p["two.b"])
        return x + nn.gelu(h @ p["up.w"] + p["up.b"]) @ p["down.w"] + p["down.b"]

    return block


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    return _whole(pytorch_block(torch), torch.nn.functional.mse_loss)


def pytorch_block(torch: Any) -> Any:
    """The block alone."""
    f = torch.nn.functional

    def block(p: Any, x: Any) -> Any:
        h = f.layer_norm(x, (SIZE,), p["one.w"], p["one.b"])
        h = f.linear(h, p["qkv.w"], p["qkv.b"])
        q, k, v = (
            t.unflatten(-1, (HEADS, SIZE // HEADS)).transpose(1, 2) for t in h.chunk(3, -1)
        )
        h = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h.transpose(1, 2).flatten(2)
        x = x + f.linear(h, p["out.w"], p["out.b"])
        h = f.layer_norm(x, (SIZE,), p["two.w"], p["two.b"])
        h = f.gelu(f.linear(h, p["up.w"], p["up.b"]))
        return x + f.linear(h, p["down.w"], p["down.b"])

    return block


def jaxs(jax: Any) -> Any:
    """JAX."""
    return _whole(jax_block(jax), lambda x, y: jax.numpy.mean((x - y) ** 2))


def jax_block(jax: Any) -> Any:
    """The block alone."""
    nn, jnp = jax.nn, jax.numpy

    def norm(x: Any, w: Any, b: Any) -> Any:
        mean = jnp.mean(x, -1, keepdims=True)
        var = jnp.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * w + b

    def block(p: Any, x: Any) -> Any:
        h = norm(x, p["one.w"], p["one.b"]) @ p["qkv.w"] + p["qkv.b"]
        q, k, v = (
            t.reshape(*x.shape[:2], HEADS, SIZE // HEADS) for t in jnp.split(h, 3, axis=-1)
        )
        h = nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + h @ p["out.w"] + p["out.b"]
        h = norm(x, p["two.w"], p["two.b"])
        h = nn.gelu(h @ p["up.w"] + p["up.b"], approximate=False)
        return x + h @ p["down.w"] + p["down.b"]

    return block


def _row(key: str, batch: int, length: int) -> Row:
    return Row(
        key,
        f"transformer block, sequence {length}, batch {batch}",
        lambda: _draw(batch, length),
        ours,
        pytorch,
        jaxs,
        optimizer="adamw",
        lr=1e-4,
        layouts={f"{n}.w": "t" for n in ("qkv", "out", "up", "down")},
    )


ROWS = [_row("c1", 8, 256), _row("c2", 1, 2048)]
