"""Optimizer: a frozen value with two functions on trees, `init` and `step`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.frozen import Frozen
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, create
from retrograd.ops.nn import clip as clipping

Rate = float | Tensor | Callable[[Tensor], Any]


class Optimizer(Frozen):
    """How parameters follow gradients: `model, state = optimizer.step(model, grads, state)`.

    `state = optimizer.init(model)` is a dict of tensors and trees like the model: the number
    of steps so far, and what the rule keeps of each parameter. All of it is written in ops, so
    a step can be traced, compiled, mapped and differentiated. Parameters keep their dtype;
    what is kept of those in half precision is float32.

    What is fixed, has an integer dtype or no gradient (None) stays as it is. The learning rate
    `lr` is a number, a tensor, or a function of the number of steps so far. With `clip`,
    gradients are scaled first so that their norm, over all parameters, is at most that. An
    optimizer is a tree itself: its numbers but 0 and its tensors are leaves.
    """

    numbers: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False
    lr: Rate
    weight_decay: float | Tensor
    clip: float | Tensor | None

    # -- what a rule says ----------------------------------------------------------------

    def kept(self) -> tuple[str, ...]:
        """Names of what is kept of each parameter; it starts at 0."""
        raise NotImplementedError

    def scales(self, lr: Any, count: Any, dtype: Any) -> tuple[Any, ...]:
        """What all parameters of one dtype share at step number `count`: 1, 2, ..."""
        raise NotImplementedError

    def update(self, p: Any, g: Any, kept: dict[str, Any], scales: tuple[Any, ...]) -> Any:
        """A parameter after the step, and what is kept of it."""
        raise NotImplementedError

    # -- what all share ------------------------------------------------------------------

    def init(self, params: Any, /) -> dict[str, Any]:
        """The state before the first step."""
        leaves, structure = tree.flatten(params)
        leaves = list(map(lift, leaves))
        trained = self._trained(leaves, structure)
        state: dict[str, Any] = {"step": create.zeros((), dtype=dt.int64)}
        for name in self.kept():
            zeros = [
                create.zeros_like(p, dtype=_wide(p.dtype)) if t else None
                for p, t in zip(leaves, trained, strict=True)
            ]
            state[name] = tree.unflatten(structure, zeros)
        return state

    def step(self, params: Any, grads: Any, state: Any, /) -> tuple[Any, dict[str, Any]]:
        """The parameters and the state after one step along the gradients."""
        who = f"{type(self).__name__}.step"
        leaves, structure = tree.flatten(params)
        leaves = list(map(lift, leaves))
        trained = self._trained(leaves, structure)
        gs = _gradients(who, leaves, trained, _beside(who, "grads", grads, structure))
        if self.clip is not None:
            gs, _ = clipping.clip_global_norm(gs, self.clip)
        names = self.kept()
        columns = {
            n: _beside(who, f"state[{n!r}]", _of(who, state, n), structure) for n in names
        }
        before = lift(_of(who, state, "step"))
        lr, now = self.lr(before) if callable(self.lr) else self.lr, before + 1
        shared: dict[Any, Any] = {}
        for i, g in enumerate(gs):
            if g is None:
                continue
            wide = _wide(leaves[i].dtype)
            if wide not in shared:
                shared[wide] = self.scales(beside(lr, wide), now, wide)
            p, g = cast.astype(leaves[i], wide), cast.astype(g, wide)
            p, kept = self.update(p, g, {n: columns[n][i] for n in names}, shared[wide])
            leaves[i] = cast.astype(p, leaves[i].dtype)
            for n in names:
                columns[n][i] = kept[n]
        after = {n: tree.unflatten(structure, column) for n, column in columns.items()}
        return tree.unflatten(structure, leaves), {"step": now, **after}

    def _trained(self, leaves: list[Tensor], structure: tree.Structure) -> list[bool]:
        """Which leaves are trained: floating, and not fixed."""
        fixed = tree.fixed(structure)
        found = [dt.is_inexact(p.dtype) and not f for p, f in zip(leaves, fixed, strict=True)]
        for p, trained in zip(leaves, found, strict=True):
            if trained and p.dtype.kind == "c" and not self.takes_complex:
                raise DtypeError(
                    f"{type(self).__name__}: a parameter is {p.spec}; parameters must be real",
                    hint="two real parameters for its parts, or rg.optim.SGD",
                )
        return found


def _wide(dtype: Any) -> Any:
    """The dtype to compute in: float32 for half precision."""
    return dt.float32 if dtype.itemsize == 2 else dtype


def _gradients(who: str, leaves: Any, trained: Any, gs: list[Any]) -> list[Any]:
    """A gradient for each leaf that is trained and has one, None for the others."""
    found = []
    for p, t, g in zip(leaves, trained, gs, strict=True):
        g = lift(g) if t and g is not None else None
        if g is not None and g.shape != p.shape:
            raise ShapeError(
                f"{who}: a parameter is {p.spec}, its gradient {g.spec}; both must have one "
                f"shape"
            )
        found.append(g)
    return found


def _of(who: str, state: Any, name: str) -> Any:
    if not isinstance(state, dict) or name not in state:
        has = f"the keys {sorted(state)}" if isinstance(state, dict) else type(state).__name__
        raise ArgumentError(
            f"{who}: the state must have {name!r}; it has {has}",
            hint="state = optimizer.init(params)",
        )
    return state[name]


def _beside(who: str, name: str, given: Any, structure: tree.Structure) -> list[Any]:
    """The leaves of a tree like the parameters, where None stands for a leaf or a branch."""
    found: list[Any] = []
    if not _walk(given, structure, found):
        raise ArgumentError(
            f"{who}: {name} is {tree.structure(given)}, the parameters are {structure}; they "
            f"must have one structure, but for None"
        )
    return found


def _walk(node: Any, structure: tree.Structure, found: list[Any]) -> bool:
    parts = tree.children(node)
    if node is None:
        found += [None] * structure.leaves
        return True
    if structure.type is None or parts is None:
        found.append(node)
        return structure.type is None and parts is None
    children, static = list(parts[0]), parts[1]
    if isinstance(node, Frozen) and static != structure.static:  # None in place of a branch
        children, static = _by_plan(structure.static, node), structure.static
    return (
        type(node) is structure.type
        and static == structure.static
        and len(children) == len(structure.children)
        and all(_walk(c, s, found) for c, s in zip(children, structure.children, strict=True))
    )


def _by_plan(plan: Any, record: Frozen) -> list[Any]:
    """The children of a record where another one has them."""
    children: list[Any] = []
    try:
        plan.take({n: record.__dict__[n] for n in record.fields}, children)
    except (AttributeError, LookupError, TypeError):
        children.clear()
    return children


# -- numbers that may be tensors -------------------------------------------------------------


def checked(who: str, name: str, value: Any, *, below: float | None = None) -> Any:
    """An option of a rule: a number from 0 on, or a tensor with one number."""
    if isinstance(value, Tensor):
        if value.shape != ():
            raise ShapeError(f"{who}: {name} is one number; got a tensor {value.spec}")
        return value
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{who}: {name} must be a number or a tensor; got {value!r}"
        ) from error
    if not (number >= 0 and (below is None or number < below)):
        rule = "must not be negative" if below is None else f"must be from 0 to below {below:g}"
        raise ArgumentError(f"{who}: {name} {rule}; got {value!r}")
    return number


def rate(who: str, lr: Any) -> Any:
    """A learning rate: a number, a tensor, or a function of the number of steps so far."""
    return lr if callable(lr) and not isinstance(lr, Tensor) else checked(who, "lr", lr)


def bound(who: str, clip: Any) -> Any:
    """The largest norm of the gradients, if there is one."""
    if clip is not None and absent(clip := checked(who, "clip", clip)):
        raise ArgumentError(f"{who}: clip must be positive, or None for no bound; got 0")
    return clip


def absent(value: Any) -> bool:
    """Whether an option is the number 0, so that its term is left out."""
    return not isinstance(value, Tensor) and value == 0


def beside(value: Any, dtype: Any) -> Any:
    """A number, or a tensor of this dtype: neither widens it."""
    return cast.astype(value, dtype) if isinstance(value, Tensor) else value
