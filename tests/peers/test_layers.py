"""Layers agree with torch.nn's: values, gradients of x and of every parameter."""

import numpy as np
import pytest
from peers.against import agree, torch

import retrograd as rg
from retrograd import nn
from retrograd.core import tree

pytestmark = pytest.mark.peers("torch")
KEY, D = rg.random.key(5), rg.float64


def last(x):
    return x.movedim(1, -1)


def first(x):
    return x.movedim(-1, 1)


def of_conv(w):
    """Our [*kernel, in, out] as torch's [out, in, *kernel]."""
    return w.permute(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))


def of_transpose(groups):
    """Our [*kernel, in / groups, out] as torch's [in, out / groups, *kernel]."""

    def turned(w):
        *kernel, deep, wide = w.shape
        apart = w.reshape(*kernel, deep, groups, wide // groups)
        axes = len(kernel)
        moved = apart.permute(axes + 1, axes, axes + 2, *range(axes))
        return moved.reshape(groups * deep, wide // groups, *kernel)

    return turned


def of_attention(qw, qb, kw, kb, vw, vb, ow, ob):
    inside = torch.cat([qw.mT, kw.mT, vw.mT]), torch.cat([qb, kb, vb])
    return dict(
        zip(
            ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"),
            (*inside, ow.mT, ob),
            strict=True,
        )
    )


def of_recurrent(layers, ways):
    """Leaves come as all w_ih, all w_hh, all b_ih, all b_hh."""

    def named(*ps):
        count = layers * ways
        found = {}
        for i, p in enumerate(ps):
            kind, j = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[i // count], i % count
            end = f"_l{j // ways}" + ("_reverse" if j % ways else "")
            found[kind + end] = p.mT if p.ndim == 2 else p
        return found

    return named


def plain(*turns):
    """weight and bias, each turned to torch's way."""
    names = ("weight", "bias")
    return lambda *ps: {n: t(p) for n, t, p in zip(names[: len(turns)], turns, ps, strict=True)}


def same(x):
    return x


# ours, torch's, the shape of x, our leaves as torch's by name, and how x and y are turned
CASES = {
    "Linear": (
        lambda: nn.Linear(3, 4, key=KEY, dtype=D),
        lambda: torch.nn.Linear(3, 4, dtype=torch.float64),
        (5, 3),
        plain(lambda w: w.mT, same),
        (same, same),
    ),
    "Conv 1-D": (
        lambda: nn.Conv(4, 6, (3,), stride=2, padding=1, groups=2, key=KEY, dtype=D),
        lambda: torch.nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2, dtype=torch.float64),
        (2, 9, 4),
        plain(of_conv, same),
        (first, last),
    ),
    "Conv 2-D": (
        lambda: nn.Conv(3, 4, (3, 2), dilation=(1, 2), padding=1, key=KEY, dtype=D),
        lambda: torch.nn.Conv2d(3, 4, (3, 2), dilation=(1, 2), padding=1, dtype=torch.float64),
        (2, 6, 5, 3),
        plain(of_conv, same),
        (first, last),
    ),
    "Conv 3-D": (
        lambda: nn.Conv(2, 3, (2, 2, 2), key=KEY, dtype=D),
        lambda: torch.nn.Conv3d(2, 3, 2, dtype=torch.float64),
        (2, 3, 4, 3, 2),
        plain(of_conv, same),
        (first, last),
    ),
    "ConvTranspose": (
        lambda: nn.ConvTranspose(
            4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, key=KEY, dtype=D
        ),
        lambda: torch.nn.ConvTranspose2d(
            4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dtype=torch.float64
        ),
        (2, 4, 3, 4),
        plain(of_transpose(2), same),
        (first, last),
    ),
    "DepthwiseConv": (
        lambda: nn.DepthwiseConv(3, (3, 3), multiplier=2, padding=1, key=KEY, dtype=D),
        lambda: torch.nn.Conv2d(3, 6, 3, groups=3, padding=1, dtype=torch.float64),
        (2, 4, 4, 3),
        plain(of_conv, same),
        (first, last),
    ),
    "LayerNorm": (
        lambda: nn.LayerNorm((4, 3), dtype=D),
        lambda: torch.nn.LayerNorm((4, 3), dtype=torch.float64),
        (2, 5, 4, 3),
        plain(same, same),
        (same, same),
    ),
    "RMSNorm": (
        lambda: nn.RMSNorm(3, eps=1e-3, dtype=D),
        lambda: torch.nn.RMSNorm(3, eps=1e-3, dtype=torch.float64),
        (2, 5, 3),
        plain(same),
        (same, same),
    ),
    "GroupNorm": (
        lambda: nn.GroupNorm(2, 4, dtype=D),
        lambda: torch.nn.GroupNorm(2, 4, dtype=torch.float64),
        (2, 3, 3, 4),
        plain(same, same),
        (first, last),
    ),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(4, dtype=D),
        lambda: torch.nn.InstanceNorm2d(4, affine=True, dtype=torch.float64),
        (2, 3, 3, 4),
        plain(same, same),
        (first, last),
    ),
    "MultiHeadAttention": (
        lambda: nn.MultiHeadAttention(8, 4, key=KEY, dtype=D),
        lambda: torch.nn.MultiheadAttention(8, 4, batch_first=True, dtype=torch.float64),
        (2, 5, 8),
        of_attention,
        (lambda x: (x, x, x), lambda y: y[0]),
    ),
    "RNN": (
        lambda: nn.RNN(3, 2, layers=2, key=KEY, dtype=D),
        lambda: torch.nn.RNN(3, 2, num_layers=2, batch_first=True, dtype=torch.float64),
        (2, 4, 3),
        of_recurrent(2, 1),
        (same, same),
    ),
    "LSTM": (
        lambda: nn.LSTM(3, 2, layers=2, bidirectional=True, key=KEY, dtype=D),
        lambda: torch.nn.LSTM(
            3, 2, num_layers=2, bidirectional=True, batch_first=True, dtype=torch.float64
        ),
        (2, 4, 3),
        of_recurrent(2, 2),
        (same, same),
    ),
    "GRU": (
        lambda: nn.GRU(3, 2, time_major=True, key=KEY, dtype=D),
        lambda: torch.nn.GRU(3, 2, dtype=torch.float64),
        (4, 2, 3),
        of_recurrent(1, 1),
        (same, same),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_torch_s(name, rng):
    make, build, shape, named, (inward, outward) = CASES[name]
    layer, net = make(), build()
    leaves, structure = tree.flatten(layer)
    arrays = [rng.normal(size=shape)]
    arrays += [np.asarray(p) + 0.1 * rng.normal(size=p.shape) for p in leaves]

    def ours(x, *ps):
        return tree.leaves(tree.unflatten(structure, ps)(x))

    def theirs(x, *ps):
        x = inward(x)
        given = x if isinstance(x, tuple) else (x,)
        return outward(torch.func.functional_call(net, named(*ps), given))

    agree(ours, theirs, arrays, list(range(len(arrays))), peer="torch", what=name)


def test_embedding_is_torch_s(rng):
    layer = nn.Embedding(7, 3, key=KEY, dtype=D)
    ids = np.array([[0, 6, 6], [2, 0, 1]])
    agree(
        lambda w: layer.replace(weight=w)(rg.asarray(ids)),
        lambda w: torch.nn.functional.embedding(torch.tensor(ids), w),
        [np.asarray(layer.weight)],
        [0],
        peer="torch",
    )


def test_running_statistics_are_torch_s(rng):
    ours, theirs = nn.BatchNorm(3, dtype=D), torch.nn.BatchNorm1d(3, dtype=torch.float64)
    for _ in range(5):
        x = rng.normal(size=(8, 3)) * 2 + 1
        y, ours = ours(rg.asarray(x), training=True)
        wanted = theirs(torch.tensor(x)).numpy(force=True)
        rg.testing.assert_close(y, wanted)
    theirs.eval()
    x = rng.normal(size=(8, 3))
    rg.testing.assert_close(ours(rg.asarray(x)), theirs(torch.tensor(x)).numpy(force=True))
    rg.testing.assert_close(ours.mean, theirs.running_mean.numpy())
    rg.testing.assert_close(ours.var, theirs.running_var.numpy())


def test_weights_start_in_torch_s_ranges():
    """The largest of many weights is near the bound, in theirs and in ours."""
    for ours, theirs in (
        (nn.Linear(50, 400, key=KEY), torch.nn.Linear(50, 400)),
        (nn.Conv(20, 40, (3, 3), groups=2, key=KEY), torch.nn.Conv2d(20, 40, 3, groups=2)),
        (
            nn.ConvTranspose(40, 20, (3, 3), groups=2, key=KEY),
            torch.nn.ConvTranspose2d(40, 20, 3, groups=2),
        ),
    ):
        largest = [float(np.abs(np.asarray(ours.weight)).max())]
        largest.append(float(theirs.weight.detach().abs().max()))
        assert abs(largest[0] / largest[1] - 1) < 0.02
