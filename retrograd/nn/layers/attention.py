"""Attention with its projections."""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.nn import init
from retrograd.nn.layers.linear import Linear
from retrograd.nn.module import Module
from retrograd.ops import create, options
from retrograd.ops.nn import attention

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """Attention between projections of queries, keys and values, projected back.

    `kv_heads` heads of keys and values serve `heads` heads of queries in groups (as many
    unless given); each has `head_size` numbers, `size / heads` unless given. `causal`, `window`
    and `dropout` are options of `rg.nn.attention`; `rotary`, a base such as 10000.0, turns
    queries and keys by their places. Weights are uniform in ±sqrt(6 / (in + out)), biases 0.

    >>> layer = rg.nn.MultiHeadAttention(64, 8, kv_heads=2, causal=True, key=rg.random.key(0))
    >>> layer(rg.ones((2, 10, 64))).shape
    (2, 10, 64)
    """

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int
    kv_heads: int
    causal: bool
    window: Any
    rotary: float | None
    dropout: float

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_size: int | None = None,
        bias: bool = True,
        causal: bool = False,
        window: Any = None,
        rotary: float | None = None,
        dropout: float = 0.0,
        key: Any,
        dtype: Any = None,
    ) -> None:
        who = "MultiHeadAttention"
        size = options.integer(who, "size", size, least=1)
        self.heads, self.kv_heads, each = _heads(who, size, heads, kv_heads, head_size)
        keys = init.keys(who, key, 4)
        wide, narrow = self.heads * each, self.kv_heads * each
        sizes = ((size, wide), (size, narrow), (size, narrow), (wide, size))
        self.query, self.key, self.value, self.out = (
            _projection(k, shape, bias=bias, dtype=dtype)
            for k, shape in zip(keys, sizes, strict=True)
        )
        self.causal, self.window, self.rotary = causal, window, rotary
        self.dropout = options.number(who, "dropout", dropout)

    def __call__(
        self,
        queries: Any,
        keys: Any = None,
        values: Any = None,
        *,
        mask: Any = None,
        bias: Any = None,
        key: Any = None,
    ) -> Tensor:
        """queries [B, Tq, size], keys and values [B, Tk, size] to [B, Tq, size].

        Keys are the queries unless given, values the keys. Weights are dropped where `dropout`
        is above 0 and there is a `key`.
        """
        keys = queries if keys is None else keys
        values = keys if values is None else values
        parts = (self.query, self.key, self.value, self.out)
        biases = {f"b_{n}": p.bias for n, p in zip("qkvo", parts, strict=True)}
        return attention.multi_head_attention(
            queries,
            keys,
            values,
            *(p.weight for p in parts),
            heads=self.heads,
            kv_heads=self.kv_heads,
            rotary=self.rotary,
            mask=mask,
            bias=bias,
            causal=self.causal,
            window=self.window,
            dropout=self.dropout if key is not None else 0.0,
            key=key,
            **biases,
        )

    def about(self) -> str:
        """Its heads, and the options that are not the usual ones."""
        words = [f"{self.heads} heads"]
        words += [f"{self.kv_heads} kv_heads"] if self.kv_heads != self.heads else []
        words += ["causal"] if self.causal else []
        options_ = {"window": None, "rotary": None, "dropout": 0.0}
        values = ((n, getattr(self, n), usual) for n, usual in options_.items())
        return ", ".join(words + [f"{n} {v}" for n, v, usual in values if v != usual])


def _heads(who: str, size: int, heads: Any, kv_heads: Any, head_size: Any) -> tuple[int, ...]:
    """Heads of queries, heads of keys and values, and the size of each."""
    heads = options.integer(who, "heads", heads, least=1)
    kv_heads = (
        heads if kv_heads is None else options.integer(who, "kv_heads", kv_heads, least=1)
    )
    if heads % kv_heads:
        raise ArgumentError(
            f"{who}: heads must be a multiple of kv_heads; got {heads} and {kv_heads}"
        )
    if head_size is not None:
        return heads, kv_heads, options.integer(who, "head_size", head_size, least=1)
    if size % heads:
        raise ArgumentError(
            f"{who}: {heads} heads must divide the size {size}", hint="head_size=..."
        )
    return heads, kv_heads, size // heads


def _projection(key: Any, shape: tuple[int, int], *, bias: bool, dtype: Any) -> Linear:
    made = Linear(0, 0, key=key, dtype=dtype)  # nothing is drawn that is not used
    return made.replace(
        weight=init.xavier_uniform(key, shape, dtype),
        bias=create.zeros(shape[1], dtype=dtype) if bias else None,
    )
