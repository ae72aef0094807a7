"""The second table: public functions, by name, and the same call in torch and in jax.

A row has cases, which are arrays and options, and functions of the arrays and those options.
Floats among the arrays are differentiated. `ours` is the public function of that name unless
it stands here. `both(...)` is for functions that take what ours takes, by the same name.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from peers.against import F, jnn, jnp, jsp, lax, torch
from peers.words import different, lanes, torch_key


@dataclass(frozen=True)
class Row:
    """Cases, and how the peers are asked; None where one cannot say it."""

    cases: object
    torch: object = None
    jax: object = None
    ours: object = None
    values_only: object = None  # peer -> why its gradients are not compared
    where: object = None  # (peer, options, *arrays) -> whether the peer can say this case


# -- cases -----------------------------------------------------------------------------------


def case(*shapes, draw=None, **options):
    """Random arrays of these shapes, with these options."""
    draw = draw or (lambda rng, shape: rng.normal(size=shape))
    return lambda rng: ([np.asarray(draw(rng, s)) for s in shapes], options)


def given(*arrays, **options):
    """Arrays, or functions that draw them."""
    return lambda rng: ([np.asarray(a(rng) if callable(a) else a) for a in arrays], options)


def normal(*shape):
    return lambda rng: rng.normal(size=shape)


def turned(*shape):
    """Complex numbers."""
    return lambda rng: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def between(low, high, *shape):
    return lambda rng: rng.uniform(low, high, shape)


def apart(*shape):
    """Numbers of which no two are equal."""
    return lambda rng: different(rng, shape)


def integers(low, high, *shape):
    return lambda rng: rng.integers(low, high, shape)


AXES = [
    ((3,), None, False),
    ((), None, False),
    ((2, 3, 4), None, True),
    ((2, 3, 4), (0, 2), False),
    ((2, 3, 4), -2, True),
    ((4, 1, 3, 2), (1, -1), True),
]


def reduced(draw=None, **options):
    """Cases of a reduction, for each combination of further options."""
    more = [dict(zip(options, chosen, strict=True)) for chosen in product(*options.values())]
    return [
        case(shape, draw=draw, axis=axis, keepdims=keepdims, **extra)
        for shape, axis, keepdims in AXES
        for extra in more
    ]


# -- the peers' words ------------------------------------------------------------------------


def folding(f):
    """f(lanes, **options) as a reduction of torch's over any axes."""

    def call(x, *, axis=None, keepdims=False, **options):
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(a % x.ndim for a in axes)
        out = f(lanes(x, axes), **options)
        lead = out.shape[: out.ndim - (x.ndim - len(axes))]  # of a quantile's q
        kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
        return out.reshape(*lead, *kept) if keepdims else out

    return call


def both(name, *cases):
    """A function that is called alike by all three."""
    return Row(cases, getattr(torch, name), getattr(jnp, name))


def ended(out, axis, value, *, reverse, include_initial, xp, cat):
    """A running result with what none of the elements gives at its start, or end."""
    if not include_initial:
        return out
    edge = xp.full_like(out[(*[slice(None)] * axis, slice(0, 1))], value)
    return cat([out, edge] if reverse else [edge, out], axis)


def running(f, value, *, of):
    """f(x, axis) from the end with `reverse`, with an end of its own with `include_initial`."""

    def call(x, *, axis=None, reverse=False, include_initial=False):
        xp = torch if of == "torch" else jnp
        cat = torch.cat if of == "torch" else jnp.concatenate
        axis = 0 if axis is None else axis % x.ndim
        out = f(xp.flip(x, (axis,)), axis) if reverse else f(x, axis)
        out = xp.flip(out, (axis,)) if reverse else out
        return ended(
            out, axis, value, reverse=reverse, include_initial=include_initial, xp=xp, cat=cat
        )

    return call


RUNNING = [
    case((5,)),
    case((2, 4), axis=0, reverse=True),
    case((2, 3, 4), axis=-2, include_initial=True),
    case((3, 2), axis=1, include_initial=True, reverse=True),
]
CLIMBING = [
    given(apart(5)),
    given(apart(2, 4), axis=0, reverse=True),
    given(apart(2, 3, 4), axis=-2),
]


def joined(f):
    """A function of a list of arrays, called with the arrays."""
    return lambda *xs, **options: f(list(xs), **options)


def cuts(sections):
    """Our sections are a number or lengths; theirs a number or places to cut at."""
    return sections if isinstance(sections, int) else np.cumsum(sections)[:-1].tolist()


def torch_norm(x, *, ord=2, axis=None, keepdims=False):
    return torch.linalg.vector_norm(x, ord, axis, keepdims)


def torch_pad(x, pad_width, mode="constant", constant_values=0):
    """torch pads images: the last axes of at least three."""
    widths = [(pad_width,) * 2] * x.ndim if isinstance(pad_width, int) else pad_width
    flat = [n for pair in reversed(widths) for n in pair]
    if mode == "constant":
        return F.pad(x, flat, value=constant_values)
    lead = (1,) * 2
    return F.pad(x.reshape(*lead, *x.shape), flat, mode=mode)[0, 0]


def numpy_mode(mode):
    return {"replicate": "edge", "circular": "wrap"}.get(mode, mode)


def torch_along(x, indices, axis):
    """What take_along_axis broadcasts beside the axis, and torch does not."""
    return torch.take_along_dim(x, indices % x.shape[axis], axis)


