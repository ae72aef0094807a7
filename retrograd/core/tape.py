"""Nodes of the tape: what ran, on whose results, and what was kept of it."""

from __future__ import annotations

import sys
import weakref
from itertools import count
from typing import TYPE_CHECKING, Any

from retrograd.core.spec import Spec
from retrograd.core.where import INTERNAL, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from retrograd.core.op import Op
    from retrograd.core.replay import Region

next_order = count(0, -1).__next__  # falls, so that a heap yields the latest node first


class Node:
    """One application of an op that led to a tracked tensor.

    `parents` are the nodes of the inputs (None where nothing needs a gradient). `order`
    falls in program order, so that a heap of nodes yields the latest first.
    """

    __slots__ = (
        "__weakref__",
        "code",
        "dtype",
        "extras",
        "kept",
        "offset",
        "op",
        "order",
        "parents",
        "recipe",
        "region",
        "shape",
    )

    def __init__(
        self,
        op: Op | None,
        parents: Sequence[Node | None],
        recipe: Any,
        kept: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
        region: Region | None = None,
    ) -> None:
        self.order = next_order()
        self.op = op
        self.parents = parents
        self.recipe = recipe
        self.kept = kept
        self.shape = shape
        self.dtype = dtype
        self.region = region
        self.extras: Extras | None = None
        frame = sys._getframe(3)  # the hot path: no call to where.here
        code = frame.f_code
        while code.co_filename in INTERNAL and frame.f_back is not None:
            frame = frame.f_back
            code = frame.f_code
        self.code = code
        self.offset = frame.f_lasti

    @property
    def where(self) -> Where:
        """The user's line that made this node."""
        return Where(self.code, self.offset)

    @property
    def spec(self) -> Spec:
        """The spec of the tensor that this node stands for."""
        return Spec(self.shape, self.dtype)

    @property
    def consumed(self) -> bool:
        """Whether an earlier backward freed what this node kept."""
        return self.op is not None and self.kept is None

    def more(self) -> Extras:
        """Hooks and retained gradient, made when first asked for."""
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def __repr__(self) -> str:
        """What ran, and where."""
        return f"<{self.op.name if self.op else 'leaf'} {self.spec} at {self.where}>"


class Leaf(Node):
    """A tensor that requires a gradient of its own; handles that share it share `.grad`."""

    __slots__ = ("grad",)

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__(None, [], None, None, shape, dtype)
        self.grad: Any = None


class Primal(Node):
    """An argument of a functional tape: where its cotangents end, without a `.grad`."""

    __slots__ = ()

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__(None, [], None, None, shape, dtype)


class Joint(Node):
    """The node of an op that has several outputs; a Pick stands for each of them."""

    __slots__ = ("picks", "specs")

    def __init__(
        self, op: Op, parents: Any, recipe: Any, kept: Any, specs: list[Spec], region: Any
    ) -> None:
        super().__init__(op, parents, recipe, kept, (), specs[0].dtype, region)
        self.specs = specs
        self.picks: list[Any] = [None] * len(specs)  # weak: a pick holds its joint


class Pick(Node):
    """One output of an op that has several: hands its cotangent to the op's own node."""

    __slots__ = ("index",)

    def __init__(self, joint: Joint, index: int) -> None:
        spec = joint.specs[index]
        super().__init__(joint.op, [joint], None, (), spec.shape, spec.dtype, joint.region)
        self.index = index
        joint.picks[index] = weakref.ref(self)


class Extras:
    """What few nodes have: hooks, and a gradient that is asked to stay."""

    __slots__ = ("grad", "hooks", "retain")

    def __init__(self) -> None:
        self.hooks: dict[object, Any] = {}
        self.retain = False
        self.grad: Any = None
