"""Linear systems: solve, inv, solve_triangular, cholesky_solve, lstsq."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.ops.decompose.solve import BLOCK
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close


def regular(rng, *shape, dtype=float):
    """Matrices far from singular."""
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return (x + 2 * shape[-1] * np.eye(shape[-1])).astype(dtype)


DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


# -- solve ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 4)),
        ((2, 3, 3), (5, 1, 3, 4)),
        ((3, 3), (2, 3, 4)),
        ((3, 3), (0, 3, 4)),
        ((1, 3, 3), (2, 3, 1)),
        ((0, 0), (0,)),
        ((0, 3, 3), (3, 2)),
    ],
)
def test_solve_is_numpys(a, b, dtype, rng):
    x, y = regular(rng, *a, dtype=dtype), rng.normal(size=b).astype(dtype)
    found = linalg.solve(x, y)
    assert found.dtype == dtype
    assert_close(found, np.linalg.solve(x, y))


def test_N23_solve_is_batched(rng):
    """numr's solve took one matrix; ours takes stacks, which broadcast."""
    a, b = regular(rng, 4, 1, 3, 3), rng.normal(size=(2, 3, 5))
    out = linalg.solve(a, b)
    assert out.shape == (4, 2, 3, 5)
    for i in range(4):
        for j in range(2):
            assert_close(out.array[i, j], np.linalg.solve(a[i, 0], b[j]))
    check_grads(linalg.solve, a, b)


def test_N23_solve_takes_a_vector(rng):
    """numr's backward failed for a right-hand side with one axis."""
    a, b = regular(rng, 3, 3), rng.normal(size=3)
    g = rng.normal(size=3)
    out, pull = rg.vjp(linalg.solve, a, b)
    ga, gb = pull(rg.asarray(g))
    assert out.shape == gb.shape == (3,)
    assert_close(gb, np.linalg.solve(a.T, g))
    assert_close(ga, -np.outer(np.linalg.solve(a.T, g), out.array))
    check_grads(linalg.solve, a, b)


@pytest.mark.parametrize("name", ["solve", "inv", "det"])
def test_N7_hessians_of_linear_algebra(name, rng):
    """numr's second derivatives were silently constants: none, or wrong, for either operand."""
    a, b = regular(rng, 3, 3) / 3, rng.normal(size=3)
    c = rng.normal(size=3)
    f = {
        "solve": lambda a: c @ linalg.solve(a, b),
        "inv": lambda a: c @ linalg.inv(a) @ b,
        "det": linalg.det,
    }[name]
    found = rg.hessian(f)(a).array.reshape(9, 9)
    eps, rows = 1e-5, []
    for i in range(9):
        t = np.zeros(9)
        t[i] = eps
        ahead, back = (rg.grad(f)(a + s * t.reshape(3, 3)).array for s in (1, -1))
        rows.append((ahead - back).reshape(9) / (2 * eps))
    assert_close(found, np.stack(rows), tolerance=1e-7)
    assert_close(found, found.T)
    assert np.abs(found).max() > 1e-3


def test_N7_mixed_second_derivatives_of_solve(rng):
    """In both operands, both orders of differentiation, and on the tape's face."""
    a, b = regular(rng, 3, 3), rng.normal(size=3)
    mixed = rg.jacrev(rg.grad(lambda a, b: rg.sum(rg.square(linalg.solve(a, b)))), argnums=1)
    other = rg.jacrev(rg.grad(lambda a, b: rg.sum(rg.square(linalg.solve(a, b))), 1), argnums=0)
    assert_close(mixed(a, b), np.moveaxis(other(a, b).array, 0, 2))
    t = rg.tensor(a, requires_grad=True)
    loss = rg.sum(rg.square(linalg.solve(t, b)))
    loss.backward(create_graph=True)
    first = t.grad
    t.grad = None
    rg.sum(first * first).backward()
    wanted = rg.grad(
        lambda a: rg.sum(rg.square(rg.grad(lambda a: rg.sum(rg.square(linalg.solve(a, b))))(a)))
    )
    assert_close(t.grad, wanted(a))


def test_solve_of_a_singular_matrix_is_refused(rng):
    with pytest.raises(ArgumentError, match=r"solve: x1 \(2, 2\) is singular"):
        linalg.solve(np.ones((2, 2)), np.ones(2))
    stack = np.stack([np.eye(2), np.eye(2), np.ones((2, 2)), np.eye(2)]).reshape(2, 2, 2, 2)
    with pytest.raises(ArgumentError, match=r"x1\[1, 0\] of x1 \(2, 2, 2, 2\) is singular"):
        linalg.solve(stack, np.ones(2))


