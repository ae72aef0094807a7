"""Order: sort, topk, and what is found by them. Ties keep their first-come order."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import gather


@op
class Topk(Op):
    """The k largest (or smallest) along an axis, in order, and where they are."""

    k: int
    axis: int
    largest: bool = True
    outputs = ("values", "indices")

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        n = x.shape[self.axis]
        if not 0 <= self.k <= n:
            raise ArgumentError(f"topk: k {self.k} must be from 0 to {n}, the axis's length")
        out = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return x.with_shape(out), Spec(out, dt.int64)

    def forward(self, x):
        if self.largest:  # stable from the far end, so that ties keep first-come order
            order = np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable")
            order = x.shape[self.axis] - 1 - np.flip(order, self.axis)
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        indices = np.take(order, range(self.k), self.axis)
        return np.take_along_axis(x, indices, self.axis), indices

    def jvp(self, dx, indices):
        return gather.take_along_axis(dx, indices, axis=self.axis), None

    def vjp(self, g_values, x: Spec, indices):
        return apply(gather.AddAlongAxis(self.axis, x.shape[self.axis]), g_values, indices)

    def batch(self, size, args, mapped):
        return apply(Topk(self.k, self.axis + 1, self.largest), *args)

    host = "sorting is a library call"

    @staticmethod
    def samples(rng):
        x = rng.permutation(24).reshape(4, 6) * 0.5
        yield Topk(2, 1), x
        yield Topk(3, 0, largest=False), x
        yield Topk(0, 0), x

    @staticmethod
    def refuses(rng):
        yield Topk(5, 0), rng.normal(size=3), "k 5 must be from 0 to 3"


@function
def topk(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along `axis`, largest first, and their indices."""
    x = lift(x)
    return apply(Topk(int(k), axis_index("topk", axis, x.ndim), bool(largest)), x)
