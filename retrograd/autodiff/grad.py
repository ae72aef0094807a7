"""grad, value_and_grad, jacobians, Hessians: functions made of vjp, jvp and vmap."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp, linearize, several
from retrograd.autodiff.reverse import flat_vjp, gradients, vjp
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DerivativeError, DtypeError
from retrograd.core.interpret import fresh
from retrograd.core.op import FUNCTIONS, function
from retrograd.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["grad", "hessian", "hvp", "jacfwd", "jacrev", "value_and_grad"]


def _positions(who: str, argnums: Any, count: int) -> tuple[int, ...]:
    wanted = argnums if isinstance(argnums, tuple) else (argnums,)
    for i in wanted:
        if not isinstance(i, int) or not -count <= i < count:
            raise ArgumentError(f"{who}: argnums {argnums} for a call with {count} arguments")
    found = tuple(i % count for i in wanted)
    if len(set(found)) != len(found):
        raise ArgumentError(f"{who}: argnums {argnums} names an argument twice")
    return found


def _chosen(who: str, f: Callable[..., Any], argnums: Any, args: Any, options: Any) -> Any:
    """f as a function of the chosen arguments' leaves; those leaves; their structure.

    What lies within a tree.Fixed is a constant to f, and may be integers.
    """
    where = _positions(who, argnums, len(args))
    leaves, structure = tree.flatten(tuple(args[i] for i in where))
    leaves = [FUNCTIONS["lift"](x) for x in leaves]
    fixed = tree.fixed(structure)
    for x, still in zip(leaves, fixed, strict=True):
        if not still and not dt.is_inexact(x.dtype):
            raise DtypeError(
                f"{who}: an argument to differentiate is {x.spec}; integers have no gradient",
                hint="x.astype(rg.float32), or choose other arguments with argnums",
            )
    stop = FUNCTIONS["stop_gradient"]

    def inner(*xs: Any) -> Any:
        full = list(args)
        xs = tuple(stop(x) if still else x for x, still in zip(xs, fixed, strict=True))
        for i, a in zip(where, tree.unflatten(structure, xs), strict=True):
            full[i] = a
        return f(*full, **options)

    return inner, leaves, structure


def _shaped(structure: Any, argnums: Any, grads: Any) -> Any:
    found = tree.unflatten(structure, grads)
    return found if isinstance(argnums, tuple) else found[0]


@function
def value_and_grad(
    f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns f's value and its gradient with respect to `argnums`.

    f returns a real number, or with has_aux a pair (number, aux); then so does the value.
    """

    @wraps(f)
    def both(*args: Any, **options: Any) -> Any:
        inner, leaves, structure = _chosen("grad", f, argnums, args, options)
        aux_shape: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            out = inner(*xs)
            value, aux = _pair(out) if has_aux else (out, None)
            _check_one(value)
            more, shape = tree.flatten(aux)
            aux_shape[:] = [shape]
            return [value, *more]

        outs, pull = flat_vjp(flat, leaves)
        _check_scalar(outs[0])
        seed = fresh(np.ones((), outs[0].dtype))
        found = pull([seed, *[None] * (len(outs) - 1)], consume=True)
        grads = _shaped(structure, argnums, gradients(leaves, found))
        value = (outs[0], tree.unflatten(aux_shape[0], outs[1:])) if has_aux else outs[0]
        return value, grads

    return both


def _pair(out: Any) -> Any:
    if not isinstance(out, tuple) or len(out) != 2:
        raise DerivativeError("grad: with has_aux the function must return (value, aux)")
    return out


def _check_one(out: Any) -> None:
    found = tree.structure(out)
    if found.type is not None:
        raise DerivativeError(
            f"grad: the function returned {found}; a gradient is of one number",
            hint="rg.grad(f, has_aux=True) for a function that returns (number, aux)",
        )


def _check_scalar(out: Tensor) -> None:
    if out.shape != ():
        raise DerivativeError(
            f"grad: the function returned {out.spec}; a gradient is of one number",
            hint="rg.sum(...) of it, or rg.jacrev / rg.vjp for several numbers",
        )
    if out.dtype.kind == "c" or not dt.is_inexact(out.dtype):
        raise DerivativeError(
            f"grad: the function returned {out.spec}; it must be a real floating number, "
            f"because a gradient says how a real number changes"
        )


@function
def grad(
    f: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of f with respect to `argnums`; with has_aux, (gradient, aux)."""
    both = value_and_grad(f, argnums, has_aux=has_aux)

    @wraps(f)
    def gradient(*args: Any, **options: Any) -> Any:
        value, found = both(*args, **options)
        return (found, value[1]) if has_aux else found

    return gradient


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """All unit vectors of the space of the leaves, stacked in front."""
    total = sum(x.size for x in leaves)
    eye, start, out = np.eye(total), 0, []
    for x in leaves:
        block = eye[:, start : start + x.size].astype(x.dtype)
        out.append(Tensor(block.reshape(total, *x.shape)))
        start += x.size
    return out


def _blocks(rows: Any, leaves: list[Tensor], axis: int) -> list[Tensor]:
    """Split the stacked axis (moved to `axis`) back into one block for each leaf."""
    out, start = [], 0
    for x in leaves:
        part = rows[start : start + x.size]
        part = FUNCTIONS["reshape"](part, (*x.shape, *part.shape[1:]))
        if axis:
            order = (*range(x.ndim, part.ndim), *range(x.ndim))
            part = FUNCTIONS["permute_dims"](part, order)
        out.append(part)
        start += x.size
    return out


@function
def jacfwd(f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The Jacobian by forward mode: one column a tangent, all at once. For tall Jacobians."""

    @wraps(f)
    def jacobian(*args: Any, **options: Any) -> Any:
        inner, leaves, structure = _chosen("jacfwd", f, argnums, args, options)
        _, push = linearize(inner, *leaves)
        columns = vmap(push)(*_basis(leaves))
        return tree.map(
            lambda rows: _shaped(structure, argnums, _blocks(rows, leaves, axis=1)), columns
        )

    return jacobian


@function
def jacrev(f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The Jacobian by reverse mode: one row a cotangent, all at once. For wide Jacobians."""

    @wraps(f)
    def jacobian(*args: Any, **options: Any) -> Any:
        inner, leaves, structure = _chosen("jacrev", f, argnums, args, options)
        out, pull = vjp(inner, *leaves)
        outs, shape = tree.flatten(out)
        basis = tree.unflatten(shape, _basis(outs))
        rows = vmap(pull)(basis)  # one for each chosen leaf, all outputs stacked in front
        blocks = [_blocks(r, outs, axis=0) for r in rows]
        per_output = zip(*blocks, strict=True)
        return tree.unflatten(
            shape, [_shaped(structure, argnums, list(row)) for row in per_output]
        )

    return jacobian


@function
def hessian(f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The matrix of second derivatives, forward over reverse."""
    return jacfwd(grad(f, argnums), argnums)


@function
def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The Hessian of f at `primals`, times `tangents`: forward over reverse, no matrix."""
    primals, tangents = several("hvp", "primals", primals), several("hvp", "tangents", tangents)
    numbers = tuple(range(len(primals)))
    _, found = jvp(grad(f, numbers), primals, tangents)
    return found if len(primals) > 1 else found[0]
