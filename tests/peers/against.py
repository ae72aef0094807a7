"""Ours and theirs on the same numbers: values, gradients of the same cotangents, and theirs.

torch and jax are imported when they are first asked for, so that the tables can be read and
the tests collected without them.
"""

import importlib
import sys
from functools import reduce

import numpy as np

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.testing.compare import assert_close


class Lazy:
    """A module, or something in it, that is imported when it is first called."""

    def __init__(self, module, *path):
        self._module, self._path = module, path

    def _found(self):
        return reduce(getattr, self._path, importlib.import_module(self._module))

    def __getattr__(self, name):
        if self._module in sys.modules:
            return getattr(self._found(), name)
        return Lazy(self._module, *self._path, name)

    def __call__(self, *xs, **options):
        return self._found()(*xs, **options)


torch, F = Lazy("torch"), Lazy("torch.nn.functional")
jax, jnp, lax, jnn = (Lazy(f"jax{name}") for name in ("", ".numpy", ".lax", ".nn"))
jsp = Lazy("jax.scipy.special")


def flat(out):
    """Results as a list, however they are nested in tuples and lists."""
    if isinstance(out, (tuple, list)):
        return [leaf for part in out for leaf in flat(part)]
    return [out]


def placed(arrays, moving, xs):
    """The arrays, with xs in place of those that move."""
    full = list(arrays)
    for i, x in zip(moving, xs, strict=True):
        full[i] = x
    return full


def floating(arrays):
    """Positions of the arrays that have derivatives."""
    return [i for i, a in enumerate(arrays) if dt.is_inexact(np.asarray(a).dtype)]


def numbers(rng, like):
    """Random numbers in the shape and dtype of another array."""
    found = rng.normal(size=like.shape)
    if like.dtype.kind == "c":
        found = found + 1j * rng.normal(size=like.shape)
    return np.asarray(found, like.dtype)


# -- one side each: (f, arrays, positions that move, hot outputs, cotangents) ----------------


def by_us(f, arrays, moving, rng):
    """All results; which are differentiated; cotangents for them; gradients of the inputs."""
    values = [np.asarray(o) for o in flat(f(*map(rg.asarray, arrays)))]
    hot = [i for i, v in enumerate(values) if moving and dt.is_inexact(v.dtype)]
    gs = [numbers(rng, values[i]) for i in hot]
    if not hot:
        return values, hot, gs, []

    def smooth(*xs):
        out = flat(f(*placed(map(rg.asarray, arrays), moving, xs)))
        return [out[i] for i in hot]

    _, pull = rg.vjp(smooth, *(rg.asarray(arrays[i]) for i in moving))
    return values, hot, gs, [np.asarray(g) for g in pull([rg.asarray(g) for g in gs])]


def by_torch(f, arrays, moving, hot, gs):
    """Values and gradients by torch, whose convention for complex gradients is ours."""
    xs = [torch.tensor(a) for a in arrays]
    for i in moving:
        xs[i].requires_grad_()
    outs = flat(f(*xs))
    values = [o.numpy(force=True) for o in outs]
    if not hot:
        return values, []
    ends, seeds = [outs[i] for i in hot], [torch.tensor(g) for g in gs]
    grads = pulled(ends, [xs[i] for i in moving], seeds)
    return values, [g.numpy(force=True) for g in grads]


def pulled(ends, ins, gs, **options):
    """Gradients by torch, zeros where nothing depends on an input."""
    tracked = [(end, g) for end, g in zip(ends, gs, strict=True) if end.requires_grad]
    grads = [None] * len(ins)
    if tracked:
        ends, gs = zip(*tracked, strict=True)
        grads = torch.autograd.grad(ends, ins, gs, allow_unused=True, **options)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(ins, grads, strict=True)]


