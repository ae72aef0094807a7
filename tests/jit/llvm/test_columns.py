"""Sums down columns of wide rows, some rows at a time: the same bits as column by column."""

from __future__ import annotations

import numpy as np
import pytest

import retrograd as rg
from retrograd.jit.llvm import loops
from retrograd.testing import assert_close

OPS = {
    "sum": lambda x, y: rg.sum(x, axis=-2),
    "max": lambda x, y: rg.max(x, axis=-2),
    "of products": lambda x, y: rg.sum(x * y, axis=-2),
    "two": lambda x, y: (rg.sum(x * y, axis=-2), rg.sum(y, axis=-2)),
    "and what follows": lambda x, y: rg.sqrt(rg.mean(x * x, axis=-2)) + y[..., 0, :],
    "of numbers for each column": lambda x, y: rg.sum(x - y[..., :1, :] * 2, axis=-2),
}
# leading axes, rows, columns: whole vectors or not, rows left over or not, parts of tall ones
SHAPES = [(16, 16, 1024), (17, 11, 1000), (4, 5, 13, 527), (4096, 640), (16, 9, 2048)]


def found(name: str, *xs: np.ndarray) -> list[np.ndarray]:
    f = rg.jit(OPS[name])
    out = f(*map(rg.asarray, xs))
    return [t.numpy() for t in (out if isinstance(out, tuple) else (out,))]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether loops went down columns, of each kernel; all arrays count as large."""
    seen: list[bool] = []
    plain = loops.tall

    def tall(*args: object) -> object:
        loop = plain(*args)  # type: ignore[arg-type]
        seen.append(loop is not None)
        return loop

    monkeypatch.setattr(loops, "tall", tall)
    monkeypatch.setattr(loops, "LARGE", 0)
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPS)
def test_bits_are_those_of_columns(
    name: str, shape: tuple[int, ...], watched: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=shape).astype(np.float32) for _ in range(2)]
    new = found(name, *xs)
    assert any(watched)
    again: list[object] = []
    monkeypatch.setattr(loops, "tall", lambda *args: again.append(args))
    old = found(name, *xs)
    assert again  # it was compiled anew
    assert all(np.array_equal(a, b) for a, b in zip(new, old, strict=True))


@pytest.mark.parametrize("name", OPS)
def test_values(name: str, watched: list[bool]) -> None:
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=(33, 21, 777)).astype(np.float32) for _ in range(2)]
    single, double = found(name, *xs), found(name, *(x.astype(np.float64) for x in xs))
    assert_close(single, [b.astype(np.float32) for b in double], what=name)


@pytest.mark.parametrize("shape", [(16, 8, 256), (16, 7, 1024), (4, 64, 1024), (16, 8, 8192)])
def test_what_is_left_as_it_is(shape: tuple[int, ...], watched: list[bool]) -> None:
    """Rows that are short, too few, or too wide; and too little to share out."""
    x = np.ones(shape, np.float32)
    assert (found("sum", x, x)[0] == shape[1]).all()
    assert not any(watched)


def test_nan_and_infinity_are_seen(watched: list[bool]) -> None:
    x = np.zeros((16, 16, 1024), np.float32)
    x[3, 5, 7], x[4, 2, 9] = np.nan, -np.inf
    for name in ("sum", "max"):
        (out,) = found(name, x, x)
        assert np.isnan(out[3, 7])
        assert np.isnan(out).sum() == 1
        assert (out[4, 9] == -np.inf) == (name == "sum")
    assert any(watched)
