"""Attention agrees with PyTorch's and JAX's: values, gradients of all inputs, second order."""

import numpy as np
import pytest
from peers.against import F, Lazy, agree, floating, jnn, torch

import retrograd as rg
from retrograd.ops.nn.attention import attention, multi_head_attention

backends = Lazy("torch.nn.attention")
GEOMETRIES = [  # batch, queries, keys, heads, heads of keys, features, features of values
    (2, 5, 5, 2, 2, 4, 4),
    (1, 7, 3, 1, 1, 3, 5),
    (3, 1, 9, 4, 2, 2, 2),
    (2, 6, 8, 6, 1, 8, 8),
    (2, 130, 257, 2, 2, 4, 4),  # more than one tile of rows
    (0, 3, 3, 2, 2, 4, 4),
]
OPTIONS = {
    "plain": lambda rng, size: {},
    "scaled": lambda rng, size: {"scale": 0.3},
    "causal": lambda rng, size: {"causal": True},
    "mask": lambda rng, size: {"mask": rng.random(size) > 0.3},
    "mask of keys": lambda rng, size: {"mask": rng.random((size[0], 1, 1, size[3])) > 0.3},
    "window": lambda rng, size: {"window": (2, 1)},
}
ALL = [(g, o) for g in GEOMETRIES for o in OPTIONS]
cases = pytest.mark.parametrize(
    ("geometry", "name"), ALL, ids=lambda x: str(x).replace(" ", "")
)


def operands(rng, geometry, name):
    b, tq, tk, h, k, d, v = geometry
    options = OPTIONS[name](rng, (b, h, tq, tk))
    if "mask" in options:
        options["mask"][..., 0] = True  # PyTorch has nan where nothing is seen
    return [rng.normal(size=s) for s in ((b, tq, h, d), (b, tk, k, d), (b, tk, k, v))], options


def by_torch(options):
    """Heads in front of time; causal and windows as masks, since theirs begin at the start."""

    def f(q, k, v, *bias):
        offset = k.shape[1] - q.shape[1]
        i, j = torch.arange(q.shape[1])[:, None] + offset, torch.arange(k.shape[1])
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        if options.get("causal"):
            seen = seen & (j <= i)
        if "window" in options:
            left, right = options["window"]
            seen = seen & (j >= i - left) & (j <= i + right)
        if "mask" in options:
            seen = seen & torch.tensor(options["mask"])
        added = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -np.inf)
        for b in bias:
            added = added + b
        out = F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)),
            attn_mask=added,
            scale=options.get("scale"),
            enable_gqa=q.shape[2] != k.shape[2],
        )
        return out.transpose(1, 2)

    return f


def sees_all(geometry, options):
    """Whether each query sees a key: where none is seen, PyTorch has nan."""
    _, tq, tk, *_ = geometry
    bound = "causal" in options or "window" in options
    return not bound or tk >= tq


@pytest.mark.peers("torch")
@cases
def test_torch(geometry, name, rng):
    xs, options = operands(rng, geometry, name)
    if not sees_all(geometry, options):
        xs[0] = xs[0][:, -geometry[2] :]
    agree(
        lambda *xs: attention(*xs, **options),
        by_torch(options),
        xs,
        floating(xs),
        peer="torch",
        what=f"{geometry} {name}",
    )


@pytest.mark.peers("torch")
@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (2, 4, 5, 6), (2, 1, 1, 6), (4, 5, 1)])
def test_torch_bias(shape, rng):
    xs = [rng.normal(size=s) for s in ((2, 5, 4, 3), (2, 6, 2, 3), (2, 6, 2, 3), shape)]
    mine = lambda q, k, v, b: attention(q, k, v, bias=b)
    agree(mine, by_torch({}), xs, floating(xs), peer="torch", what=f"bias {shape}")


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", OPTIONS)
def test_torch_second_order(name, rng):
    xs, options = operands(rng, (2, 4, 5, 4, 2, 3, 3), name)

    def mine(*xs):
        loss = lambda *xs: (attention(*xs, **options) ** 3).sum()
        return list(rg.grad(loss, argnums=(0, 1, 2))(*xs))

    def theirs(*xs):
        xs = [x if x.requires_grad else x.requires_grad_() for x in xs]
        with backends.sdpa_kernel(backends.SDPBackend.MATH):
            total = (by_torch(options)(*xs) ** 3).sum()  # their other ways have no second order
        return torch.autograd.grad(total, xs, create_graph=True)

    agree(mine, theirs, xs, floating(xs), peer="torch", what=name)


@pytest.mark.peers("torch")
@pytest.mark.parametrize("causal", [False, True])
def test_torch_multi_head_attention(causal, rng):
    width, heads = 12, 3
    sizes = [
        (2, 5, width),
        (2, 5, width),
        (2, 5, width),
        *[(width, width)] * 4,
        *[(width,)] * 4,
    ]
    xs = [rng.normal(size=s) / 2 for s in sizes]

    def mine(q, k, v, w_q, w_k, w_v, w_o, *bs):
        named = dict(zip(("b_q", "b_k", "b_v", "b_o"), bs, strict=True))
        ws = (w_q, w_k, w_v, w_o)
        return multi_head_attention(q, k, v, *ws, heads=heads, causal=causal, **named)

    def theirs(q, k, v, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o):
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
        out, _ = F.multi_head_attention_forward(
            *(x.transpose(0, 1) for x in (q, k, v)),
            width,
            heads,
            None,
            torch.cat([b_q, b_k, b_v]),
            None,
            None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=w_o.mT,
            out_proj_bias=b_o,
            need_weights=False,
            attn_mask=hidden,
            use_separate_proj_weight=True,
            q_proj_weight=w_q.mT,
            k_proj_weight=w_k.mT,
            v_proj_weight=w_v.mT,
        )
        return out.transpose(0, 1)

    agree(mine, theirs, xs, floating(xs), peer="torch", what="multi_head_attention")


@pytest.mark.peers("jax")
@pytest.mark.parametrize("name", ["plain", "scaled", "causal", "mask", "window"])
@pytest.mark.parametrize("geometry", [(2, 5, 5, 2, 2, 4, 4), (2, 6, 6, 6, 2, 3, 3)], ids=str)
def test_jax(geometry, name, rng):
    """In float32: that is what jax computes the weights in, whatever it is given."""
    xs, options = operands(rng, geometry, name)

    def theirs(q, k, v, bias):
        return jnn.dot_product_attention(
            q,
            k,
            v,
            bias=bias,
            mask=options.get("mask"),
            scale=options.get("scale"),
            is_causal=options.get("causal", False),
            local_window_size=options.get("window"),
        )

    xs.append(rng.normal(size=(1, geometry[3], geometry[1], geometry[2])))
    xs = [x.astype(np.float32) for x in xs]
    mine = lambda q, k, v, b: attention(q, k, v, bias=b, **options)
    agree(mine, theirs, xs, floating(xs), peer="jax", what=f"{geometry} {name}")
