"""What is one word with us and several with torch or jax: helpers of the tables."""

from math import prod

import numpy as np
from peers.against import F, jnp, lax, torch

from retrograd.core.op import REGISTRY
from retrograd.ops import slices


def shape_of(rng, low=0, high=4, most=4):
    """A random shape: up to four axes of length `low` to `high`."""
    return tuple(int(n) for n in rng.integers(low, high + 1, rng.integers(0, most + 1)))


def axes_of(rng, ndim):
    """Some of the axes, in order."""
    return tuple(i for i in range(ndim) if rng.integers(2))


def reductions(name, low=0, draw=lambda rng, shape: rng.normal(size=shape)):
    """Samples of a reduction: shapes, axes and keepdims by chance."""

    def more(rng):
        for _ in range(12):
            shape = shape_of(rng, low)
            axes, keep = axes_of(rng, len(shape)), bool(rng.integers(2))
            yield REGISTRY[name](axis=axes, keepdims=keep), np.asarray(draw(rng, shape))

    return more


def along(name, draw=lambda rng, shape: rng.normal(size=shape), **options):
    """Samples of an op that runs along one axis."""

    def more(rng):
        for _ in range(12):
            shape = (*shape_of(rng, most=2), int(rng.integers(1, 6)))
            shape = tuple(int(n) for n in rng.permutation(shape))
            yield (
                REGISTRY[name](axis=int(rng.integers(len(shape))), **options),
                draw(rng, shape),
            )

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
        wanted = [
            (targets == t) & (np.arange(len(targets)) != i) for i, t in enumerate(targets)
        ]
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
        fitted = [
            np.pad(v, gap, constant_values=c)[: op.size] for v, c in ((first, -1), (counts, 0))
        ]
        found.append((fitted[0], ranks, fitted[1]))
    shapes = [(*x.shape[:-1], op.size), x.shape, (*x.shape[:-1], op.size)]
    return [jnp.stack(part).reshape(s) for part, s in zip(zip(*found), shapes, strict=True)]  # noqa: B905


def runs(op, targets):
    """Stable sorting, and neighbours compared."""
    order = jnp.argsort(targets, stable=True)
    found = targets[order]
    edge = jnp.ones(min(len(targets), 1), bool)
    differ = found[1:] != found[:-1]
    return [
        order,
        jnp.argsort(order),
        jnp.concatenate([edge, differ]),
        jnp.concatenate([differ, edge]),
    ]


def program(graph, peer):
    """A graph of our ops, run by a peer through the table of ops."""
    from peers.table import PEERS

    def run(*args):
        values = list(args)
        for node in graph.nodes:
            if not node.inputs:  # a number of the program
                made = np.array(node.op.forward())
                out = torch.from_numpy(made) if peer == "torch" else jnp.asarray(made)
            else:
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


def chosen_torch(op, predicate, *xs):
    return program(op.yes if predicate else op.no, "torch")(*xs)


def chosen_jax(op, predicate, *xs):
    return lax.cond(predicate, program(op.yes, "jax"), program(op.no, "jax"), *xs)


def repeated_torch(op, *args):
    test, body = program(op.test, "torch"), program(op.body, "torch")
    consts, carry = args[: op.consts], args[op.consts :]
    while test(*consts, *carry)[0]:
        carry = body(*consts, *carry)
    return list(carry)


def repeated_jax(op, *args):
    test, body = program(op.test, "jax"), program(op.body, "jax")
    consts, carry = args[: op.consts], args[op.consts :]
    going, step = lambda c: test(*consts, *c)[0], lambda c: tuple(body(*consts, *c))
    return lax.while_loop(going, step, tuple(carry))


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
