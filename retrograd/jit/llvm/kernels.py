"""Ops that have kernels of their own: what to write for each, instead of its composition.

A program needs few of them, and to load all takes longer than to compile a small one: each is
loaded when an op asks for it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.launches import Kernels

__all__ = ["KERNELS", "kernels_of"]

# By what an op says its kernels are (`Op.native`): the module and the class.
KERNELS = {
    "attention": ("attention_kernels", "AttentionKernels"),
    "attention back": ("attention_kernels", "AttentionGradKernels"),
    "causal convolution": ("causal_kernels", "CausalKernels"),
    "causal convolution back": ("causal_kernels", "CausalBackKernels"),
    "cholesky back": ("cholesky_kernels", "CholeskyGradKernels"),
    "cholesky factor": ("cholesky_kernels", "CholeskyKernels"),
    "convolution": ("conv_kernels", "ConvKernels"),
    "ctc": ("ctc_kernels", "CtcKernels"),
    "ctc back": ("ctc_kernels", "CtcBackKernels"),
    "determinant": ("lu_determinant", "DetKernels"),
    "double ssd": ("ssd_kernels", "DoubleKernels"),
    "double ssd back": ("ssd_kernels", "DoubleBackKernels"),
    "eigenvalues": ("eigen_kernels", "EigvalshKernels"),
    "eigenvectors": ("eigen_kernels", "EighKernels"),
    "householder": ("qr_kernels", "QrKernels"),
    "inverse": ("lu_kernels", "InvKernels"),
    "largest few": ("topk_kernels", "TopkKernels"),
    "minors": ("lu_cofactors", "CofactorsKernels"),
    "nearest points": ("nearest_kernels", "NearestKernels"),
    "pair sums": ("pair_sums", "PairSumKernels"),
    "pair sums back": ("pair_sums", "PairPullKernels"),
    "pairs within": ("pairs", "PairsKernels"),
    "pool": ("pooling_kernels", "PoolKernels"),
    "ranks": ("rank_kernels", "RankKernels"),
    "recurrent": ("recurrent", "RecurrentKernels"),
    "recurrent back": ("recurrent", "RecurrentGradKernels"),
    "row sums": ("row_sums", "RowSumKernels"),
    "selective scan": ("selective_kernels", "ScanKernels"),
    "selective scan back": ("selective_kernels", "ScanBackKernels"),
    "signed logarithm of determinant": ("lu_determinant", "SlogdetKernels"),
    "single ssd": ("ssd_kernels", "SingleKernels"),
    "single ssd back": ("ssd_kernels", "SingleBackKernels"),
    "span": ("pooling_kernels", "SpanKernels"),
    "ssd": ("ssd_kernels", "SsdKernels"),
    "ssd back": ("ssd_kernels", "SsdBackKernels"),
    "system": ("lu_kernels", "SolveKernels"),
    "transform": ("fft_kernels", "FourierKernels"),
    "triangle": ("triangle_kernels", "TriangleKernels"),
}


def kernels_of(op: Op, specs: Sequence[Spec]) -> type[Kernels] | None:
    """The kernels that an op on such operands is written as, if it has its own."""
    if op.native not in KERNELS:
        return None
    found = _loaded(op.native)
    return found if found.takes(op, specs) else None


@lru_cache
def _loaded(native: str) -> type[Kernels]:
    module, name = KERNELS[native]
    return getattr(import_module(f"retrograd.jit.llvm.{module}"), name)
