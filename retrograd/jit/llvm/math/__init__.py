"""Mathematical functions of kernels, for float32 and float64, on every machine alike.

`FUNCTIONS[name](f, *args)` writes the instructions that compute a function of scalars or of
vectors of any length into `f`; `BOUNDS[name]` is the largest error, in units of the last place,
that the tests hold it to. NaN, infinities, signed zeros and denormal numbers are as in IEEE 754
and C. Cheap functions are written in place, the others become functions of the module.
"""

from retrograd.jit.llvm.math import (
    exponential,
    gauss,
    inverse,
    logarithm,
    power,
    rounding,
    trigonometric,
)
from retrograd.jit.llvm.math.registry import BOUNDS, FUNCTIONS, Bound

__all__ = [
    "BOUNDS",
    "FUNCTIONS",
    "Bound",
    "exponential",
    "gauss",
    "inverse",
    "logarithm",
    "power",
    "rounding",
    "trigonometric",
]
