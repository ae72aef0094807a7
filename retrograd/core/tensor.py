"""Tensor: a handle on an array, which may know the tape node that it came from.

Boxes are the tensors that transforms hand to user code: they hold a value of the level
below and belong to one interpreter. To a user both are `Tensor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, TraceError
from retrograd.core.op import FUNCTIONS
from retrograd.core.operators import Operators
from retrograd.core.spec import Spec
from retrograd.core.tape import Leaf, Node

if TYPE_CHECKING:
    from retrograd.core.replay import Cell


class Tensor(Operators):
    """An n-dimensional array that can be differentiated.

    Made by `rg.tensor`, `rg.asarray` and the creation functions, never by this class.
    """

    __slots__ = ("__weakref__", "_cell", "_data", "_node")
    _data: Any
    _node: Node | None
    _cell: Cell | None
    weak: Any = None  # the type of a Python number that this stands for in a traced program

    def __init__(self, data: Any, node: Node | None = None, cell: Cell | None = None) -> None:
        self._data = data
        self._node = node
        self._cell = cell

    @property
    def array(self) -> np.ndarray:
        """The NumPy array inside, replayed if a checkpoint dropped it. Not to be written."""
        if self._data is None:
            assert self._cell is not None
            return self._cell.array
        return self._data

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device."""
        return Spec(self.shape, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._bytes_or_spec().shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements."""
        return self._bytes_or_spec().dtype

    def _bytes_or_spec(self) -> Any:
        if self._data is not None:
            return self._data
        spec = getattr(self._cell, "spec", None)
        return self.array if spec is None else spec

    # -- the tape face -----------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient will flow into this tensor."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted:
            self.requires_grad_()
        else:
            self._node = None

    def requires_grad_(self) -> Tensor:
        """Make this tensor a leaf of the tape, in place."""
        if not dt.is_inexact(self.dtype):
            raise DtypeError(
                f"tensor: {self.dtype} cannot require a gradient; only floats and complex can",
                hint="rg.tensor(values, dtype=rg.float32, requires_grad=True)",
            )
        if self._node is None:
            self._node = Leaf(self.shape, self.dtype)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        return self._node is None or isinstance(self._node, Leaf)

    @property
    def leaf(self) -> Leaf | None:
        """The identity of a leaf, shared by all its handles; None for other tensors."""
        return self._node if isinstance(self._node, Leaf) else None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward left here: on leaves, and where `retain_grad` asked."""
        node = self._node
        if isinstance(node, Leaf):
            return node.grad
        return node.extras.grad if node is not None and node.extras else None

    @grad.setter
    def grad(self, value: Any) -> None:
        node = self._node
        if node is None:
            raise ArgumentError("grad: this tensor does not require a gradient")
        value = None if value is None else FUNCTIONS["lift"](value)
        if value is not None and (value.shape != self.shape or value.dtype != self.dtype):
            raise ArgumentError(
                f"grad: a gradient for {self.spec} must have that shape and dtype; "
                f"got {value.spec}"
            )
        (node if isinstance(node, Leaf) else node.more()).grad = value

    def retain_grad(self) -> Tensor:
        """Ask backward to leave this intermediate tensor's gradient in `.grad`."""
        if self._node is None:
            raise ArgumentError("retain_grad: this tensor does not require a gradient")
        if not isinstance(self._node, Leaf):
            self._node.more().retain = True
        return self

    def register_hook(self, hook: Any) -> Any:
        """Call hook(g) when this tensor's gradient is complete; what it returns replaces g.

        Returns a function that removes the hook.
        """
        if self._node is None:
            raise ArgumentError("register_hook: this tensor does not require a gradient")
        hooks, key = self._node.more().hooks, object()  # a function may be there twice
        hooks[key] = hook
        return lambda: hooks.pop(key, None) and None

    def backward(self, gradient: Any = None, **options: Any) -> None:
        """Leave d(this)/d(leaf) in the `.grad` of every leaf; see `rg.backward`."""
        FUNCTIONS["backward"](self, gradient, **options)

    def detach(self) -> Tensor:
        """The same values, cut from the tape."""
        return FUNCTIONS["stop_gradient"](self)

    # -- handles -----------------------------------------------------------------------

    def handle(self) -> Tensor:
        """Another handle on the same value: writing to one leaves the other as it is."""
        return Tensor(self._data, self._node, self._cell)

    def strong(self, dtype: Any = None) -> Tensor:
        """What `rg.asarray` makes of it: of a number, a tensor of this or the default dtype."""
        return self

    def shell(self) -> Tensor:
        """What a tape keeps: the bytes only if no checkpoint region can bring them back."""
        if self._cell is None:
            return self.handle()
        return Tensor(None, self._node, self._cell)

    def replace(self, other: Tensor) -> None:
        """Make this handle point to another value; what the tape recorded stays."""
        if isinstance(other, Box):
            raise cannot_hold(self, other)
        node = other._node
        if isinstance(self._node, Leaf):
            if node is not None:
                raise ArgumentError(
                    "setitem: a leaf that requires a gradient cannot be written in place, its "
                    "gradient would have no owner",
                    hint="y = x.at[index].set(value), or write under rg.no_grad()",
                )
            node = self._node  # nothing was recorded: the same leaf, with other values
        self._data, self._node, self._cell = other._data, node, other._cell


def cannot_hold(tensor: Tensor, value: Box) -> TraceError:
    """A value of a transform written into a tensor that the transform does not carry."""
    kind = type(value.owner).__name__.lower()
    return TraceError(
        f"setitem: a tensor {tensor.spec} that is a constant to {kind} cannot hold a value "
        f"of it",
        hint="y = x.at[index].set(value) makes a new tensor, which can",
    )


class Box(Tensor):
    """A tensor of a transform: it belongs to `owner`, and holds a value one level below."""

    __slots__ = ("owner", "value")
    fields: tuple[str, ...] = ("value",)

    def __init__(self, owner: Any, value: Any) -> None:
        self.owner = owner
        self.value = value
        self._cell = None

    @property
    def array(self) -> np.ndarray:
        """The NumPy array at the bottom, where there is one."""
        return self.value.array

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device."""
        return self.value.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements."""
        return self.spec.dtype

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        """Never: gradients of transforms do not use the tape face."""
        return False

    @property  # type: ignore[misc]
    def grad(self) -> None:
        """Never there: gradients of transforms are returned, not stored."""
        return

    def requires_grad_(self) -> Tensor:
        """Refused: the tape face does not reach into transforms."""
        raise TraceError(
            "requires_grad: inside grad, jvp, vmap and jit a tensor cannot join the tape",
            hint="rg.grad(f)(x) differentiates with respect to the arguments of f",
        )

    def retain_grad(self) -> Tensor:
        """Refused, as requires_grad is."""
        return self.requires_grad_()

    def register_hook(self, hook: Any) -> Any:
        """Refused, as requires_grad is."""
        return self.requires_grad_()

    def remake(self, f: Any) -> Tensor:
        """The same box around f of what it holds."""
        return type(self)(self.owner, f(self.value))

    def handle(self) -> Tensor:
        """Another box around another handle."""
        return self.remake(lambda t: t.handle())

    def shell(self) -> Tensor:
        """This box without the bytes that a checkpoint region can bring back."""
        return self.remake(lambda t: t.shell())

    def replace(self, other: Tensor) -> None:
        """Make this box hold another value, which may be a constant of a level below."""
        level = other.owner.outer if isinstance(other, Box) else None
        while level is not None:
            if level is self.owner:
                raise cannot_hold(self, other)  # type: ignore[arg-type]
            level = level.outer
        found = self.owner.own(other)
        for name in type(self).fields:
            setattr(self, name, getattr(found, name))
