"""The table: each of our ops, and how torch and jax are asked for the same thing.

A row is `Row(torch=..., jax=...)`, functions of the op and its inputs, or a sentence that says
why there is nothing to compare with. Where a peer has no function of that name but says the
same thing in a few words, those words stand here. `by(name)` is a function that both have.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from peers.against import F, jnn, jnp, jsp, lax, torch

from retrograd.core.op import REGISTRY
from retrograd.ops import slices


@dataclass(frozen=True)
class Row:
    """How the peers are asked; None where one cannot say it."""

    torch: object = None
    jax: object = None
    values_only: object = None  # peer -> why its gradients are not compared
    where: object = None  # (peer, op, *arrays) -> whether the peer can say this sample
    more: object = None  # rng -> further samples


def by(name, jax=None, module=None):
    """A function of both, called on the inputs alone."""
    return Row(
        torch=lambda op, *xs: getattr(torch, name)(*xs),
        jax=lambda op, *xs: getattr(module or jnp, jax or name)(*xs),
    )


# -- helpers: what is one word with us and several with them ------------------------------------


def shape_of(rng, low=0, high=4, most=4):
    """A random shape: up to four axes of length `low` to `high`."""
    return tuple(int(n) for n in rng.integers(low, high + 1, rng.integers(0, most + 1)))


def axes_of(rng, ndim):
    """Some of the axes, in order."""
    return tuple(i for i in range(ndim) if rng.integers(2))


def reductions(name, low=0, draw=lambda rng, shape: rng.normal(size=shape)):
    """Samples of a reduction: shapes, axes and keepdims by chance."""

    def more(rng):
        for _ in range(6):
            shape = shape_of(rng, low)
            axes, keep = axes_of(rng, len(shape)), bool(rng.integers(2))
            yield REGISTRY[name](axis=axes, keepdims=keep), np.asarray(draw(rng, shape))

    return more


def along(name, draw=lambda rng, shape: rng.normal(size=shape), **options):
    """Samples of an op that runs along one axis."""

    def more(rng):
        for _ in range(5):
            shape = (*shape_of(rng, most=2), int(rng.integers(1, 6)))
            shape = tuple(int(n) for n in rng.permutation(shape))
            yield REGISTRY[name](axis=int(rng.integers(len(shape))), **options), draw(rng, shape)

    return more


def different(rng, shape):
    """Numbers of which no two are equal."""
    return rng.permutation(prod(shape)).reshape(shape) * 0.5


def lanes(x, axis):
    """x with the axes of a reduction as one, the last: torch takes dim=() for all axes."""
    beside = [i for i in range(x.ndim) if i not in axis]
    sizes = [x.shape[i] for i in beside]
    return x.permute([*beside, *axis]).reshape(*sizes, prod(x.shape[i] for i in axis))


def reduced(f):
    """f(lanes) for torch, in the shape that the op asks for."""

    def call(op, x):
        out = f(op, lanes(x, op.axis))
        shape = [1 if i in op.axis else n for i, n in enumerate(x.shape)]
        return out.reshape(shape) if op.keepdims else out

    return call


def over(f):
    """f(x, axis=, keepdims=) for jax."""
    return lambda op, x: f(x, axis=op.axis, keepdims=op.keepdims)


def turned(f, flip):
    """A function that runs forwards, from the end where the op says so."""

    def call(op, x):
        if not op.backwards:
            return f(op, x)
        return flip(f(op, flip(x, (op.axis,))), (op.axis,))

    return call


def exclusive(cat, ones, product):
    """A running product that leaves out the element itself, where the op says so."""

    def call(op, x):
        out = product(x, op.axis)
        if not op.exclusive or not x.shape[op.axis]:
            return out
        first = ones(x[(*[slice(None)] * op.axis, slice(0, 1))])
        return cat([first, out[(*[slice(None)] * op.axis, slice(0, -1))]], op.axis)

    return call


def places(op):
    """The numbers of the elements that parts of a tensor of shape `to` name."""
    return lambda to: np.arange(prod(to)).reshape(to)[slices.key(op.parts)]


def torch_put(x, where, values):
    """x with values at numbers of its elements."""
    where = torch.tensor(np.array(where)).reshape(-1)
    return x.reshape(-1).index_put((where,), values.reshape(-1)).reshape(x.shape)


def coordinates(op, indices, sizes):
    """The keys of an Index op, in an order of axes in which the indexed ones come first."""
    n, indices = op.batch_axes, np.asarray(indices)
    rest = indices.ndim - 1 - n
    own = [np.arange(m).reshape(m, *(1,) * (n - 1 - i + rest)) for i, m in enumerate(sizes[:n])]
    given = np.moveaxis(indices, n, 0)
    return (*own, *(i % m for i, m in zip(given, sizes[n:], strict=False)))


def back(order):
    """The order that undoes a reordering."""
    return tuple(int(i) for i in np.argsort(order))


def indexed(permute, key):
    """x at coordinates, by either peer."""

    def call(op, x, indices):
        order = op.gathered(x.ndim)
        sizes = [x.shape[a] for a in order]
        out = permute(x, order)[tuple(map(key, coordinates(op, indices, sizes)))]
        return permute(out, op.placed(out.ndim, indices.ndim - 1 - op.batch_axes))

    return call


def index_added(permute, zeros, add):
    """Zeros with x added at coordinates, by either peer."""

    def call(op, x, indices):
        order = op.gathered(len(op.to))
        sizes = [op.to[a] for a in order]
        x = permute(x, back(op.placed(x.ndim, indices.ndim - 1 - op.batch_axes)))
        out = add(zeros(sizes, dtype=x.dtype), coordinates(op, indices, sizes), x)
        return permute(out, back(order))

    return call


def torch_key(i):
    return torch.tensor(np.array(i))


def torch_add(table, keys, x):
    return table.index_put(tuple(map(torch_key, keys)), x, accumulate=True)


def jax_add(table, keys, x):
    return table.at[keys].add(x)


def won(targets):
    """Which writes stand in the end: the last to each row."""
    targets = np.asarray(targets).tolist()
    return np.array([t not in targets[i + 1 :] for i, t in enumerate(targets)], bool)


def set_rows(write):
    """Rows replaced by the last write: what becomes of repeated places is theirs to choose."""

    def call(op, x, values, targets):
        stands = won(targets)
        return write(x, np.asarray(targets)[stands], values[np.flatnonzero(stands)])

    return call


def multiplied(op, values, targets, xp, others):
    """The product of the rows of each target; or, for each row, of the others of its target."""
    targets = np.asarray(targets)
    groups = range(op.length)
    wanted = [targets == t for t in groups]
    if others:
        wanted = [(targets == t) & (np.arange(len(targets)) != i) for i, t in enumerate(targets)]
    rows = [xp.prod(values[np.flatnonzero(mask)], 0) for mask in wanted]
    return xp.stack(rows) if rows else values


def shifted(op, x, zeros, cat):
    """x moved along axis 0; zeros move in."""
    n, by_ = len(x), op.by
    gap = zeros(x[: min(abs(by_), n)])
    if by_ >= 0:
        return cat([gap, x[: max(n - by_, 0)]])
    return cat([x[min(-by_, n) :], gap])


def recurred(op, a, b):
    """h = a * h + b, step by step, in torch."""
    h, out = torch.zeros_like(b[0]), [None] * len(b)
    for t in range(len(b))[:: op.step]:
        h = out[t] = a[t] * h + b[t]
    return torch.stack(out)


def recurred_jax(op, a, b):
    def step(h, ab):
        h = ab[0] * h + ab[1]
        return h, h

    return lax.scan(step, jnp.zeros_like(b[0]), (a, b), reverse=op.reverse_time)[1]


def faded(x, exp, cat, zeros):
    return cat([zeros(x[:1]), exp(x[:-1] - x[1:])])


def spread(op, x, xp):
    """Where the elements of windows lie along the axis: (windows, places)."""
    count = x.shape[op.axis]
    return op.step * np.arange(count)[:, None] + op.dilation * np.arange(x.shape[-1])


def folded_torch(op, x):
    where = spread(op, x, torch).reshape(-1)
    beside = x.movedim(op.axis, 0).movedim(-1, 1)
    rows = beside.reshape(len(where), *beside.shape[2:])
    out = torch.zeros(op.length, *rows.shape[1:], dtype=x.dtype)
    return out.index_add(0, torch.tensor(where), rows).movedim(0, op.axis)


def folded_jax(op, x):
    where = spread(op, x, jnp).reshape(-1)
    beside = jnp.moveaxis(jnp.moveaxis(x, op.axis, 0), -1, 1)
    rows = beside.reshape(len(where), *beside.shape[2:])
    out = jnp.zeros((op.length, *rows.shape[1:]), x.dtype)
    return jnp.moveaxis(out.at[where].add(rows), 0, op.axis)


def unfolded_jax(op, x):
    count = (x.shape[op.axis] - op.span) // op.step + 1
    where = op.step * np.arange(count)[:, None] + op.dilation * np.arange(op.size)
    return jnp.moveaxis(jnp.take(x, where, axis=op.axis), op.axis + 1, -1)


def sinc(op, x):
    """The n-th derivative of jnp.sinc, by jax itself."""
    from jax import grad, vmap

    f = jnp.sinc
    for _ in range(op.order):
        f = grad(f)
    return f(x) if not op.order else vmap(f)(x.reshape(-1)).reshape(x.shape)


def topk(op, x):
    """lax.top_k finds the largest along the last axis."""
    sign = 1 if op.largest else -1
    values, where = lax.top_k(sign * jnp.moveaxis(x, op.axis, -1), op.k)
    return [jnp.moveaxis(y, -1, op.axis) for y in (sign * values, where)]


def unique(op, x):
    """jnp.unique of each lane; our places without a value hold -1 and 0."""
    found = []
    for lane in np.asarray(x).reshape(-1, x.shape[-1]) if x.size else [np.asarray(x)]:
        _, first, ranks, counts = jnp.unique(
            lane, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        gap = (0, max(op.size - len(first), 0))
        fitted = [np.pad(v, gap, constant_values=c)[: op.size] for v, c in ((first, -1), (counts, 0))]
        found.append((fitted[0], ranks, fitted[1]))
    shapes = [(*x.shape[:-1], op.size), x.shape, (*x.shape[:-1], op.size)]
    return [jnp.stack(part).reshape(s) for part, s in zip(zip(*found), shapes, strict=True)]  # noqa: B905


def runs(op, targets):
    """Stable sorting, and neighbours compared."""
    order = jnp.argsort(targets, stable=True)
    found = targets[order]
    edge = jnp.ones(min(len(targets), 1), bool)
    differ = found[1:] != found[:-1]
    return [order, jnp.argsort(order), jnp.concatenate([edge, differ]), jnp.concatenate([differ, edge])]


def program(graph, peer):
    """A graph of our ops, run by a peer through this table."""

    def run(*args):
        values = list(args)
        for node in graph.nodes:
            row = PEERS[type(node.op).__name__]
            out = getattr(row, peer)(node.op, *(values[i] for i in node.inputs))
            values += out if isinstance(out, (tuple, list)) else [out]
        return [values[i] for i in graph.outputs]

    return run


def scanned_torch(op, *args):
    n, m = op.consts, op.consts + op.carry
    carry, body, ys = args[n:m], program(op.body, "torch"), [None] * op.length
    for t in range(op.length)[:: -1 if op.reverse_time else 1]:
        out = body(*args[:n], *carry, *(x[t] for x in args[m:]))
        carry, ys[t] = out[: op.carry], out[op.carry :]
    return [*carry, *(torch.stack(y) for y in zip(*ys, strict=True))]


def scanned_jax(op, *args):
    n, m = op.consts, op.consts + op.carry
    body = program(op.body, "jax")

    def step(carry, xs):
        out = body(*args[:n], *carry, *xs)
        return tuple(out[: op.carry]), tuple(out[op.carry :])

    return lax.scan(step, tuple(args[n:m]), tuple(args[m:]), reverse=op.reverse_time)


def cast(op, x):
    x = x.real if x.is_complex() and op.dtype.kind != "c" else x
    return x.to(getattr(torch, str(op.dtype)))


def cast_jax(op, x):
    return (x.real if x.dtype.kind == "c" and op.dtype.kind != "c" else x).astype(op.dtype)


def torch_pad(op, x):
    widths = [n for pair in reversed(op.widths) for n in pair]
    inside = F.pad(torch.ones_like(x.real), widths)  # F.pad fills with real numbers only
    return F.pad(x, widths) + (1 - inside) * op.value


def searched(op, x1, x2):
    f = lambda a, b: jnp.searchsorted(a, b, side="right" if op.right else "left")
    for _ in range(op.lead):
        from jax import vmap

        f = vmap(f)
    return f(x1, x2)


def one_lane(op, x):
    return x.reshape(*x.shape[: op.batch_axes], -1)


KEYED = "draws of our own generator: other bits by design; laws are held by tests of random"
PLACES = "a check of indices that gives them back; what uses them is compared"

# -- the table ---------------------------------------------------------------------------------

PEERS = {
    # arithmetic
    "Add": by("add"),
    "Subtract": by("subtract"),
    "Multiply": by("multiply"),
    "Divide": by("divide"),
    "Reciprocal": by("reciprocal"),
    "Positive": by("positive"),
    "Negative": by("negative"),
    "FloorDivide": Row(
        torch=lambda op, a, b: torch.div(a, b, rounding_mode="floor"),
        jax=lambda op, a, b: jnp.floor_divide(a, b),
    ),
    "Remainder": by("remainder"),
    "Fmod": by("fmod"),
    # dtypes and complex numbers
    "Astype": Row(torch=cast, jax=cast_jax),
    "Real": by("real"),
    "Imag": Row(
        torch=lambda op, x: x.imag if x.is_complex() else torch.zeros_like(x),
        jax=lambda op, x: jnp.imag(x),
    ),
    "Conj": by("conj"),
    "MakeComplex": Row(
        torch=lambda op, re, im: torch.complex(*torch.broadcast_tensors(re, im)),
        jax=lambda op, re, im: lax.complex(*jnp.broadcast_arrays(re, im)),
    ),
    # selection and magnitude
    "Where": by("where"),
    "Maximum": by("maximum"),
    "Minimum": by("minimum"),
    "Clip": Row(  # torch's backward wants bounds no larger than x
        torch=lambda op, *xs: torch.clip(*torch.broadcast_tensors(*xs)),
        jax=lambda op, *xs: jnp.clip(*xs),
    ),
    "Abs": by("abs"),
    "Modulus": by("abs"),
    "Sign": by("sign"),
    "ComplexSign": by("sgn", jax="sign"),
    "Hypot": by("hypot"),
    "Copysign": by("copysign"),
    "Nextafter": Row(
        torch=lambda op, a, b: torch.nextafter(a, b),
        jax=lambda op, a, b: jnp.nextafter(a, b),
        values_only=dict.fromkeys(("torch", "jax"), "it has no derivative there"),
    ),
    "Floor": by("floor"),
    "Ceil": by("ceil"),
    "Trunc": by("trunc"),
    "Round": by("round"),
    "StopGradient": Row(
        torch=lambda op, x: x.detach(), jax=lambda op, x: lax.stop_gradient(x)
    ),
    # comparison and logic
    "Equal": by("eq", jax="equal"),
    "NotEqual": by("not_equal"),
    "Less": by("less"),
    "LessEqual": by("less_equal"),
    "Greater": by("greater"),
    "GreaterEqual": by("greater_equal"),
    "Isnan": by("isnan"),
    "Isinf": by("isinf"),
    "Isfinite": by("isfinite"),
    "Signbit": by("signbit"),
    "LogicalAnd": by("logical_and"),
    "LogicalOr": by("logical_or"),
    "LogicalXor": by("logical_xor"),
    "LogicalNot": by("logical_not"),
    "BitwiseAnd": by("bitwise_and"),
    "BitwiseOr": by("bitwise_or"),
    "BitwiseXor": by("bitwise_xor"),
    "BitwiseInvert": by("bitwise_not"),
    "BitwiseLeftShift": by("bitwise_left_shift"),
    "BitwiseRightShift": by("bitwise_right_shift"),
    # exponential, trigonometric, hyperbolic
    "Exp": by("exp"),
    "Exp2": by("exp2"),
    "Expm1": by("expm1"),
    "Log": by("log"),
    "Log2": by("log2"),
    "Log10": by("log10"),
    "Log1p": by("log1p"),
    "Logaddexp": by("logaddexp"),
    "Sigmoid": by("sigmoid", module=jnn),
    "Softplus": Row(torch=lambda op, x: F.softplus(x), jax=lambda op, x: jnn.softplus(x)),
    "LogSigmoid": Row(torch=lambda op, x: F.logsigmoid(x), jax=lambda op, x: jnn.log_sigmoid(x)),
    "Logit": by("logit", module=jsp),
    "Xlogy": by("xlogy", module=jsp),
    "Xlog1py": Row(
        torch=lambda op, x, y: torch.special.xlog1py(x, y),
        jax=lambda op, x, y: jsp.xlog1py(x, y),
    ),
    "Square": by("square"),
    "Sqrt": by("sqrt"),
    "Rsqrt": by("rsqrt", module=lax),
    "Cbrt": Row(jax=lambda op, x: jnp.cbrt(x)),
    "IntegerPower": Row(
        torch=lambda op, x: torch.pow(x, op.n), jax=lambda op, x: lax.integer_pow(x, op.n)
    ),
    "Pow": by("pow", jax="power"),
    **{name: by(name.lower()) for name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan")},
    **{name: by(name.lower()) for name in ("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh")},
    "Atan2": by("atan2", jax="arctan2"),
    "Sinc": Row(
        torch=lambda op, x: torch.sinc(x),
        jax=sinc,
        where=lambda peer, op, x: peer == "jax" or not op.order,
    ),
    # special functions
    "Erf": by("erf", module=jsp),
    "Erfc": by("erfc", module=jsp),
    "Erfinv": by("erfinv", module=jsp),
    "Ndtr": Row(torch=lambda op, x: torch.special.ndtr(x), jax=lambda op, x: jsp.ndtr(x)),
    "Ndtri": Row(torch=lambda op, p: torch.special.ndtri(p), jax=lambda op, p: jsp.ndtri(p)),
    "LogNdtr": Row(
        torch=lambda op, x: torch.special.log_ndtr(x), jax=lambda op, x: jsp.log_ndtr(x)
    ),
    "InverseMills": Row(
        torch=lambda op, x: torch.exp(-x * x / 2 - torch.special.log_ndtr(x)) / (2 * np.pi) ** 0.5,
        jax=lambda op, x: jnp.exp(-x * x / 2 - jsp.log_ndtr(x)) / (2 * np.pi) ** 0.5,
    ),
    "Lgamma": by("lgamma", jax="gammaln", module=jsp),
    "Digamma": by("digamma", module=jsp),
    "Polygamma": Row(
        torch=lambda op, x: torch.polygamma(op.n, x),
        jax=lambda op, x: jsp.polygamma(op.n, x),
    ),
    # reductions
    "Sum": Row(reduced(lambda op, x: x.sum(-1)), over(lambda *a, **o: jnp.sum(*a, **o)), more=reductions("Sum")),
    "SumTo": Row(
        torch=lambda op, x: x.sum_to_size(op.to),
        jax=lambda op, x: jnp.sum(x, axis=op.stretched(x.shape)).reshape(op.to),
    ),
    "Prod": Row(reduced(lambda op, x: x.prod(-1)), over(lambda *a, **o: jnp.prod(*a, **o)), more=reductions("Prod")),
    "Variance": Row(
        torch=reduced(lambda op, x: x.var(-1, correction=op.correction)),
        jax=lambda op, x: jnp.var(x, axis=op.axis, ddof=op.correction, keepdims=op.keepdims),
        more=reductions("Variance", low=1),
        where=lambda peer, op, x: peer == "jax" or x.size,  # torch warns of no numbers
    ),
    "Max": Row(
        torch=reduced(lambda op, x: x.amax(-1)),
        jax=over(lambda *a, **o: jnp.max(*a, **o)),
        more=reductions("Max", low=1, draw=different),
    ),
    "Min": Row(
        torch=reduced(lambda op, x: x.amin(-1)),
        jax=over(lambda *a, **o: jnp.min(*a, **o)),
        more=reductions("Min", low=1, draw=different),
    ),
    "LogSumExp": Row(
        torch=reduced(lambda op, x: torch.logsumexp(x, -1)),
        jax=over(lambda *a, **o: jsp.logsumexp(*a, **o)),
        more=reductions("LogSumExp", low=1),
    ),
    "AnyTrue": Row(reduced(lambda op, x: x.any(-1)), over(lambda *a, **o: jnp.any(*a, **o)), more=reductions("AnyTrue")),
    "AllTrue": Row(reduced(lambda op, x: x.all(-1)), over(lambda *a, **o: jnp.all(*a, **o)), more=reductions("AllTrue")),
    "Argmax": Row(
        torch=lambda op, x: torch.argmax(x, op.axis, op.keepdims),
        jax=lambda op, x: jnp.argmax(x, op.axis, keepdims=op.keepdims),
    ),
    "Argmin": Row(
        torch=lambda op, x: torch.argmin(x, op.axis, op.keepdims),
        jax=lambda op, x: jnp.argmin(x, op.axis, keepdims=op.keepdims),
    ),
    "Weights": Row(
        torch=lambda op, x, total: torch.exp(x - total),
        jax=lambda op, x, total: jnp.exp(x - total),
    ),
    # along an axis
    "CumulativeSum": Row(
        torch=turned(lambda op, x: x.cumsum(op.axis), lambda *a: torch.flip(*a)),
        jax=turned(lambda op, x: jnp.cumsum(x, op.axis), lambda *a: jnp.flip(*a)),
        more=along("CumulativeSum"),
    ),
    "CumulativeProd": Row(
        torch=turned(
            exclusive(
                lambda *a: torch.cat(*a), lambda x: torch.ones_like(x), lambda x, d: x.cumprod(d)
            ),
            lambda *a: torch.flip(*a),
        ),
        jax=turned(
            exclusive(
                lambda *a: jnp.concatenate(*a),
                lambda x: jnp.ones_like(x),
                lambda x, d: jnp.cumprod(x, d),
            ),
            lambda *a: jnp.flip(*a),
        ),
        more=along("CumulativeProd"),
    ),
    "CumulativeMax": Row(
        torch=lambda op, x: x.cummax(op.axis).values,
        jax=lambda op, x: lax.cummax(x, op.axis),
        more=along("CumulativeMax", different),
    ),
    "CumulativeMin": Row(
        torch=lambda op, x: x.cummin(op.axis).values,
        jax=lambda op, x: lax.cummin(x, op.axis),
        more=along("CumulativeMin", different),
    ),
    "CumulativeLogSumExp": Row(
        torch=lambda op, x: x.logcumsumexp(op.axis),
        jax=lambda op, x: lax.cumlogsumexp(x, op.axis),
        more=along("CumulativeLogSumExp"),
    ),
    "RunningPlace": "torch.cummax names the last of equal ones, ours the first; jax has none",
    "Fading": Row(
        torch=lambda op, x: faded(x, lambda y: y.exp(), lambda xs: torch.cat(xs), lambda y: torch.zeros_like(y)),
        jax=lambda op, x: faded(x, lambda y: jnp.exp(y), lambda xs: jnp.concatenate(xs), lambda y: jnp.zeros_like(y)),
    ),
    "Shift": Row(
        torch=lambda op, x: shifted(op, x, lambda y: torch.zeros_like(y), lambda xs: torch.cat(xs)),
        jax=lambda op, x: shifted(op, x, lambda y: jnp.zeros_like(y), lambda xs: jnp.concatenate(xs)),
    ),
    "Recurrence": Row(torch=recurred, jax=recurred_jax),
    "Scan": Row(torch=scanned_torch, jax=scanned_jax),
    "Sort": Row(
        torch=lambda op, x: torch.sort(x, dim=op.axis, descending=op.descending, stable=op.stable)[0],
        jax=lambda op, x: jnp.sort(x, op.axis, descending=op.descending, stable=op.stable),
        more=along("Sort", different, descending=True),
    ),
    "Argsort": Row(
        torch=lambda op, x: torch.argsort(x, dim=op.axis, descending=op.descending, stable=True),
        jax=lambda op, x: jnp.argsort(x, op.axis, descending=op.descending, stable=True),
        more=along("Argsort"),
    ),
    "Topk": Row(torch=lambda op, x: torch.topk(x, op.k, op.axis, op.largest), jax=topk),
    "Searchsorted": Row(
        torch=lambda op, x1, x2: torch.searchsorted(x1, x2, right=op.right), jax=searched
    ),
    "Unique": Row(jax=unique),
    "Nonzero": Row(
        jax=lambda op, x: jnp.stack(jnp.nonzero(x, size=op.size, fill_value=op.fill)),
    ),
    # shapes
    "Reshape": Row(
        torch=lambda op, x: x.reshape(op.to), jax=lambda op, x: jnp.reshape(x, op.to)
    ),
    "BroadcastTo": Row(
        torch=lambda op, x: torch.broadcast_to(x, op.to),
        jax=lambda op, x: jnp.broadcast_to(x, op.to),
    ),
    "PermuteDims": Row(
        torch=lambda op, x: x.permute(op.axes), jax=lambda op, x: jnp.permute_dims(x, op.axes)
    ),
    "Concat": Row(
        torch=lambda op, *xs: torch.cat(xs, op.axis),
        jax=lambda op, *xs: jnp.concatenate(xs, op.axis),
    ),
    "Split": Row(
        torch=lambda op, x: torch.split(x, op.sizes, op.axis),
        jax=lambda op, x: jnp.split(x, np.cumsum(op.sizes)[:-1], op.axis),
    ),
    "Stack": Row(
        torch=lambda op, *xs: torch.stack(xs, op.axis), jax=lambda op, *xs: jnp.stack(xs, op.axis)
    ),
    "Unstack": Row(
        torch=lambda op, x: torch.unbind(x, op.axis),
        jax=lambda op, x: jnp.unstack(x, axis=op.axis),
    ),
    "Flip": Row(
        torch=lambda op, x: torch.flip(x, op.axes), jax=lambda op, x: jnp.flip(x, op.axes)
    ),
    "Roll": Row(
        torch=lambda op, x: torch.roll(x, op.by, op.axes) if op.axes else x,
        jax=lambda op, x: jnp.roll(x, op.by, op.axes),
    ),
    "Pad": Row(
        torch=torch_pad, jax=lambda op, x: jnp.pad(x, op.widths, constant_values=op.value)
    ),
    "Unfold": Row(
        torch=lambda op, x: x.unfold(op.axis, op.span, op.step)[..., :: op.dilation],
        jax=unfolded_jax,
    ),
    "Fold": Row(torch=folded_torch, jax=folded_jax),
    "Diagonal": Row(
        torch=lambda op, x: torch.diagonal(x, op.offset, -2, -1),
        jax=lambda op, x: jnp.diagonal(x, op.offset, -2, -1),
    ),
    "OnDiagonal": Row(
        torch=lambda op, x: torch.diagonal_scatter(
            torch.zeros(*x.shape[:-1], op.rows, op.columns, dtype=x.dtype), x, op.offset, -2, -1
        ),
        jax=lambda op, x: jnp.zeros((*x.shape[:-1], op.rows, op.columns), x.dtype)
        .at[..., max(-op.offset, 0) + np.arange(x.shape[-1]), max(op.offset, 0) + np.arange(x.shape[-1])]
        .set(x),
    ),
    # parts and indices
    "Slice": Row(
        torch=lambda op, x: x.reshape(-1)[torch_key(places(op)(x.shape))],
        jax=lambda op, x: x[slices.key(op.parts)],
    ),
    "Unslice": Row(
        torch=lambda op, x: torch_put(torch.zeros(op.to, dtype=x.dtype), places(op)(op.to), x),
        jax=lambda op, x: jnp.zeros(op.to, x.dtype).at[slices.key(op.parts)].set(x),
    ),
    "SliceSet": Row(
        torch=lambda op, x, values: torch_put(x, places(op)(x.shape), values),
        jax=lambda op, x, values: x.at[slices.key(op.parts)].set(values),
    ),
    "TakeAlongAxis": Row(
        torch=lambda op, x, i: torch.take_along_dim(x, i % x.shape[op.axis], op.axis),
        jax=lambda op, x, i: jnp.take_along_axis(x, i, op.axis),
    ),
    "AddAlongAxis": Row(
        torch=lambda op, x, i: torch.zeros(
            *x.shape[: op.axis], op.length, *x.shape[op.axis + 1 :], dtype=x.dtype
        ).scatter_add(op.axis, i, x),
        jax=lambda op, x, i: jnp.zeros(
            (*x.shape[: op.axis], op.length, *x.shape[op.axis + 1 :]), x.dtype
        )
        .at[tuple(i if a == op.axis else g for a, g in enumerate(np.indices(i.shape)))]
        .add(x),
    ),
    "Index": Row(
        torch=indexed(lambda x, order: x.permute(order), torch_key),
        jax=indexed(lambda x, order: jnp.permute_dims(x, order), np.asarray),
    ),
    "IndexAdd": Row(
        torch=index_added(
            lambda x, order: x.permute(order), lambda *a, **o: torch.zeros(*a, **o), torch_add
        ),
        jax=index_added(
            lambda x, order: jnp.permute_dims(x, order), lambda *a, **o: jnp.zeros(*a, **o), jax_add
        ),
    ),
    "Targets": Row(
        jax=lambda op, i: jnp.ravel_multi_index(tuple(i), op.sizes, mode="wrap").reshape(-1)
    ),
    "TargetsAlong": Row(
        torch=lambda op, i: torch.gather(
            torch.arange(prod(op.to)).reshape(op.to), op.axis, i % op.to[op.axis]
        ).reshape(-1)
    ),
    "RowNumbers": PLACES,
    "OneHot": Row(
        torch=lambda op, i: F.one_hot(i, op.classes).to(getattr(torch, str(op.dtype))),
        jax=lambda op, i: jnn.one_hot(i, op.classes, dtype=op.dtype),
    ),
    "SetRows": Row(
        torch=set_rows(lambda x, where, v: x.index_copy(0, torch_key(where), v)),
        jax=set_rows(lambda x, where, v: x.at[where].set(v)),
    ),
    "WonRows": Row(
        torch=lambda op, x, i: x[i] * torch.tensor(won(i))[:, None],
        jax=lambda op, x, i: x[i] * won(i)[:, None],
    ),
    "ProdRows": Row(
        torch=lambda op, v, i: multiplied(op, v, i, torch, others=False),
        jax=lambda op, v, i: multiplied(op, v, i, jnp, others=False),
    ),
    "OtherRows": Row(
        torch=lambda op, v, i: multiplied(op, v, i, torch, others=True),
        jax=lambda op, v, i: multiplied(op, v, i, jnp, others=True),
    ),
    "Runs": Row(jax=runs),
    "ExtremeRows": Row(
        torch=lambda op, x, v, i: x.scatter_reduce(
            0, i[:, None].expand(v.shape), v, "amax" if op.largest else "amin"
        ),
    ),
    # products
    "Matmul": by("matmul"),
    # random
    "RandomUniform": KEYED,
    "RandomNormal": KEYED,
    "RandomExponential": KEYED,
    "RandomGumbel": KEYED,
    "RandomTruncatedNormal": KEYED,
    "RandomGamma": KEYED,
    "RandomBits": KEYED,
    "Between": Row(
        torch=lambda op, u, low, high: low + (high - low) * u,
        jax=lambda op, u, low, high: low + (high - low) * u,
    ),
    "GammaSlope": Row(
        jax=lambda op, a, y: lax.random_gamma_grad(*jnp.broadcast_arrays(a, jnp.exp(y))) / jnp.exp(y),
        values_only={"jax": "it does not differentiate random_gamma_grad"},
        where=lambda peer, op, a, y: not op.in_a and not op.in_y,
    ),
}
