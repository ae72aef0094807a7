"""Products, diagonals, triangles and einsum, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.ops import einsum as einsum_
from retrograd.ops.linalg import Matmul
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

SIDES = st.integers(0, 4)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def same(found, wanted):
    """Equal to the bit, in shape and dtype."""
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.array, wanted)


def counted(*shape):
    """Small whole numbers, whose products and sums are exact in any order."""
    return (np.arange(np.prod(shape, dtype=int)) % 7 - 3.0).reshape(shape)


# -- matmul --------------------------------------------------------------------------------


@given(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, min_side=0, max_dims=3))
def test_matmul(shapes):
    a, b = (counted(*s) for s in shapes.input_shapes)
    same(rg.matmul(a, b), np.matmul(a, b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((4,), (4, 2)),
        ((3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((5, 2, 3, 4), (4, 2)),
        ((3, 4), (2, 4, 5)),
        ((3, 4), (2, 1, 4, 2)),
        ((2, 0, 4), (4, 3)),
        ((1, 3, 4), (4, 3)),
    ],
)
def test_matmul_and_its_derivatives(a, b, rng):
    x, y = rng.normal(size=a), rng.normal(size=b)
    assert_close(rg.matmul(x, y), np.matmul(x, y))
    check_grads(rg.matmul, x, y)


def test_a_weight_shared_by_a_batch_is_one_product(rng, monkeypatch):
    """Its gradient is summed inside the product: no array of one gradient for each row."""
    x = rg.asarray(rng.normal(size=(50, 3, 4)))
    w = rg.tensor(rng.normal(size=(4, 5)), requires_grad=True)
    found, forward = [], Matmul.forward

    def watched(self, a, b):
        found.append(forward(self, a, b))
        return found[-1]

    monkeypatch.setattr(Matmul, "forward", watched)
    rg.sum(rg.matmul(x, w)).backward()
    assert [out.shape for out in found] == [(50, 3, 5), (4, 5)]
    assert_close(w.grad, np.repeat(x.array.sum((0, 1))[:, None], 5, 1))


@given(SHAPES.filter(lambda s: len(s) > 1))
def test_matrix_transpose(shape):
    x = counted(*shape)
    same(rg.matrix_transpose(x), np.swapaxes(x, -1, -2))


# -- tensordot and relatives ---------------------------------------------------------------


@st.composite
def contracted(draw):
    """Two shapes, and pairs of axes of equal length."""
    common = draw(st.lists(SIDES, max_size=2))
    both = []
    for _ in range(2):
        own = draw(st.lists(SIDES, max_size=2))
        marked = [(n, i) for i, n in enumerate(common)] + [(n, None) for n in own]
        order = draw(st.permutations(marked))
        axes = [next(j for j, (_, i) in enumerate(order) if i == k) for k in range(len(common))]
        axes = [a - len(order) if draw(st.booleans()) else a for a in axes]
        both.append((tuple(n for n, _ in order), axes))
    return both


@given(contracted())
def test_tensordot(case):
    (s, left), (t, right) = case
    a, b = counted(*s), counted(*t)
    same(rg.tensordot(a, b, axes=(left, right)), np.tensordot(a, b, (left, right)))


@pytest.mark.parametrize("axes", [0, 1, 2])
def test_tensordot_by_number(axes, rng):
    a, b = counted(2, 3, 4), counted(4, 2) if axes == 1 else counted(3, 4, 2)
    same(rg.tensordot(a, b, axes=axes), np.tensordot(a, b, axes))
    if axes:
        check_grads(lambda x, y: rg.tensordot(x, y, axes=axes), a, b)


def test_vecdot(rng):
    for s, t, axis in (((3,), (3,), -1), ((2, 3), (3,), -1), ((2, 1, 3), (4, 3), -1)):
        x, y = counted(*s), counted(*t)
        same(rg.vecdot(x, y, axis=axis), np.vecdot(x, y, axis=axis))
    a, b = counted(3, 2, 4), counted(3, 1, 4)
    same(rg.vecdot(a, b, axis=-3), np.sum(a * b, 0))
    z, w = rng.normal(size=(2, 3)) + 1j, rng.normal(size=(2, 3)) - 2j
    assert_close(rg.vecdot(z, w), np.sum(np.conj(z) * w, -1))  # x1 is conjugated
    assert_close(rg.vecdot(z[0], w[0]), np.vdot(z[0], w[0]))
    assert rg.vecdot(np.ones((2, 2), np.int32), np.ones(2, np.int32)).dtype == np.int32
    check_grads(rg.vecdot, rng.normal(size=(2, 3)), rng.normal(size=3))


@given(SHAPES, SHAPES)
def test_outer_and_kron(s, t):
    a, b = counted(*s), counted(*t)
    same(rg.outer(a, b), np.outer(a, b))
    if a.size and b.size:  # NumPy itself refuses some empty ones
        same(rg.kron(a, b), np.kron(a, b))


@pytest.mark.parametrize(
    ("s", "t"),
    [((), (3,)), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 2, 3)), ((2, 0), (3, 0))],
)
def test_inner_and_dot(s, t, rng):
    a, b = counted(*s), counted(*t)
    same(rg.inner(a, b), np.inner(a, b))
    c = np.swapaxes(b, -1, -2) if b.ndim > 1 else b
    same(rg.dot(a, c), np.dot(a, c))


@pytest.mark.parametrize(
    "f", [rg.outer, rg.kron, rg.inner, lambda a, b: rg.dot(a, rg.matrix_transpose(b))]
)
def test_their_derivatives(f, rng):
    check_grads(f, rng.normal(size=(2, 3)), rng.normal(size=(4, 3)))


def test_linear(rng):
    x, w, b = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 5)), rng.normal(size=5)
    assert_close(rg.linear(x, w, b), x @ w + b)
    assert_close(rg.linear(x[0, 0], w), x[0, 0] @ w)
    check_grads(rg.linear, x, w, b)


# -- diagonals and triangles ---------------------------------------------------------------


@given(
    hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4),
    st.integers(-5, 5),
    st.data(),
)
def test_diagonal_and_triangles(shape, k, data):
    x = counted(*shape)
    a = data.draw(st.integers(0, len(shape) - 1))
    b = data.draw(st.integers(0, len(shape) - 1).filter(lambda i: i != a))
    same(rg.diagonal(x, offset=k, axis1=a, axis2=b - x.ndim), np.diagonal(x, k, a, b))
    same(rg.trace(x, offset=k), np.trace(x, k, -2, -1))
    same(rg.tril(x, k=k), np.tril(x, k))
    same(rg.triu(x, k=k), np.triu(x, k))


@given(SIDES, st.integers(-3, 3))
def test_diag(n, k):
    same(rg.diag(counted(n), offset=k), np.diag(counted(n), k))
    same(rg.diag(counted(n, n + 1), offset=k), np.diag(counted(n, n + 1), k))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.complex64])
def test_triangles_keep_the_dtype(dtype):
    x = np.ones((3, 3), dtype)
    same(rg.tril(x), np.tril(x))
    same(rg.triu(x, k=1), np.triu(x, 1))


def test_triangles_hide_what_is_not_a_number():
    x = np.full((2, 2), np.nan)
    x[1, 0] = 2.0
    same(rg.tril(x, k=-1), np.array([[0, 0], [2.0, 0]]))
    t = rg.tensor(x, requires_grad=True)
    rg.sum(rg.tril(t, k=-1)).backward()
    same(t.grad, np.array([[0, 0], [1.0, 0]]))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rg.tril(x, k=1),
        rg.triu,
        rg.trace,
        lambda x: rg.diag(rg.diag(x), offset=1),
        lambda x: rg.diagonal(x, offset=-1),
    ],
)
def test_derivatives_of_diagonals_and_triangles(f, rng):
    check_grads(f, rng.normal(size=(3, 4)))


# -- einsum --------------------------------------------------------------------------------

EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 2, 4)),
    ("qbhd,kbhd->bhqk", (3, 2, 2, 4), (2, 2, 2, 4)),
    ("ijk,jil->kl", (2, 3, 4), (3, 2, 2)),
    ("ba", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("iii->i", (2, 2, 2)),
    ("ijij->ij", (2, 3, 2, 3)),
    ("ij->", (2, 3)),
    ("ijk->ki", (2, 3, 4)),
    ("i,i", (4,), (4,)),
    ("i,i->i", (4,), (4,)),
    ("bi,bi->b", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->", (3,), (4,)),
    ("ii,i->i", (3, 3), (3,)),
    ("ij,kl->ikjl", (2, 3), (3, 2)),
    ("i,->i", (3,), ()),
    (",", (), ()),
    ("->", ()),
    ("...", (2, 3)),
    ("...i->...", (2, 3)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (4, 3, 2)),
    ("i...,i...", (3, 2), (3, 1)),
    ("i...j,j->...i", (2, 3, 4), (4,)),
    ("...,...->...", (2, 3), (3,)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("ij,j->i", (2, 1), (3,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ijk->", (2, 0, 3)),
    ("aB,Bc->ac", (2, 3), (3, 2)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ab,bc,cd,de,ea->", (2, 3), (3, 4), (4, 5), (5, 2), (2, 2)),
    ("abc,cd,bd->ad", (2, 3, 4), (4, 5), (3, 5)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak", *[(2, 2)] * 10),
]


@pytest.mark.parametrize(("subscripts", "shapes"), [(s, t) for s, *t in EINSUMS])
def test_einsum(subscripts, shapes, rng):
    xs = [counted(*s) for s in shapes]
    same(rg.einsum(subscripts, *xs), np.einsum(subscripts, *xs))
    if len(xs) < 6:
        check_grads(
            lambda *ys: rg.einsum(subscripts, *ys), *(rng.normal(size=s) for s in shapes)
        )


@st.composite
def spelled(draw):
    """An einsum of random terms, and operands for it."""
    sizes = {c: draw(st.integers(0, 3)) for c in "abcd"}
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    out = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    text = ",".join(terms) + "->" + "".join(out)
    return text, [counted(*(sizes[c] for c in term)) for term in terms]


@given(spelled())
def test_einsum_of_anything(case):
    subscripts, xs = case
    same(rg.einsum(subscripts, *xs), np.einsum(subscripts, *xs))


def test_einsum_dtypes():
    a, b = np.ones((2, 2), np.float32), np.ones((2, 2), np.float64)
    assert rg.einsum("ij,jk", a, b).dtype == np.float64
    assert rg.einsum("ij->", a.astype(np.int32)).dtype == np.int32
    z = counted(2, 2) + 1j
    same(rg.einsum("ij,jk,kl", z, z, z), z @ z @ z)


def test_einsum_inside_transforms(rng):
    x, y = rng.normal(size=(4, 2, 3)), rng.normal(size=(3, 2))
    f = lambda a, b: rg.einsum("ij,jk,ki->", a, b, rg.ones((2, 2), dtype=np.float64))
    found = rg.vmap(rg.grad(f), in_axes=(0, None))(x, y)
    assert_close(found, np.broadcast_to(y.sum(1), (4, 2, 3)))


def work(terms, out, pairs, sizes):
    """Multiplications of a contraction in the given order."""
    held, total = [set(t) for t in terms], 0
    for i, j in pairs:
        b, a = held.pop(j), held.pop(i)
        total += np.prod([sizes[c] for c in a | b], dtype=float)
        held.append((a | b) & set(out).union(*held))
    return total


@given(st.lists(st.integers(1, 9), min_size=4, max_size=9))
def test_a_chain_of_matrices_gets_the_best_order(lengths):
    """Against the textbook recursion for chains."""
    n = len(lengths) - 1
    names = "abcdefghij"
    terms = tuple((names[i], names[i + 1]) for i in range(n))
    sizes = dict(zip(names, lengths, strict=False))
    best = {(i, i): 0 for i in range(n)}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            best[i, j] = min(
                best[i, k] + best[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1]
                for k in range(i, j)
            )
    out = (names[0], names[n])
    pairs = einsum_.order(terms, out, sizes)
    assert work(terms, out, pairs, sizes) <= best[0, n - 1]


def test_many_operands_get_a_good_order():
    names = "abcdefghijklmnop"
    terms = tuple((names[i], names[i + 1]) for i in range(15))
    sizes = dict.fromkeys(names, 10)
    pairs = einsum_.order(terms, ("a",), sizes)  # from the far end: matrix times vector
    assert work(terms, ("a",), pairs, sizes) <= 14 * 10**3


# -- what is refused -----------------------------------------------------------------------

M = counted(2, 3)


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda: rg.matmul(M, M), ShapeError, "they must be equal"),
        (lambda: rg.matmul(M, 2.0), ShapeError, "operands need axes"),
        (lambda: rg.matmul(np.ones((2, 2, 3)), np.ones((3, 3, 2))), ShapeError, "broadcast"),
        (lambda: rg.matmul(M > 0, M.T > 0), DtypeError, "numeric"),
        (lambda: rg.matrix_transpose(M[0]), ShapeError, "at least 2 axes"),
        (lambda: rg.tensordot(M, M.T), ShapeError, "pairs of equal"),
        (lambda: rg.tensordot(M, M, axes=3), ArgumentError, "from 0 to 2"),
        (lambda: rg.tensordot(M, M, axes=(0, 1, 1)), ArgumentError, "two sequences"),
        (lambda: rg.tensordot(M, M, axes=((0,), (2,))), ArgumentError, "axis 2 is outside"),
        (lambda: rg.tensordot(M, M, axes=((0, 0), (0, 0))), ShapeError, "each named once"),
        (lambda: rg.vecdot(M, M[:, :2]), ShapeError, "they must be equal"),
        (lambda: rg.vecdot(M, M[0], axis=-2), ArgumentError, "from -1 to -1"),
        (lambda: rg.linear(M, M), ShapeError, "w is stored as (out, in)"),
        (lambda: rg.diagonal(M[0]), ShapeError, "at least 2 axes"),
        (lambda: rg.diagonal(M, axis1=0, axis2=-2), ArgumentError, "the same axis"),
        (lambda: rg.diag(np.ones((2, 2, 2))), ShapeError, "a vector or a matrix"),
        (lambda: rg.tril(M[0]), ShapeError, "tril: needs at least 2 axes"),
        (lambda: rg.einsum(M, "ij"), ArgumentError, "the subscripts come first"),
        (lambda: rg.einsum("ij,jk", M), ArgumentError, "is for 2 operands; got 1"),
        (lambda: rg.einsum("ijk", M), ShapeError, "names 3 axes; x0 has 2"),
        (lambda: rg.einsum("i", M), ShapeError, "names 1 axes; x0 has 2"),
        (lambda: rg.einsum("i1", M), ArgumentError, "must be letters"),
        (lambda: rg.einsum("...i...", M), ArgumentError, "at most one '...'"),
        (lambda: rg.einsum("ij->k", M), ArgumentError, "must name axes of the operands"),
        (lambda: rg.einsum("ij->ii", M), ArgumentError, "each once"),
        (lambda: rg.einsum("...j->j", M), ArgumentError, "the result 'j' has not"),
        (lambda: rg.einsum("ij,jk", M, M), ShapeError, "'j' in 'ij,jk' has lengths"),
        (lambda: rg.einsum("ii", M), ShapeError, "'i' in 'ii' has lengths"),
        (lambda: rg.einsum("ii", M[:1]), ShapeError, "'i' in 'ii' has lengths"),
    ],
)
def test_refuses(f, error, sentence):
    with pytest.raises(error) as caught:
        f()
    assert sentence in str(caught.value)