def torch_put(x, indices, values, axis):
    shape = [n if a != axis % x.ndim else indices.shape[axis] for a, n in enumerate(x.shape)]
    return x.scatter(axis, indices.broadcast_to(shape), values.broadcast_to(shape))


def jax_scatter(how):
    """scatter of coordinates beside the axis, as torch has it."""

    def call(x, indices, src, axis):
        axis = axis % x.ndim
        grid = np.indices(indices.shape)
        keys = tuple(indices if a == axis else g for a, g in enumerate(grid))
        return getattr(x.at[keys], how)(src)

    return call


def windows(x, window_shape, axis=None):
    axes = range(x.ndim) if axis is None else axis
    for size, a in zip(window_shape, axes, strict=True):
        x = x.unfold(a, size, 1)
    return x


def embedded(indices, weight, padding_idx=None):
    return F.embedding(indices, weight, padding_idx=padding_idx)


def at(how):
    """x.at[key].how(values), which jax has too."""
    return lambda x, values, key: getattr(x.at[key], how)(values)


def put(x, values, key, *, how):
    """x[key] = values on a copy, or an update of what is there, by torch."""
    keys = key if isinstance(key, tuple) else (key,)
    if how == "add" and all(isinstance(k, np.ndarray) for k in keys):  # places may come twice
        return x.index_put(tuple(map(torch_key, keys)), values, accumulate=True)
    out = x.clone()
    part = x[key]
    values = values.broadcast_to(part.shape)
    out[key] = {"set": values, "add": part + values, "multiply": part * values}.get(how, values)
    return out


def torch_extreme(how):
    """Along axis 0 alone, which may name a row twice: scatter_reduce shares among ties."""

    def call(x, values, key):
        where = torch.tensor(key).reshape(-1, *(1,) * (x.ndim - 1)).expand(values.shape)
        return x.scatter_reduce(0, where, values, {"min": "amin", "max": "amax"}[how])

    return call


BASIC = [  # keys that name no place twice: torch cannot step backwards
    given(normal(4, 5, 3), normal(5, 3), key=2),
    given(normal(4, 5, 3), normal(2, 1, 3), key=(slice(1, 4, 2), slice(3, 4))),
    given(normal(4, 5), normal(), key=(Ellipsis, 0)),
    given(normal(4, 5), normal(2), key=(slice(None), [1, 3])),
    given(normal(4, 5), normal(2), key=([0, 3], [1, 1])),
]
TWICE = [  # some places more than once, which adds up
    given(normal(4, 3), normal(5, 3), key=np.array([1, 3, 1, 0, 3])),
    given(normal(4, 3), normal(2, 2), key=(np.array([[0, 0], [1, 1]]), np.array([2, 2]))),
]
KEYS = [
    given(normal(4, 5, 3), key=key)
    for key in (
        1,
        (-1, slice(None), 2),
        (slice(1, None), None, slice(0, 5, 2)),
        (Ellipsis, slice(0, 2)),
        [0, 2, 2],
        (slice(None), [1, 3, 3], [0, 2, 1]),
        ([1, 0], slice(1, 4), [2, 2]),
        (np.array([[0, 1], [2, 3]]), Ellipsis, 0),
        np.arange(60).reshape(4, 5, 3) % 3 == 0,
        np.array([True, False, True, True]),
    )
]
BACKWARDS = [
    given(normal(4, 5, 3), key=key)
    for key in (slice(None, None, -1), (Ellipsis, slice(3, 0, -2), slice(None)))
]


def powers():
    for exponent in (2, 3, -1, 0.5, 0, 1, -2.5):
        yield given(between(0.5, 2, 2, 3), exponent=exponent)
    for exponent in (2, 3, -2, 5):  # negative bases have whole powers
        yield given(between(-2, -0.5, 3), exponent=exponent)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ijk->kj", (2, 3, 4)),
    ("i,j->ij", (2,), (3,)),
    ("...ij,...jk->...ik", (2, 1, 3, 2), (4, 2, 3)),
    ("abc,cd,bde->ae", (2, 3, 2), (2, 3), (3, 3, 2)),
    ("i,i,i->", (4,), (4,), (4,)),
    ("iij,jk->ik", (2, 2, 3), (3, 2)),
]
MATMULS = [
    case((3,), (3,)),
    case((2, 3), (3,)),
    case((3,), (3, 4)),
    case((5, 2, 3), (3,)),
    case((3,), (4, 3, 2)),
    case((4, 1, 2, 3), (5, 3, 2)),
    given(turned(2, 3), turned(3, 2)),
]

# -- the table -------------------------------------------------------------------------------

NEW = "it makes a tensor of what is not one; there is nothing to differentiate or compare"