def test_solve_refuses_shapes():
    with pytest.raises(ShapeError, match="x1 must have two last axes of equal length"):
        linalg.solve(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match="x1 needs at least 2 axes"):
        linalg.solve(np.ones(2), np.ones(2))
    with pytest.raises(ShapeError, match=r"x2 \(2, 1\) must have 3 rows"):
        linalg.solve(np.eye(3), np.ones(2))
    with pytest.raises(ShapeError, match="the right-hand side needs axes"):
        linalg.solve(np.eye(3), 1.0)


def kept(loss, name):
    """What the node of that name keeps, by the names of the values."""
    node = loss._node
    while node.op is None or node.op.name != name:
        node = node.parents[0]
    return [k.name for k in node.recipe.keeps if not k.spec]


def test_solve_keeps_what_it_says(rng):
    a, b = regular(rng, 3, 3), rng.normal(size=(3, 2))
    t, u = rg.tensor(a, requires_grad=True), rg.tensor(b, requires_grad=True)
    assert kept(linalg.solve(a, u), "solve") == ["x1"]
    assert kept(linalg.solve(t, u), "solve") == ["x1", "out"]
    assert rg.debug.graph(linalg.solve(a, u)).nbytes == a.nbytes
    assert rg.debug.graph(linalg.solve(t, u)).nbytes == a.nbytes + b.nbytes
    assert rg.debug.graph(linalg.inv(t)).nbytes == a.nbytes


def test_integers_are_solved_in_float32():
    out = linalg.solve(np.array([[2, 0], [0, 4]]), np.array([2, 2]))
    assert out.dtype == rg.float32
    assert out.array.tolist() == [1.0, 0.5]


# -- inv -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_inv(dtype, rng):
    x = regular(rng, 2, 4, 3, 3, dtype=dtype)
    found = linalg.inv(x)
    assert found.dtype == dtype
    assert_close(found @ x, np.broadcast_to(np.eye(3, dtype=dtype), x.shape))


def test_inv_refuses():
    with pytest.raises(ArgumentError, match=r"inv: x \(2, 2\) is singular"):
        linalg.inv(np.zeros((2, 2)))


def test_gradients_of_inv_and_of_solving_for_the_identity_are_the_same(rng):
    x, g = regular(rng, 3, 3), rng.normal(size=(3, 3))
    one = rg.grad(lambda x: rg.sum(linalg.inv(x) * g))(x)
    other = rg.grad(lambda x: rg.sum(linalg.solve(x, np.eye(3)) * g))(x)
    assert_close(one, other)


# -- solve_triangular ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5, BLOCK, BLOCK + 1, 3 * BLOCK + 2])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_solve_triangular(n, lower, transpose, unit, rng):
    """It is the solution with the other triangle as zeros; that triangle is not read."""
    a = rng.uniform(-1, 1, (n, n)) / np.sqrt(n or 1) + 2 * np.eye(n)
    b = rng.normal(size=(n, 3))
    triangle = np.tril(a) if lower else np.triu(a)
    if unit:
        np.fill_diagonal(triangle, 1)
    wanted = np.linalg.solve(triangle.T if transpose else triangle, b)
    poisoned = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, np.nan)
    if unit:
        np.fill_diagonal(poisoned, np.nan)
    options = {"lower": lower, "transpose": transpose, "unit_diagonal": unit}
    assert_close(linalg.solve_triangular(poisoned, b, **options), wanted)
    assert_close(linalg.solve_triangular(poisoned, b[:, 0], **options), wanted[:, 0])


@pytest.mark.parametrize("lower", [False, True])
def test_solve_triangular_over_several_blocks_has_its_gradient(lower, rng):
    n = BLOCK + 7
    a = rng.uniform(-1, 1, (n, n)) / n + 2 * np.eye(n)
    b, g = rng.normal(size=(2, n, 2)), rng.normal(size=(2, n, 2))
    keep = np.tri(n) if lower else np.tri(n).T
    _, pull = rg.vjp(lambda a, b: linalg.solve_triangular(a, b, lower=lower), a, b)
    ga, gb = pull(rg.asarray(g))
    _, pull = rg.vjp(lambda a, b: linalg.solve(a * keep, b), a, b)
    wanted = pull(rg.asarray(g))
    assert_close([ga, gb], list(wanted))
    assert not np.any(ga.array[keep == 0])


