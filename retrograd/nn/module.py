"""Module: a frozen tree of tensors with a call. Models are values, and so are their changes.

>>> class Affine(rg.nn.Module):
...     scale: rg.Tensor
...     shift: rg.Tensor
...
...     def __call__(self, x):
...         return x * self.scale + self.shift
>>> layer = Affine(rg.ones(3), rg.zeros(3))
>>> layer
Affine(scale: float32[3], shift: float32[3], 6 numbers)
>>> rg.grad(lambda layer: rg.sum(layer(2.0)))(layer).scale
tensor([2., 2., 2.])
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from retrograd.core import tree
from retrograd.core.errors import ArgumentError
from retrograd.core.frozen import Frozen, Plan, Static, remade
from retrograd.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Module", "count", "freeze", "parameters", "unfreeze"]

M = TypeVar("M")


class Module(Frozen):
    """A frozen tree of tensors; a layer or a model is a subclass with a `__call__`.

    Fields are the annotated names of the class. Tensors and modules in them, also in lists,
    tuples and dicts, are the leaves and branches of the tree, for `rg.tree`, `rg.grad`,
    `rg.vmap` and the compiler; numbers, texts, functions and None are static: part of the
    tree's structure. Floating tensors are trained; integer tensors, and the fields that the
    class names in `fixed`, are data that gradients and optimizers leave as they are.

    Without an `__init__` a class takes its fields as arguments; with one, that assigns them.
    Afterwards nothing changes: `module.replace(field=value)` is a changed copy.
    """

    def about(self) -> str:
        """What a layer says of itself when it is printed, such as "784 -> 256"; or nothing.

        Of a module that says nothing the fields are printed.
        """
        return ""

    def __repr__(self) -> str:
        """Its name, what it is about, how many numbers are in it; then the modules in it."""
        if "_plan" not in self.__dict__:  # shown by a debugger, inside of __init__
            return f"{type(self).__name__}(...)"
        rows, about = list(_rows(self)), self.about()
        nested = any(isinstance(value, Module) for _, value in rows)
        plain = [] if about or nested else [_entry(*row) for row in rows]
        words = ", ".join(filter(None, [about, *plain, *_sizes(self)]))
        lines = [f"{type(self).__name__}({words})"]
        for name, value in rows if nested else ():
            if isinstance(value, Module) or not about:
                lines += [f"  {line}" for line in _entry(name, value).split("\n")]
        return "\n".join(lines)


def _sizes(module: Module) -> list[str]:
    """How many numbers of a module are trained, and how many are not."""
    sizes = {False: 0, True: 0}
    for _, leaf, fixed in named(module):
        sizes[fixed] += prod(getattr(leaf, "shape", (0,)))
    return [
        f"{n:,} {word}"
        for n, word in zip(sizes.values(), ("numbers", "fixed"), strict=True)
        if n
    ]


def _rows(module: Module) -> Iterator[tuple[str, Any]]:
    """Fields and values, with tuples and dicts that hold modules taken apart."""
    for name, place in module.__dict__["_plan"].rows:
        yield from _apart(name, module.__dict__[name], place)


def _apart(name: str, value: Any, place: Any) -> Iterator[tuple[str, Any]]:
    if type(place) is not Plan:
        yield name, value
        return
    for key, inner in place.rows:
        yield from _apart(f"{name}[{key!r}]", value[key], inner)


def _entry(name: str, value: Any) -> str:
    """A field: a tensor by its spec, a function by its name."""
    spec = getattr(value, "spec", None)
    text = str(spec) if isinstance(spec, Spec) else getattr(value, "__name__", repr(value))
    return f"{name}: {text}"


# -- leaves by name --------------------------------------------------------------------------


def named(node: Any, path: str = "", *, fixed: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Each leaf of a tree with its path and whether it is fixed: "layers.0.weight"."""
    if isinstance(node, tree.Fixed):
        yield from named(node.value, path, fixed=True)
        return
    if isinstance(node, Frozen):
        yield from _planned(node.__dict__["_plan"], node.__dict__, path, fixed=fixed)
        return
    parts = tree.children(node)
    if parts is None:
        yield path, node, fixed
        return
    inner, static = list(parts[0]), parts[1]
    keys = static if isinstance(node, dict) else range(len(inner))
    for key, child in zip(keys, inner, strict=True):
        yield from named(child, _below(path, key), fixed=fixed)


def _planned(
    plan: Plan, held: Any, path: str, *, fixed: bool
) -> Iterator[tuple[str, Any, bool]]:
    for key, place in plan.rows:
        where = _below(path, key)
        if type(place) is Plan:
            yield from _planned(place, held[key], where, fixed=fixed)
        elif type(place) is not Static:
            yield from named(held[key], where, fixed=fixed or place.name == "FIXED")


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def parameters(model: Any, /) -> dict[str, Any]:
    """The tensors of a model that are trained, by their paths, in the order of the tree.

    >>> list(rg.nn.parameters(rg.nn.MLP([4, 8, 2], key=rg.random.key(0))))
    ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
    """
    return {path: leaf for path, leaf, fixed in named(model) if not fixed}


def count(model: Any, /) -> int:
    """How many numbers of a model are trained."""
    return sum(prod(leaf.shape) for leaf in parameters(model).values())


# -- parts that are not trained --------------------------------------------------------------


def freeze(module: M, /) -> M:
    """The module with all its tensors fixed: gradients and optimizers leave them as they are.

    A frozen weight costs no arithmetic and no memory in the backward pass.
    """
    return remade(_module("freeze", module), {}, still=True)


def unfreeze(module: M, /) -> M:
    """The module as it was before `freeze`."""
    return remade(_module("unfreeze", module), {}, still=False)


def _module(who: str, module: Any) -> Any:
    if not isinstance(module, Module):
        raise ArgumentError(
            f"{who}: it takes a Module; got a {type(module).__name__}",
            hint="rg.tree.Fixed(tree)      for other trees",
        )
    return module
