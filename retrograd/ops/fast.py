"""What `rg.jit(f, fast_math=True)` puts in the place of exact ops: fewer roundings, or cheaper.

No function makes these. A pass of the compiler does, where a program may differ from eager code
by a few units in the last place.
"""

from __future__ import annotations

import numpy as np

from retrograd.core.op import Elementwise, op

__all__: list[str] = []


@op
class MultiplyAdd(Elementwise):
    """x1 * x2 + x3, rounded once where the machine can."""

    takes = "floating"

    def forward(self, x1, x2, x3):
        return np.add(np.multiply(x1, x2), x3)

    def slope_x1(self, x2):
        return x2

    def slope_x2(self, x1):
        return x1

    def slope_x3(self):
        return 1

    def lower(self, k, x1, x2, x3):
        return k.fma(x1, x2, x3)

    @staticmethod
    def samples(rng):
        yield MultiplyAdd(), rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=())
        yield (
            MultiplyAdd(),
            rng.normal(size=(0, 1)),
            rng.normal(size=5),
            rng.normal(size=(1, 1)),
        )


@op
class FastTanh(Elementwise):
    """The hyperbolic tangent to 6 units in the last place, which is cheaper."""

    takes = "floating"

    def forward(self, x):
        return np.tanh(x)

    def slope(self, out):
        return 1 - out * out

    def lower(self, k, x):
        return k.fast_tanh(x)

    @staticmethod
    def samples(rng):
        yield FastTanh(), rng.normal(size=(3, 4)) * 3
        yield FastTanh(), np.array([0.0, 1e-4, 30.0, -30.0])