PEERS = {
    # reductions
    "sum": Row(reduced(), folding(lambda x: x.sum(-1)), jnp.sum),
    "mean": Row(
        [*reduced(), given(turned(2, 3), axis=0)], folding(lambda x: x.mean(-1)), jnp.mean
    ),
    "prod": Row(reduced(), folding(lambda x: x.prod(-1)), jnp.prod),
    "max": Row(reduced(different), folding(lambda x: x.amax(-1)), jnp.max),
    "min": Row(reduced(different), folding(lambda x: x.amin(-1)), jnp.min),
    "any": Row(reduced(), folding(lambda x: x.any(-1)), jnp.any),
    "all": Row(reduced(), folding(lambda x: x.all(-1)), jnp.all),
    "count_nonzero": Row(
        [
            given(integers(0, 2, 3, 4)),
            given(integers(0, 3, 2, 3, 2), axis=(0, 2), keepdims=True),
        ],
        folding(lambda x: x.count_nonzero(-1)),
        jnp.count_nonzero,
    ),
    "var": Row(
        [*reduced(correction=(0,)), *reduced(correction=(0.5, 1))[4:]],
        folding(lambda x, correction: x.var(-1, correction=correction)),
        lambda x, correction, **o: jnp.var(x, ddof=correction, **o),
    ),
    "std": Row(
        reduced(correction=(0.0, 1.0))[4:],
        folding(lambda x, correction: x.std(-1, correction=correction)),
        lambda x, correction, **o: jnp.std(x, ddof=correction, **o),
    ),
    "logsumexp": Row(reduced(), folding(lambda x: x.logsumexp(-1)), jsp.logsumexp),
    "argmax": Row(
        [
            given(apart(3, 4)),
            given(apart(3, 4), axis=1),
            given(apart(2, 3), axis=0, keepdims=True),
        ],
        lambda x, axis=None, keepdims=False: torch.argmax(x, axis, keepdims),
        jnp.argmax,
    ),
    "argmin": Row(
        [
            given(apart(3, 4)),
            given(apart(3, 4), axis=1),
            given(apart(2, 3), axis=0, keepdims=True),
        ],
        lambda x, axis=None, keepdims=False: torch.argmin(x, axis, keepdims),
        jnp.argmin,
    ),
    "norm": Row(
        [
            *reduced(ord=(2,)),
            *(case((2, 3, 4), axis=(0, 2), ord=p) for p in (1, 3, 2.5, np.inf, -np.inf, -1)),
            *(given(turned(3, 4), axis=1, ord=p) for p in (1, 2, 3, np.inf)),
        ],
        torch_norm,
        jnp.linalg.vector_norm,
    ),
    "vector_norm": Row(
        [case((2, 3)), case((2, 3, 4), axis=-1, ord=1, keepdims=True)],
        torch_norm,
        jnp.linalg.vector_norm,
    ),
    "median": Row(
        reduced(different), folding(lambda x: torch.quantile(x, 0.5, -1)), jnp.median
    ),
    "quantile": Row(
        [
            *(
                given(apart(5, 4), q, axis=axis, method=method, keepdims=keepdims)
                for method in ("linear", "lower", "higher", "midpoint", "nearest")
                for q, axis, keepdims in ((0.37, 0, False), ([0.1, 0.62], 1, True))
            ),
            given(apart(2, 3, 2), 0.3, axis=None, method="linear", keepdims=False),
        ],
        lambda x, q, axis, method, keepdims: folding(
            lambda y: torch.quantile(y, q, -1, interpolation=method)
        )(x, axis=axis, keepdims=keepdims),
        jnp.quantile,
    ),
    # along an axis
    "cumulative_sum": Row(
        RUNNING,
        running(lambda x, a: x.cumsum(a), 0, of="torch"),
        running(jnp.cumsum, 0, of="jax"),
    ),
    "cumulative_prod": Row(
        RUNNING,
        running(lambda x, a: x.cumprod(a), 1, of="torch"),
        running(jnp.cumprod, 1, of="jax"),
    ),
    "cumulative_max": Row(
        CLIMBING,
        running(lambda x, a: x.cummax(a)[0], 0, of="torch"),
        running(lax.cummax, 0, of="jax"),
    ),
    "cumulative_min": Row(
        CLIMBING,
        running(lambda x, a: x.cummin(a)[0], 0, of="torch"),
        running(lax.cummin, 0, of="jax"),
    ),
    "cumulative_logsumexp": Row(
        CLIMBING,
        running(lambda x, a: x.logcumsumexp(a), 0, of="torch"),
        running(lax.cumlogsumexp, 0, of="jax"),
    ),
    "cumsum": Row(
        [case((2, 3)), case((2, 3), axis=-1)],
        lambda x, axis=None: x.reshape(-1).cumsum(0) if axis is None else x.cumsum(axis),
        jnp.cumsum,
    ),
    "cumprod": Row(
        [case((2, 3)), case((2, 3), axis=-1)],
        lambda x, axis=None: x.reshape(-1).cumprod(0) if axis is None else x.cumprod(axis),
        jnp.cumprod,
    ),
    "diff": Row(
        [case((5,)), case((3, 4), axis=0, n=2), case((2, 3, 4), axis=1)],
        lambda x, axis=-1, n=1: torch.diff(x, n, axis),
        jnp.diff,
    ),
    "diff between": Row(
        [case((3, 4), (3, 1), (3, 2))],
        lambda x, a, b: torch.diff(x, prepend=a, append=b),
        lambda x, a, b: jnp.diff(x, prepend=a, append=b),
        ours=lambda rg, x, a, b: rg.diff(x, prepend=a, append=b),
    ),
    "sort": Row(
        [given(apart(6)), given(apart(3, 4), axis=0, descending=True), given(apart(2, 3, 4))],
        lambda x, axis=-1, descending=False: torch.sort(x, axis, descending)[0],
        jnp.sort,
    ),
    "argsort": Row(
        [given(apart(6)), given(apart(3, 4), axis=0, descending=True)],
        lambda x, axis=-1, descending=False: torch.argsort(x, axis, descending),
        jnp.argsort,
    ),
    "topk": Row(
        [given(apart(6), k=2), given(apart(3, 4), k=3, axis=0, largest=False)],
        lambda x, k, axis=-1, largest=True: torch.topk(x, k, axis, largest),
        ours=lambda rg, x, k, **o: rg.topk(x, k, **o),
    ),
    "searchsorted": Row(
        [
            given(np.arange(5.0), integers(-1, 6, 2, 3)),
            given(np.arange(5.0), between(-1, 6, 4), side="right"),
        ],
        torch.searchsorted,
        jnp.searchsorted,
        ours=lambda rg, a, b, **o: rg.searchsorted(a, b * 1.0, **o),
    ),
    # matrices
    "matmul": both("matmul", *MATMULS),
    "dot": Row([case((3,), (3,)), case((2, 3), (4, 3, 2)), case((), (3,))], jax=jnp.dot),
    "inner": both("inner", case((3,), (3,)), case((2, 3), (4, 3)), case((), (3,))),
    "outer": both("outer", case((3,), (4,)), given(turned(2), turned(3))),
    "kron": both("kron", case((2, 3), (3, 2)), case((2,), (2, 3)), case((2, 1, 2), (3,))),
    "vecdot": Row(
        [
            case((4,), (4,)),
            case((2, 3), (4, 1, 3)),
            given(turned(3, 2), turned(3, 2), axis=-2),
        ],
        lambda a, b, axis=-1: torch.linalg.vecdot(a, b, dim=axis),
        jnp.vecdot,
    ),
    "tensordot": Row(
        [
            case((2, 3, 4), (3, 4, 2), axes=2),
            case((2, 3), (4,), axes=0),
            case((2, 3, 4), (4, 5, 2), axes=([0, 2], [2, 0])),
            case((2, 3, 4), (3, 2), axes=([1], [0])),
        ],
        lambda a, b, axes: torch.tensordot(a, b, dims=axes),
        jnp.tensordot,
    ),
    "linear": Row(
        [case((2, 3), (3, 4), (4,)), case((5, 2, 3), (3, 2), (2,)), case((3,), (3, 2))],
        lambda x, w, b=None: F.linear(x, w.mT, b),
        lambda x, w, b=0.0: x @ w + b,
    ),
    "matrix_transpose": Row(
        [case((2, 3)), case((2, 3, 4))], lambda x: x.mT, jnp.matrix_transpose
    ),
    "einsum": Row(
        [case(*shapes, subscripts=s) for s, *shapes in EINSUMS],
        lambda *xs, subscripts: torch.einsum(subscripts, *xs),
        lambda *xs, subscripts: jnp.einsum(subscripts, *xs),
        ours=lambda rg, *xs, subscripts: rg.einsum(subscripts, *xs),
    ),
    "diag": Row(
        [case((3,)), case((3,), offset=-2), case((3, 4), offset=1)],
        lambda x, offset=0: torch.diag(x, offset),
        lambda x, offset=0: jnp.diag(x, offset),
    ),
    "diagonal": Row(
        [case((3, 4)), case((2, 3, 4), offset=-1), case((2, 3, 4), axis1=0, axis2=1, offset=1)],
        lambda x, offset=0, axis1=-2, axis2=-1: torch.diagonal(x, offset, axis1, axis2),
        lambda x, offset=0, axis1=-2, axis2=-1: jnp.diagonal(x, offset, axis1, axis2),
    ),
    "trace": Row(
        [case((3, 3)), case((2, 3, 4), offset=1)],
        lambda x, offset=0: torch.diagonal(x, offset, -2, -1).sum(-1),
        lambda x, offset=0: jnp.trace(x, offset, -2, -1),
    ),
    "tril": Row(
        [case((3, 4)), case((2, 3, 3), k=-1), case((3, 2), k=1)],
        lambda x, k=0: torch.tril(x, k),
        jnp.tril,
    ),
    "triu": Row(
        [case((3, 4)), case((2, 3, 3), k=-1), case((3, 2), k=1)],
        lambda x, k=0: torch.triu(x, k),
        jnp.triu,
    ),
    # shapes
    "reshape": Row(
        [case((2, 6), shape=(3, -1)), case((), shape=(1, 1)), case((2, 3), shape=6)],
        torch.reshape,
        jnp.reshape,
        where=lambda peer, o, x: peer == "jax" or isinstance(o["shape"], tuple),
    ),
    "flatten": Row(
        [case((2, 3, 4)), case((2, 3, 4), start=1), case((2, 3, 4), start=0, end=1), case(())],
        lambda x, start=0, end=-1: torch.flatten(x, start, end),
    ),
    "ravel": both("ravel", case((2, 3)), case(())),
    "squeeze": Row(
        [case((1, 2, 1)), case((1, 2, 1), axis=0), case((1, 2, 1), axis=(0, -1))],
        lambda x, axis=None: torch.squeeze(x) if axis is None else torch.squeeze(x, axis),
        jnp.squeeze,
    ),
    "expand_dims": Row(
        [case((2, 3), axis=0), case((2, 3), axis=-1), case((2, 3), axis=(0, 3))],
        jax=jnp.expand_dims,
    ),
    "moveaxis": Row(
        [
            case((2, 3, 4), source=0, destination=-1),
            case((2, 3, 4), source=(0, 2), destination=(1, 0)),
        ],
        torch.moveaxis,
        jnp.moveaxis,
        ours=lambda rg, x, source, destination: rg.moveaxis(x, source, destination),
    ),
    "swapaxes": Row(
        [case((2, 3, 4), a=0, b=-1)],
        lambda x, a, b: x.swapaxes(a, b),
        lambda x, a, b: x.swapaxes(a, b),
        ours=lambda rg, x, a, b: rg.swapaxes(x, a, b),
    ),
    "transpose": Row([case((2, 3)), case((2, 3, 4)), case((3,))], jax=jnp.transpose),
    "permute_dims": Row(
        [case((2, 3, 4), axes=(2, 0, 1)), case((2, 3, 4), axes=(-1, 0, 1))],
        lambda x, axes: x.permute(axes),
        lambda x, axes: jnp.permute_dims(x, [a % x.ndim for a in axes]),
    ),
    "broadcast_to": Row(
        [case((3, 1), shape=(2, 3, 4)), case((), shape=(2,))],
        lambda x, shape: x.broadcast_to(shape),
        jnp.broadcast_to,
    ),
    "broadcast_arrays": Row(
        [case((3, 1), (2,), ())], torch.broadcast_tensors, jnp.broadcast_arrays
    ),
    "atleast_1d": both("atleast_1d", case(()), case((2, 3))),
    "atleast_2d": both("atleast_2d", case(()), case((3,)), case((2, 3, 1))),
    # joining and turning
    **{
        name: Row(
            [case((2, 3), (1, 3)), case((2, 3), (2, 2), axis=1), case((2,), (3, 2), axis=None)],
            lambda *xs, axis=0: (
                torch.cat(xs, axis)
                if axis is not None
                else torch.cat([x.reshape(-1) for x in xs])
            ),
            joined(jnp.concatenate),
            ours=lambda rg, *xs, name=name, **o: getattr(rg, name)(list(xs), **o),
        )
        for name in ("concat", "concatenate")
    },
    "stack": Row(
        [case((2, 3), (2, 3)), case((2,), (2,), (2,), axis=-1)],
        lambda *xs, axis=0: torch.stack(xs, axis),
        joined(jnp.stack),
        ours=lambda rg, *xs, **o: rg.stack(list(xs), **o),
    ),
    "hstack": Row(
        [case((2,), (3,)), case((2, 3), (2, 1))],
        lambda *xs: torch.hstack(xs),
        joined(jnp.hstack),
        ours=lambda rg, *xs: rg.hstack(list(xs)),
    ),
    "vstack": Row(
        [case((2,), (2,)), case((2, 3), (1, 3))],
        lambda *xs: torch.vstack(xs),
        joined(jnp.vstack),
        ours=lambda rg, *xs: rg.vstack(list(xs)),
    ),
    "split": Row(
        [case((6, 2), sections=3), case((2, 7), sections=[2, 5], axis=1)],
        lambda x, sections, axis=0: torch.tensor_split(x, cuts(sections), axis),
        lambda x, sections, axis=0: jnp.split(x, cuts(sections), axis),
        ours=lambda rg, x, sections, **o: rg.split(x, sections, **o),
    ),
    "array_split": Row(
        [case((7, 2), sections=3), case((2, 5), sections=3, axis=1)],
        lambda x, sections, axis=0: torch.tensor_split(x, sections, axis),
        lambda x, sections, axis=0: jnp.array_split(x, sections, axis),
        ours=lambda rg, x, sections, **o: rg.array_split(x, sections, **o),
    ),
    "unstack": Row(
        [case((3, 2)), case((2, 3, 2), axis=-1)],
        lambda x, axis=0: torch.unbind(x, axis),
        jnp.unstack,
    ),
    "flip": Row(
        [case((2, 3)), case((2, 3, 4), axis=(0, -1)), case((4,), axis=0)],
        lambda x, axis=None: torch.flip(
            x,
            tuple(range(x.ndim))
            if axis is None
            else axis
            if isinstance(axis, tuple)
            else (axis,),
        ),
        jnp.flip,
    ),
    "roll": Row(
        [
            case((5,), shift=2),
            case((3, 4), shift=-1),
            case((3, 4), shift=(1, -2), axis=(0, 1)),
            case((3, 4), shift=9, axis=-1),
        ],
        lambda x, shift, axis=None: torch.roll(x, shift, axis),
        jnp.roll,
    ),
    "rot90": Row(
        [case((2, 3)), case((2, 3, 4), k=3, axes=(2, 0)), case((3, 3), k=2)],
        lambda x, k=1, axes=(0, 1): torch.rot90(x, k, axes),
        jnp.rot90,
    ),
    "tile": Row(
        [case((2, 3), n=2), case((2, 3), n=(2, 1, 2)), case((), n=(3,))],
        lambda x, n: torch.tile(x, n if isinstance(n, tuple) else (n,)),
        lambda x, n: jnp.tile(x, reps=n),
        ours=lambda rg, x, n: rg.tile(x, n),
    ),
    "repeat": Row(
        [case((2, 3), n=2), case((2, 3), n=3, axis=1), case((2, 3), n=[2, 0, 1], axis=-1)],
        lambda x, n, axis=None: torch.repeat_interleave(
            x, n if isinstance(n, int) else torch.tensor(n), axis
        ),
        lambda x, n, axis=None: jnp.repeat(x, np.asarray(n), axis),
        ours=lambda rg, x, n, **o: rg.repeat(x, n, **o),
    ),
    "meshgrid": Row(
        [case((2,), (3,), indexing=i) for i in ("xy", "ij")]
        + [case((2,), (3,), (2,), indexing="xy")],
        torch.meshgrid,
        jnp.meshgrid,
    ),
    "pad": Row(
        [
            case((3, 4), pad_width=((1, 2), (0, 3)), mode="constant", constant_values=1.5),
            case((2, 3, 2), pad_width=1, mode="constant"),
            *(
                case((3, 4), pad_width=((2, 1), (0, 3)), mode=mode)
                for mode in ("reflect", "replicate", "circular", "edge", "symmetric", "wrap")
            ),
            case((3,), pad_width=((5, 7),), mode="reflect"),  # more than once around
            case((3,), pad_width=((4, 8),), mode="symmetric"),
            case((2,), pad_width=((3, 5),), mode="wrap"),
        ],
        torch_pad,
        lambda x, mode, **o: jnp.pad(x, mode=numpy_mode(mode), **o),
        where=lambda peer, o, x: (
            peer == "jax"
            or (
                o["mode"] in ("constant", "reflect", "replicate", "circular")
                and o["pad_width"] != ((5, 7),)
            )
        ),
    ),
    "unfold": Row(
        [case((7,), n=3), case((2, 9, 2), n=2, axis=1, step=3, dilation=2)],
        lambda x, n, axis=-1, step=1, dilation=1: x.unfold(axis, dilation * (n - 1) + 1, step)[
            ..., ::dilation
        ],
        ours=lambda rg, x, n, **o: rg.unfold(x, n, **o),
    ),
    "fold": Row(  # F.fold adds up blocks of images: one row is a sequence
        [case((3, 4), length=6), case((4, 2), length=9, step=2, dilation=2)],
        lambda x, length, step=1, dilation=1: F.fold(
            x.mT[None], (1, length), (1, x.shape[1]), dilation=(1, dilation), stride=(1, step)
        )[0, 0, 0],
        ours=lambda rg, x, length, **o: rg.fold(x, length, axis=0, **o),
    ),
    "sliding_window_view": Row(
        [case((5, 4), window_shape=(2, 3)), case((3, 6), window_shape=(4,), axis=(1,))], windows
    ),
    # indices
    "take": Row(
        [
            given(normal(5), [0, 4, 4]),
            given(normal(4, 3), [[0, 2], [1, 1]], axis=1),
            given(normal(4, 3, 2), [3, 0], axis=-3),
        ],
        jax=jnp.take,
    ),
    "take_along_axis": Row(
        [
            given(normal(3, 4), integers(0, 4, 3, 2), axis=1),
            given(normal(3, 4), integers(0, 3, 2, 4), axis=0),
            given(normal(2, 3, 4), integers(-3, 3, 2, 5, 1), axis=1),
        ],
        torch_along,
        jnp.take_along_axis,
    ),
    "gather": Row(
        [
            given(normal(3, 4), integers(0, 4, 3, 6), axis=1),
            given(normal(3, 4), integers(0, 3, 5, 2), axis=0),
            given(normal(2, 3, 4), integers(0, 4, 1, 2, 3), axis=-1),
        ],
        lambda x, i, axis: torch.gather(x, axis, i),
    ),
    "scatter": Row(  # without repeated places: which write wins is not torch's to say
        [
            given(normal(3, 4), [[0, 2], [3, 1]], normal(2, 2), axis=1),
            given(normal(3, 4), [[2, 0, 1]], normal(1, 3), axis=0),
        ],
        lambda x, i, src, axis: torch.scatter(x, axis, i, src),
        jax_scatter("set"),
    ),
    "scatter_add": Row(
        [
            given(normal(3, 4), integers(0, 4, 2, 6), normal(2, 6), axis=1),
            given(normal(3, 4), integers(0, 3, 5, 3), normal(5, 3), axis=0),
        ],
        lambda x, i, src, axis: torch.scatter_add(x, axis, i, src),
        jax_scatter("add"),
    ),
    "put_along_axis": Row(
        [
            given(normal(3, 4), [[0, 2], [3, 1], [1, 0]], normal(3, 2), axis=1),
            given(normal(3, 4), [[2]], normal(1, 4), axis=0),
        ],
        torch_put,
        lambda x, i, v, axis: jnp.put_along_axis(
            x, jnp.broadcast_to(i, v.shape), v, axis, inplace=False
        ),
    ),
    "embedding": Row(
        [
            given(integers(0, 5, 2, 3), normal(5, 4)),
            given(integers(0, 3, 7), normal(3, 2), padding_idx=1),
            given(integers(0, 3, 7), normal(3, 2), padding_idx=-1),
        ],
        embedded,
        lambda i, w, padding_idx=None: w[i],
        where=lambda peer, o, *xs: peer == "torch" or not o,
    ),
    "one_hot": Row(
        [given(integers(0, 4, 3, 2), n=4), given(2, n=3)],
        lambda i, n: F.one_hot(i, n).double(),
        lambda i, n: jnn.one_hot(i, n, dtype=np.float64),
        ours=lambda rg, i, n: rg.one_hot(i, n, dtype=rg.float64),
    ),
    "getitem": Row(
        KEYS + BACKWARDS,
        lambda x, key: x[key],
        lambda x, key: x[np.asarray(key) if isinstance(key, list) else _arrays(key)],
        ours=lambda rg, x, key: x[key],
        where=lambda peer, o, x: peer == "jax" or "-" not in str(o["key"]).replace("-1,", ""),
    ),
    "at.set": Row(
        BASIC,
        lambda x, v, key: put(x, v, key, how="set"),
        lambda x, v, key: x.at[_arrays(key)].set(v),
        ours=lambda rg, x, v, key: x.at[key].set(v),
    ),
    "at.add": Row(
        BASIC + TWICE,
        lambda x, v, key: put(x, v, key, how="add"),
        lambda x, v, key: x.at[_arrays(key)].add(v),
        ours=lambda rg, x, v, key: x.at[key].add(v),
    ),
    "at.subtract": Row(
        TWICE,
        jax=lambda x, v, key: x.at[key].subtract(v),
        ours=lambda rg, x, v, key: x.at[key].subtract(v),
    ),
    "at.multiply": Row(
        BASIC,
        lambda x, v, key: put(x, v, key, how="multiply"),
        lambda x, v, key: x.at[_arrays(key)].multiply(v, unique_indices=True),
        ours=lambda rg, x, v, key: x.at[key].multiply(v),
    ),
    "at.divide": Row(
        BASIC,
        jax=lambda x, v, key: x.at[_arrays(key)].divide(v, unique_indices=True),
        ours=lambda rg, x, v, key: x.at[key].divide(v),
    ),
    "at.min": Row(
        TWICE[:1],
        torch_extreme("min"),
        at("min"),
        ours=lambda rg, x, v, key: x.at[key].min(v),
        values_only={"jax": "it does not differentiate the smallest of a scatter"},
    ),
    "at.max": Row(
        TWICE[:1],
        torch_extreme("max"),
        at("max"),
        ours=lambda rg, x, v, key: x.at[key].max(v),
        values_only={"jax": "it does not differentiate the largest of a scatter"},
    ),
    "masked_select": Row(
        [
            given(normal(3, 4), lambda rng: rng.uniform(size=(3, 4)) > 0.5),
            given(normal(2, 1), [True, False, True]),
        ],
        torch.masked_select,
    ),
    "masked_fill": Row(
        [
            given(normal(3, 4), lambda rng: rng.uniform(size=(3, 4)) > 0.5, 1.5),
            given(normal(3, 4), [True, False, True, True], normal()),
        ],
        torch.masked_fill,
        lambda x, mask, v: jnp.where(mask, v, x),
    ),
    "nonzero": Row(
        [given(integers(0, 2, 3, 4)), given(integers(0, 2, 5))],
        lambda x: torch.nonzero(x, as_tuple=True),
        jnp.nonzero,
    ),
    "argwhere": both("argwhere", given(integers(0, 2, 3, 4)), given(integers(0, 2, 5))),
    # values and their numbers
    "unique": Row(
        [given(integers(0, 4, 3, 4)), given(apart(7))],
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda x: jnp.unique(x, return_inverse=True, return_counts=True),
        ours=lambda rg, x: rg.unique(x, return_inverse=True, return_counts=True),
        values_only=dict.fromkeys(("torch", "jax"), "it has no derivative there"),
    ),
    "unique_all": Row(
        [given(integers(0, 4, 3, 4))],
        jax=lambda x: list(jnp.unique_all(x)),
        ours=lambda rg, x: list(rg.unique_all(x)),
    ),
    "unique_counts": Row(
        [given(integers(0, 4, 3, 4))],
        lambda x: torch.unique(x, return_counts=True),
        lambda x: list(jnp.unique_counts(x)),
        ours=lambda rg, x: list(rg.unique_counts(x)),
    ),
    "unique_inverse": Row(
        [given(integers(0, 4, 3, 4))],
        lambda x: torch.unique(x, return_inverse=True),
        lambda x: list(jnp.unique_inverse(x)),
        ours=lambda rg, x: list(rg.unique_inverse(x)),
    ),
    "unique_values": Row([given(integers(0, 4, 3, 4))], torch.unique, jnp.unique_values),
    "bincount": Row(
        [given([3, 1, 4, 1, 0]), given(integers(0, 5, 9), normal(9), minlength=8)],
        torch.bincount,
        lambda x, *w, minlength=5: jnp.bincount(
            x, *w, length=max(minlength, int(np.max(x)) + 1)
        ),
        values_only={"torch": "it has no derivative there"},
    ),
    "histogram": Row(
        [given(between(0, 1, 20), bins=4, range=(0.0, 1.0)), given(normal(20), bins=5)],
        lambda x, bins, range=None: torch.histogram(x, bins, range=range),
        lambda x, bins, range=None: jnp.histogram(x, bins, range),
        ours=lambda rg, x, bins, range=None: [
            part.astype(rg.float64) for part in rg.histogram(x, bins, range=range)
        ],
        values_only=dict.fromkeys(("torch", "jax"), "counts and edges are constants with us"),
    ),
    # element by element, beyond what the ops' own table asks
    "pow": Row(
        list(powers()),
        lambda x, exponent: x**exponent,
        lambda x, exponent: x**exponent,
        ours=lambda rg, x, exponent: x**exponent,
    ),
    "pow of a number": Row(
        [case((2, 3), base=b) for b in (2, 0.5, 3.0)],
        lambda x, base: base**x,
        lambda x, base: base**x,
        ours=lambda rg, x, base: base**x,
    ),
    "power": Row([given(between(0.5, 2, 2, 3), normal(3))], torch.pow, jnp.power),
    "clip": Row(
        [case((3, 4), min=-0.5), case((3, 4), max=0.3), case((3, 4), min=-0.4, max=0.6)],
        torch.clip,
        jnp.clip,
    ),
    "fmax": both("fmax", case((2, 3), (3,)), given([1.0, np.nan, 2.0], [np.nan, 1.0, 3.0])),
    "fmin": both("fmin", case((2, 3), (3,)), given([1.0, np.nan, 2.0], [np.nan, 1.0, 3.0])),
    "round": Row([case((2, 3), decimals=d) for d in (0, 1, 2, -1)], torch.round, jnp.round),
    "abs": both("abs", case((2, 3)), given(turned(2, 3))),
    "absolute": both("absolute", case((2, 3))),
    "sign": Row([case((2, 3)), given(turned(2, 3))], torch.sgn),
    "angle": both("angle", given(turned(2, 3)), given([-1.5, 2.0])),
    "conjugate": Row([given(turned(2, 3))], torch.conj, jnp.conjugate),
    "true_divide": both("true_divide", case((2, 3), (3,))),
    "mod": Row([given(normal(2, 3), between(0.5, 2, 3))], torch.remainder, jnp.mod),
    "deg2rad": both("deg2rad", case((2, 3))),
    "rad2deg": both("rad2deg", case((2, 3))),
    "isclose": both("isclose", given([1.0, 1.0, np.inf], [1.0 + 1e-7, 1.1, np.inf])),
    "allclose": Row(
        [given([1.0, 2.0], [1.0, 2.0 + 1e-7]), given([1.0, 2.0], [1.0, 2.1])],
        jax=jnp.allclose,
    ),
    "array_equal": Row(
        [
            given([1.0, 2.0], [1.0, 2.0]),
            given([1.0, 2.0], [1.0, 2.1]),
            given([1.0], [1.0, 1.0]),
        ],
        jax=jnp.array_equal,
    ),
    **{
        name: Row([given(between(0.2, 0.8, 2, 3))], getattr(torch, name))
        for name in ("arccos", "arcsin", "arctan", "arctanh", "arcsinh")
    },
    "arccosh": Row([given(between(1.5, 3, 2, 3))], torch.arccosh),
    "arctan2": Row([case((2, 3), (3,))], torch.arctan2),
    "bitwise_not": Row([given(integers(-5, 5, 2, 3))], torch.bitwise_not),
    # special functions
    "special.entr": Row([given(between(0.2, 2, 2, 3))], torch.special.entr, jsp.entr),
    "special.expit": Row([case((2, 3))], torch.special.expit, jsp.expit),
    "special.gammaln": Row([given(between(0.5, 5, 2, 3))], torch.special.gammaln, jsp.gammaln),
    "special.polygamma": Row(  # torch's trigamma is good to 1e-10 only
        [given(between(0.5, 5, 2, 3), n=n) for n in (0, 1, 2, 3)],
        jax=lambda x, n: jsp.polygamma(n, x) if n else jsp.digamma(x),
        ours=lambda rg, x, n: rg.special.polygamma(n, x),
    ),
    # creation
    "arange": Row(
        [given(start=1, stop=9, step=3), given(start=0.0, stop=1.0, step=0.25)],
        lambda start, stop, step: torch.arange(start, stop, step, dtype=torch.float64),
        lambda start, stop, step: jnp.arange(start, stop, step, dtype=np.float64),
        ours=lambda rg, start, stop, step: rg.arange(start, stop, step, dtype=rg.float64),
    ),
    "linspace": Row(
        [given(normal(), normal(), num=n) for n in (5, 1, 0)]
        + [given(normal(), normal(), num=4, endpoint=False)],
        lambda a, b, num, endpoint=True: torch.linspace(0, 1, num, dtype=a.dtype) * (b - a) + a,
        jnp.linspace,
        where=lambda peer, o, *xs: peer == "jax" or "endpoint" not in o,
    ),
    "full": Row(
        [given(normal(), shape=(2, 3))],
        lambda v, shape: v.expand(shape),
        lambda v, shape: jnp.full(shape, v),
        ours=lambda rg, v, shape: rg.full(shape, v),
    ),
    "full_like": Row(
        [given(normal(2, 3), normal())],
        lambda x, v: v.expand(x.shape),
        jnp.full_like,
        ours=lambda rg, x, v: rg.full_like(x, v),
    ),
    "eye": Row(
        [given(rows=3, columns=4, k=1), given(rows=2, columns=2, k=0)],
        jax=lambda rows, columns, k: jnp.eye(rows, columns, k=k),
        ours=lambda rg, rows, columns, k: rg.eye(rows, columns, k=k, dtype=rg.float64),
    ),
    **{
        name: Row(
            [given(shape=(2, 3)), given(shape=())],
            lambda shape, name=name: getattr(torch, name)(shape, dtype=torch.float64),
            lambda shape, name=name: getattr(jnp, name)(shape),
            ours=lambda rg, shape, name=name: getattr(rg, name)(shape, dtype=rg.float64),
        )
        for name in ("zeros", "ones")
    },
    "zeros_like": both("zeros_like", case((2, 3))),
    "ones_like": both("ones_like", case((2, 3))),
    "empty": "what lies in memory is not compared; ours is zeros",
    "empty_like": "what lies in memory is not compared; ours is zeros",
    "asarray": NEW,
    "tensor": NEW,
    "stop_gradient": "of a tree; the op StopGradient has its row",
}


def _arrays(key):
    """jax takes arrays where others take lists."""
    if isinstance(key, tuple):
        return tuple(_arrays(k) for k in key)
    return np.asarray(key) if isinstance(key, list) else key