def by_jax(f, arrays, moving, hot, gs, compiled=None):
    """Values and gradients by jax, conjugated on the way in and out: ours is torch's way.

    Integers and booleans are constants of the program. `compiled` keeps programs, for calls
    that differ in their numbers alone.
    """
    if not hot:
        return [np.asarray(o) for o in flat(f(*map(jnp.asarray, arrays)))], []

    def smooth(*xs):
        outs = flat(f(*placed(arrays, moving, xs)))
        return [outs[i] for i in hot], outs

    def both(xs, gs):
        _, pull, outs = jax.vjp(smooth, *xs, has_aux=True)
        return outs, [jnp.conj(g) for g in pull([jnp.conj(g) for g in gs])]

    fixed = [a.tobytes() for i, a in enumerate(arrays) if i not in moving]
    key = (*((a.shape, str(a.dtype)) for a in arrays), *fixed)
    compiled = {} if compiled is None else compiled
    program = compiled.setdefault(key, jax.jit(both))
    values, grads = program([arrays[i] for i in moving], gs)
    return [np.asarray(v) for v in values], [np.asarray(g) for g in grads]


# -- the comparison --------------------------------------------------------------------------


def same_kind(mine, theirs, what):
    """Floats and complex numbers have one width; integers may differ in theirs."""
    for a, b in zip(mine, theirs, strict=True):
        kinds = ["i" if v.dtype.kind == "u" else v.dtype.kind for v in (a, b)]
        widths = [v.dtype if v.dtype.kind in "fc" else None for v in (a, b)]
        assert (kinds[0], widths[0]) == (kinds[1], widths[1]), f"{what}: {a.dtype}, {b.dtype}"


def agree(mine, theirs, arrays, moving, *, peer, seed=0, slopes=True, what="", compiled=None):
    """Values, and gradients of random cotangents, are the same as the peer's to rounding."""
    arrays = [np.asarray(a) for a in arrays]
    values, hot, gs, grads = by_us(
        mine, arrays, moving if slopes else [], np.random.default_rng(seed)
    )
    moving = moving if hot else []
    with np.errstate(all="ignore"):
        if peer == "torch":
            wanted, slopes_wanted = by_torch(theirs, arrays, moving, hot, gs)
        else:
            wanted, slopes_wanted = by_jax(theirs, arrays, moving, hot, gs, compiled)
    assert len(values) == len(wanted), (
        f"{what}: {len(values)} results, {peer} has {len(wanted)}"
    )
    same_kind(values, wanted, f"{what} by {peer}")
    assert_close(values, wanted, what=f"{what} by {peer}: values")
    assert_close(grads, slopes_wanted, what=f"{what} by {peer}: gradients")


# -- once more -------------------------------------------------------------------------------


def pull_by_us(f, xs, gs):
    return list(rg.vjp(f, *xs)[1](gs))


def pull_by_torch(f, xs, gs):
    xs = [x if x.requires_grad else x.requires_grad_() for x in xs]
    return [g.clone() for g in pulled(f(*xs), xs, gs, create_graph=True)]


def pull_by_jax(f, xs, gs):
    found = jax.vjp(f, *xs)[1]([jnp.conj(g) for g in gs])
    return [jnp.conj(g) for g in found]


PULLS = {"us": pull_by_us, "torch": pull_by_torch, "jax": pull_by_jax}


def gradients(f, who, count, moving, hot):
    """The gradients of f, as a function of its `count` operands and of the cotangents."""

    def call(*operands):
        given, gs = operands[:count], operands[count:]

        def smooth(*xs):
            outs = flat(f(*placed(given, moving, xs)))
            return [outs[i] for i in hot]

        return PULLS[who](smooth, [given[i] for i in moving], list(gs))

    return call


def agree_twice(mine, theirs, arrays, moving=None, *, peer, seed=0, what="", twice=None):
    """Values and gradients agree; and so do the gradients of the gradients.

    All floats are differentiated unless `moving` says which. `twice` is the peer's function
    for the second order, where `theirs` has none.
    """
    arrays = [np.asarray(a) for a in arrays]
    moving = floating(arrays) if moving is None else list(moving)
    agree(mine, theirs, arrays, moving, peer=peer, seed=seed, what=what)
    outs = [np.asarray(o) for o in flat(mine(*map(rg.asarray, arrays)))]
    hot = [i for i, o in enumerate(outs) if dt.is_inexact(o.dtype)]
    rng, count = np.random.default_rng(seed + 1), len(arrays)
    gs = [numbers(rng, outs[i]) for i in hot]
    agree(
        gradients(mine, "us", count, moving, hot),
        gradients(twice or theirs, peer, count, moving, hot),
        [*arrays, *gs],
        [*moving, *range(count, count + len(gs))],
        peer=peer,
        seed=seed,
        what=f"{what}, second order",
    )
