"""Ops that have kernels of their own: what to write for each, instead of its composition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.attention_kernels import AttentionGradKernels, AttentionKernels
from retrograd.jit.llvm.causal_kernels import CausalBackKernels, CausalKernels
from retrograd.jit.llvm.cholesky_kernels import CholeskyGradKernels, CholeskyKernels
from retrograd.jit.llvm.conv_kernels import ConvKernels
from retrograd.jit.llvm.ctc_kernels import CtcBackKernels, CtcKernels
from retrograd.jit.llvm.fft_kernels import FourierKernels
from retrograd.jit.llvm.lu_cofactors import CofactorsKernels
from retrograd.jit.llvm.lu_determinant import DetKernels, SlogdetKernels
from retrograd.jit.llvm.lu_kernels import InvKernels, SolveKernels
from retrograd.jit.llvm.nearest_kernels import NearestKernels
from retrograd.jit.llvm.pair_sums import PairPullKernels, PairSumKernels
from retrograd.jit.llvm.pairs import PairsKernels
from retrograd.jit.llvm.pooling_kernels import PoolKernels, SpanKernels
from retrograd.jit.llvm.qr_kernels import QrKernels
from retrograd.jit.llvm.rank_kernels import RankKernels
from retrograd.jit.llvm.recurrent import RecurrentGradKernels, RecurrentKernels
from retrograd.jit.llvm.selective_kernels import ScanBackKernels, ScanKernels
from retrograd.jit.llvm.ssd_kernels import (
    DoubleBackKernels,
    DoubleKernels,
    SingleBackKernels,
    SingleKernels,
    SsdBackKernels,
    SsdKernels,
)
from retrograd.jit.llvm.topk_kernels import TopkKernels
from retrograd.jit.llvm.triangle_kernels import TriangleKernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.launches import Kernels

__all__ = ["KERNELS", "kernels_of"]

# By what an op says its kernels are (`Op.native`).
KERNELS: dict[str, type[Kernels]] = {
    "attention": AttentionKernels,
    "attention back": AttentionGradKernels,
    "causal convolution": CausalKernels,
    "causal convolution back": CausalBackKernels,
    "cholesky back": CholeskyGradKernels,
    "cholesky factor": CholeskyKernels,
    "convolution": ConvKernels,
    "ctc": CtcKernels,
    "ctc back": CtcBackKernels,
    "determinant": DetKernels,
    "double ssd": DoubleKernels,
    "double ssd back": DoubleBackKernels,
    "householder": QrKernels,
    "inverse": InvKernels,
    "largest few": TopkKernels,
    "minors": CofactorsKernels,
    "nearest points": NearestKernels,
    "pair sums": PairSumKernels,
    "pair sums back": PairPullKernels,
    "pairs within": PairsKernels,
    "pool": PoolKernels,
    "ranks": RankKernels,
    "recurrent": RecurrentKernels,
    "recurrent back": RecurrentGradKernels,
    "selective scan": ScanKernels,
    "selective scan back": ScanBackKernels,
    "signed logarithm of determinant": SlogdetKernels,
    "single ssd": SingleKernels,
    "single ssd back": SingleBackKernels,
    "span": SpanKernels,
    "ssd": SsdKernels,
    "ssd back": SsdBackKernels,
    "system": SolveKernels,
    "transform": FourierKernels,
    "triangle": TriangleKernels,
}


def kernels_of(op: Op, specs: Sequence[Spec]) -> type[Kernels] | None:
    """The kernels that an op on such operands is written as, if it has its own."""
    found = KERNELS.get(op.native)
    return found if found and found.takes(op, specs) else None
