"""Shapes that every elementwise thing must take, their names as ids, and numbers off kinks."""

import numpy as np
import pytest

SHAPES = [
    (),
    (1,),
    (7,),
    (4, 6),
    (0, 5),
    (3, 0),
    (3, 1, 5),
    (2, 3, 4, 3),
    (2, 1, 3, 2, 5),
]
over = pytest.mark.parametrize


def named(cases):
    """Ids without spaces."""
    return [str(c).replace(" ", "") for c in cases]


def each(names, cases):
    """A test for each of the cases, called as they are written."""
    return over(names, cases, ids=named(cases))


shapes = each("shape", SHAPES)
dtypes = over("dtype", ["float64", "float32"])


def away(rng, shape, kinks=(), dtype="float64", spread=3):
    """Numbers on both sides of the kinks, and not near them."""
    x = rng.normal(size=shape) * spread
    for k in kinks:
        x = np.where(abs(x - k) < 0.05, k + 0.1, x)
    return np.asarray(x, dtype)


def cast(arrays, dtype):
    """Floats in this dtype; integers as they are."""
    return [a.astype(dtype) if a.dtype.kind == "f" else a for a in map(np.asarray, arrays)]
