"""Attention: of heads to groups of heads, masked, in a window, with dropout; by projections."""

from __future__ import annotations

from typing import Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, cast, linalg, shape
from retrograd.ops import random_keys as keys
from retrograd.ops.nn import rotary as turning
from retrograd.ops.nn.attention_ops import Attention

__all__ = ["attention", "multi_head_attention"]


def attention(
    q: Any,
    k: Any,
    v: Any,
    /,
    *,
    mask: Any = None,
    bias: Any = None,
    slopes: Any = None,
    causal: bool = False,
    window: Any = None,
    scale: float | None = None,
    dropout: float = 0.0,
    key: Any = None,
) -> Tensor:
    """softmax(scale * q @ kᵀ + bias) @ v: q [B, Tq, H, D], k [B, Tk, K, D], v [B, Tk, K, V].

    The result is [B, Tq, H, V]. H is a multiple of K: head h of q attends to head h // (H / K).
    Memory grows with Tq + Tk, forward and backward; the second derivative holds all scores.

    `mask` (true where a key is seen; a float mask is a bias) and `bias` broadcast to
    [B, H, Tq, Tk]. Queries and keys are aligned at their ends: query i stands at
    p = i + Tk - Tq. `causal` shows it keys j <= p; `window` = w or (left, right) shows it
    p - left <= j <= p + right, None for no bound. `slopes` [H] adds -slope * |p - j| (ALiBi).
    Queries that see no key give 0, with gradient 0. `scale` is 1 / sqrt(D) unless given.
    `dropout` drops weights by `key`; the others are scaled by 1 / (1 - dropout).
    """
    rule, operands = prepared(q, k, v, mask, bias, slopes, causal, window, scale, dropout, key)
    return apply(rule, *operands)[0]


def attention_reference(q: Any, k: Any, v: Any, /, **options: Any) -> Tensor:
    """`attention` as a plain composition, which holds all scores: for comparison."""
    names = ("mask", "bias", "slopes", "causal", "window", "scale", "dropout", "key")
    defaults = dict.fromkeys(names) | {"causal": False, "dropout": 0.0}
    rule, operands = prepared(q, k, v, *(defaults | options).values())
    return rule.expand(*operands)[0]


def prepared(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    bias: Any,
    slopes: Any,
    causal: Any,
    window: Any,
    scale: Any,
    dropout: Any,
    key: Any,
) -> tuple[Attention, list[Any]]:
    """The op that the options stand for, and its operands, of one dtype."""
    q, k, v = map(lift, (q, k, v))
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ShapeError(
            f"attention: q, k and v are [B, T, H, D]; got {q.shape}, {k.shape} and {v.shape}"
        )
    mask, bias = _masks(mask, bias)
    if not 0 <= dropout < 1:
        raise ArgumentError(f"attention: dropout must be from 0 to less than 1; got {dropout}")
    if dropout and key is None:
        raise ArgumentError(
            f"attention: dropout {dropout} needs a key", hint="key=rg.random.key(0)"
        )
    floats = {"bias": bias, "slopes": None if slopes is None else lift(slopes)}
    given = [x for x in (q, k, v, *floats.values()) if x is not None]
    common = _dtype(given)
    parts = {n: cast.astype(x, common) for n, x in floats.items() if x is not None}
    parts |= {} if mask is None else {"mask": mask}
    parts |= {"key": keys.key_of("attention", key)} if dropout else {}
    left, right = _window(window, causal=causal)
    if scale is None:
        scale = q.shape[-1] ** -0.5 if q.shape[-1] else 1.0
    rule = Attention(float(scale), left, right, float(dropout), tuple(parts))
    operands = [*(cast.astype(x, common) for x in (q, k, v)), *parts.values()]
    rule.shape(*(x.spec for x in operands))
    return rule, operands


def _dtype(given: list[Any]) -> Any:
    common = dt.promote("attention", *(x.dtype for x in given))
    if common.kind == "c":
        raise DtypeError("attention: complex numbers have no softmax; got " + str(common))
    return common if dt.is_inexact(common) else dt.float32


def _masks(mask: Any, bias: Any) -> tuple[Any, Any]:
    """A boolean mask and a bias, each with four axes or None: a float mask is a bias."""
    mask, bias = (None if x is None else lift(x) for x in (mask, bias))
    if mask is not None and mask.dtype != dt.bool:
        if not dt.is_inexact(mask.dtype):
            raise DtypeError(
                f"attention: mask is boolean, or of floats that are added; got {mask.dtype}",
                hint="mask != 0",
            )
        bias, mask = mask if bias is None else arithmetic.add(mask, bias), None
    return _four("mask", mask), _four("bias", bias)


def _four(name: str, x: Any) -> Any:
    if x is None:
        return None
    if x.ndim > 4:
        raise ShapeError(f"attention: {name} has at most 4 axes; got shape {x.shape}")
    return shape.reshape(x, (*(1,) * (4 - x.ndim), *x.shape))


def _window(window: Any, *, causal: bool) -> tuple[int | None, int | None]:
    """How many keys before and after its own place a query sees."""
    pair = tuple(window) if isinstance(window, (tuple, list)) else (window, window)
    good = len(pair) == 2 and all(
        n is None or (isinstance(n, int) and not isinstance(n, bool) and n >= 0) for n in pair
    )
    if not good:
        raise ArgumentError(
            f"attention: window is a number from 0 on, or a pair of these or None; got {window}"
        )
    return pair[0], 0 if causal else pair[1]


def multi_head_attention(
    queries: Any,
    keys: Any,
    values: Any,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    /,
    *,
    heads: int,
    kv_heads: int | None = None,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    rotary: float | None = None,
    **options: Any,
) -> Tensor:
    """Attention between projections: queries [B, Tq, E], keys and values [B, Tk, ..].

    w_q [E, heads * D], w_k [.., kv_heads * D], w_v [.., kv_heads * V], w_o [heads * V, out];
    a head's columns stand together, as in PyTorch (whose matrices are the transposes).
    `kv_heads` is `heads` unless given. With `rotary`, a base such as 10000.0, queries and keys
    are turned by their places, aligned at their ends. The other options are `attention`'s.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    q = _apart("queries", linalg.linear(queries, w_q, b_q), heads)
    k = _apart("keys", linalg.linear(keys, w_k, b_k), kv_heads)
    v = _apart("values", linalg.linear(values, w_v, b_v), kv_heads)
    if rotary is not None:
        late = k.shape[1] - q.shape[1]
        q = turning.rotary(q, base=rotary, offset=late)
        k = turning.rotary(k, base=rotary)
    out = attention(q, k, v, **options)
    return linalg.linear(shape.flatten(out, start=2), w_o, b_o)


def _apart(name: str, x: Any, heads: int) -> Any:
    """[B, T, heads * D] as [B, T, heads, D]."""
    if x.ndim != 3 or heads < 1 or x.shape[-1] % heads:
        raise ShapeError(
            f"multi_head_attention: the projected {name} {x.shape} must be [B, T, heads * D], "
            f"with {heads} heads"
        )
    return shape.reshape(x, (*x.shape[:2], heads, x.shape[-1] // heads))
