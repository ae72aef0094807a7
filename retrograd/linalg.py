"""rg.linalg: the array API's linear algebra and what people use beside it.

Matrices are the last two axes; axes before them are a batch. All are differentiable, to any
order, in real and complex numbers:

>>> a = rg.asarray([[2.0, 1.0], [1.0, 3.0]])
>>> x = rg.linalg.solve(a, rg.asarray([1.0, 2.0]))
>>> bool(rg.allclose(a @ x, rg.asarray([1.0, 2.0])))
True
>>> slope = rg.grad(rg.linalg.det)(a)
>>> bool(rg.allclose(slope, rg.linalg.det(a) * rg.linalg.inv(a).mT))
True

Singular vectors and eigenvectors have length 1, and their largest component is real and
positive (in svd, that of U). What counts as Hermitian (`eigh`, `eigvalsh`, `cholesky`) is taken
as its Hermitian part, and so is its gradient. Singular matrices are refused where a result
or a derivative does not exist; `det` has both.
"""

from retrograd.ops.decompose.determinant import det, logdet, slogdet
from retrograd.ops.decompose.eigen import eig, eigh, eigvals, eigvalsh
from retrograd.ops.decompose.exponential import matrix_exp, matrix_power
from retrograd.ops.decompose.factor import cholesky, qr
from retrograd.ops.decompose.functions import cond, matrix_norm, matrix_rank, pinv
from retrograd.ops.decompose.products import cross, multi_dot
from retrograd.ops.decompose.solve import cholesky_solve, inv, lstsq, solve, solve_triangular
from retrograd.ops.decompose.svd import svd, svdvals
from retrograd.ops.diagonal import diagonal, trace
from retrograd.ops.linalg import matmul, matrix_transpose, outer, tensordot, vecdot
from retrograd.ops.norm import vector_norm

__all__ = [
    "cholesky",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "logdet",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