def test_solve_triangular_is_substitution(rng):
    """Rows of very different size, as Cholesky factors have them, lose no digits."""
    n = 40
    scale = 10.0 ** rng.uniform(-12, 12, n)
    a = np.tril(rng.uniform(0.5, 1, (n, n))) * scale[:, None]
    x = rng.normal(size=n)
    exact = np.array([sum(a[i, j] * x[j] for j in range(i + 1)) for i in range(n)])
    out, slow = linalg.solve_triangular(a, exact, lower=True).array, np.zeros(n)
    for i in range(n):
        slow[i] = (exact[i] - a[i, :i] @ slow[:i]) / a[i, i]
    assert np.abs(out - slow).max() <= 1e-9 * np.abs(slow).max()


def test_solve_triangular_refuses_a_zero_on_the_diagonal():
    with pytest.raises(ArgumentError, match=r"x1\[1\] of x1 \(2, 2, 2\) has 0 on its diagonal"):
        linalg.solve_triangular(np.stack([np.eye(2), np.ones((2, 2)) - np.eye(2)]), np.ones(2))
    out = linalg.solve_triangular(np.zeros((2, 2)), np.ones(2), unit_diagonal=True)
    assert out.array.tolist() == [1.0, 1.0]


# -- cholesky_solve and lstsq --------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_solve(dtype, upper, rng):
    root = regular(rng, 2, 3, 3, dtype=dtype)
    a = root @ np.conj(root.swapaxes(-1, -2))
    b = rng.normal(size=(3, 2)).astype(dtype)
    c = linalg.cholesky(a, upper=upper)
    assert_close(linalg.cholesky_solve(c, b, upper=upper), np.linalg.solve(a, b))
    assert_close(linalg.cholesky_solve(c, b[:, 0], upper=upper), np.linalg.solve(a, b)[..., 0])


def test_solving_by_cholesky_has_the_gradient_of_solve(rng):
    root = rng.normal(size=(3, 3))
    a, b = root @ root.T + np.eye(3), rng.normal(size=3)

    def both(a, b):
        return linalg.cholesky_solve(linalg.cholesky(a), b)

    symmetric = rg.grad(lambda a: rg.sum(linalg.solve(0.5 * (a + a.mT), b)))
    assert_close(rg.grad(lambda a: rg.sum(both(a, b)))(a), symmetric(a))
    check_grads(both, a, b)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 3), (3, 5), (4, 1), (1, 4)])
def test_lstsq(m, n, dtype, rng):
    a = (np.eye(m, n) * 2 + 0.5 * rng.normal(size=(m, n))).astype(dtype)
    if np.dtype(dtype).kind == "c":
        a = a + 0.5j * rng.normal(size=(m, n))
    b = rng.normal(size=(m, 2)).astype(dtype)
    wanted = np.linalg.lstsq(a, b, rcond=None)[0]
    assert_close(linalg.lstsq(a, b), wanted)
    assert_close(linalg.lstsq(a, b[:, 0]), wanted[:, 0])
    assert_close(linalg.lstsq(np.stack([a, a]), b), np.stack([wanted, wanted]))
    if np.dtype(dtype).kind != "c":
        check_grads(linalg.lstsq, a, b)


def test_lstsq_refuses():
    with pytest.raises(ShapeError, match=r"b \(3, 1\) must have 4 rows"):
        linalg.lstsq(np.ones((4, 2)), np.ones(3))
    with pytest.raises(ShapeError, match="needs at least 2 axes"):
        linalg.lstsq(np.ones(4), np.ones(4))


# -- mapped --------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1)])
def test_vmap_of_solve(axes, rng):
    a, b = regular(rng, 3, 3, 3), rng.normal(size=(3, 3))
    give = [
        x[0] if i is None else np.moveaxis(x, 0, i) for x, i in zip((a, b), axes, strict=True)
    ]
    out = rg.vmap(linalg.solve, in_axes=axes)(*give)
    rows = [
        np.linalg.solve(a[0 if axes[0] is None else i], b[0 if axes[1] is None else i])
        for i in range(3)
    ]
    assert_close(out, np.stack(rows))
    slopes = rg.vmap(rg.grad(lambda a, b: rg.sum(linalg.solve(a, b))), in_axes=axes)(*give)
    assert slopes.shape == (3, 3, 3)
