"""Matrix products in programs: updates in place, complex numbers, deep and shared ones."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.jit.llvm import gemm_plan
from retrograd.testing import assert_close


def where(t):
    return t.array.ctypes.data


def products(f, *args):
    """How many kernels of matrix products the compiled program has."""
    return str(f.explain(*args)).count("  gemm  ")


def update(w, x, y, lr):
    """A step of a linear layer: the product's results are only used to change w."""
    loss = lambda w: rg.sum((x @ w - y) ** 2)
    return w - lr * rg.grad(loss)(w)


@pytest.mark.parametrize("rows", [7, 64, 600])
def test_weights_are_updated_where_they_are(rng, rows):
    """With few terms by the product itself, with many after it: in the same memory always."""
    x, y = (rg.asarray(rng.normal(size=(rows, n)), dtype="float32") for n in (40, 21))
    start = rng.normal(size=(40, 21)).astype("float32")
    f = rg.jit(update, donate="w")
    w = rg.asarray(start.copy())
    at, wanted = where(w), start.astype("f8")
    for _ in range(3):
        w = f(w, x, y, 1e-3)
        wanted = wanted - 1e-3 * 2 * x.array.T.astype("f8") @ (x.array @ wanted - y.array)
    assert where(w) == at
    assert_close(w, wanted.astype("float32"))


def test_momentum_is_updated_by_the_product_too(rng):
    def step(w, m, x, g, lr):
        m = 0.9 * m + x.mT @ g
        return w - lr * m, m

    x, g, w, m = (
        rg.asarray(rng.normal(size=s)) for s in ((30, 20), (30, 17), (20, 17), (20, 17))
    )
    wanted = step(w, m, x, g, 0.1)
    f = rg.jit(step, donate=("w", "m"))
    places = {where(w), where(m)}
    found = f(w, m, x, g, 0.1)
    assert {where(t) for t in found} == places
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)


def test_an_operand_is_not_overwritten_while_it_is_read(rng):
    """w @ x needs all of w: the result waits."""
    f = rg.jit(lambda w, x: w - w @ x, donate="w")
    w, x = (rg.asarray(rng.normal(size=(33, 33))) for _ in range(2))
    wanted = w - w @ x
    assert_close(f(w, x), wanted)


def test_what_is_read_later_is_not_overwritten(rng):
    def step(w, x, g):
        new = w - x.mT @ g
        return new, g @ w.mT

    w, x, g = (rg.asarray(rng.normal(size=s)) for s in ((20, 17), (9, 20), (9, 17)))
    wanted = step(w, x, g)
    for a, b in zip(rg.jit(step, donate="w")(w, x, g), wanted, strict=True):
        assert_close(a, b)


def test_a_failing_call_leaves_the_weights(rng):
    """An index is checked after the product: what was donated is whole when it fails."""

    def step(w, x, g, table, at):
        new = w - x.mT @ g
        return new, rg.take(table, at, axis=0)

    start = rng.normal(size=(20, 17))
    x, g = rg.asarray(rng.normal(size=(9, 20))), rg.asarray(rng.normal(size=(9, 17)))
    table, w = rg.asarray(rng.normal(size=(5, 3))), rg.asarray(start.copy())
    f = rg.jit(step, donate="w")
    with pytest.raises(rg.BoundsError):
        f(w, x, g, table, rg.asarray(np.array([1, 9])))
    np.testing.assert_array_equal(w.array, start)


# -- complex numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (33, 17, 29), (40, 50, 60)], ids=str)
def test_complex_products(rng, dtype, sizes):
    m, n, k = sizes
    x, y = (
        (rng.normal(size=s) + 1j * rng.normal(size=s)).astype(dtype) for s in ((m, k), (k, n))
    )
    f = rg.jit(lambda x, y: rg.conj(x @ y) + 1)
    wanted = np.conj(x.astype("complex128") @ y) + 1
    assert_close(f(rg.asarray(x), rg.asarray(y)), wanted.astype(dtype))


def test_complex_products_run_on_tiles(rng):
    x = rg.asarray(rng.normal(size=(32, 32)) + 1j)
    assert products(rg.jit(lambda x: x @ x), x) == 4


# -- deep and shared products ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nn", "tn", "nt", "tt"])
@pytest.mark.parametrize("sizes", [(5, 7, 4099), (3, 5, 8192), (70, 33, 9000)], ids=str)
def test_deep_products(rng, kind, sizes):
    """Added up in parts where the number of terms has divisors; bits for all threads."""
    m, n, k = sizes
    x, y = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    a, b = (rg.asarray(np.ascontiguousarray(v)) for v in (x, y))
    if kind[0] == "t":
        a = rg.asarray(np.ascontiguousarray(x.T))
    if kind[1] == "t":
        b = rg.asarray(np.ascontiguousarray(y.T))
    turned = [k == "t" for k in kind]

    def f(a, b):
        return (a.mT if turned[0] else a) @ (b.mT if turned[1] else b) + 1.0

    found = [rg.jit(f, threads=t)(a, b).array for t in (1, 2, 3)]
    assert_close(rg.asarray(found[0]), x @ y + 1.0)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("shape", [(8, 16, 32), (3, 5, 7, 32), (4, 1, 32), (2, 3, 1, 32)])
def test_a_matrix_that_a_batch_shares(rng, shape):
    """The batch is rows of one product; what follows still knows which is which."""
    x, w = rng.normal(size=shape), rng.normal(size=(32, 24))
    bias, scale = rng.normal(size=(*shape[:-1], 24)), rng.normal(size=(*shape[:-2], 1, 24))
    f = rg.jit(lambda x, w, b, s: rg.tanh(x @ w + b) * s)
    found = f(*map(rg.asarray, (x, w, bias, scale)))
    assert_close(found, np.tanh(x @ w + bias) * scale)


@pytest.mark.parametrize("sizes", [(3, 5, 7), (64, 64, 64), (130, 600, 75), (33, 40, 1000)])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_what_lies_beside_results_is_called_for(rng, sizes, batch, monkeypatch):
    """Wherever tiles are, whether k is one block or many; in place too."""
    m, n, k = sizes
    x, w, s = (rng.normal(size=(*batch, *t)) for t in ((m, k), (k, n), (m, n)))
    f = lambda s, x, w: s - rg.tanh(s) * (x @ w)
    wanted = s - np.tanh(s) * (x @ w)
    monkeypatch.setattr(gemm_plan, "FAR", 0)
    for donated in ((), ("s",)):
        run = rg.jit(f, donate=donated)
        given = [rg.asarray(a.copy()) for a in (s, x, w)]
        if not donated:  # in place, a deep product is followed by loops
            assert "beside0" in run.lower(*given).compile().program.text
        assert_close(run(*given), wanted)
