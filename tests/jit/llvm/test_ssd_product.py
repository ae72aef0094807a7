"""What the products of an SSD call for: all of what comes later, and little of it twice."""

from math import ceil

import pytest

from retrograd.jit.llvm.ssd_product import Far
from retrograd.jit.llvm.text import F32, F64, PTR, Val

BYTES = 64  # of a line


def lines_of(far, t):
    """The lines of rows that begin with a line."""
    size = t.bits // 8
    starts = (row * far.step * size for row in range(far.rows))
    return {s + k for s in starts for k in range(0, far.numbers * size, BYTES)}


def called(far, t, rows, panels):
    """What is called for, a line each time."""
    calling, calls = far.shared(t, rows, panels)
    size = t.bits // 8
    return [
        (row * calls.step + run * calls.stride) * size + (panel * calls.lines + k) * BYTES
        for row in range(calling)
        for panel in range(panels)
        for run in range(calls.runs)
        for k in range(calls.lines)
    ]


@pytest.mark.parametrize("t", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("rows", [16, 64, 128])
@pytest.mark.parametrize("panels", [1, 2, 3])
@pytest.mark.parametrize("far", [(64, 64, 256), (128, 32, 320), (64, 64, 64), (16, 128, 128)])
def test_all_that_comes_later_is_called_for(t, rows, panels, far):
    far = Far(Val("%x", PTR), *far)
    need, found = lines_of(far, t), called(far, t, rows, panels)
    assert need <= set(found)
    shares = rows * panels
    assert len(found) <= max(
        2 * len(need), shares * ceil(len(need) / shares), shares * far.rows
    )
