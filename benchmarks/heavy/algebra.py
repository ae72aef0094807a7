"""Linear algebra and Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "solve": "no factors are kept: the backward pass factors again",
    "inv": "the identity is solved for, also where it is 0",
    "determinant": "the gradient inverts, in float64, which factors again",
    "triangle": "the triangle is packed first",
    "cholesky": "the gradient solves by triangles, block by block",
    "qr": "a panel is reflected column by column; q is formed in full",
    "svd": "NumPy's OpenBLAS decomposes in up to 1.25 times the time of MKL",
    "values": "NumPy's OpenBLAS decomposes in more time than MKL",
    "exponential": "matrix products, by NumPy's OpenBLAS, and the calls between them",
    "small": "one matrix after the other, in panels of whole vectors",
    "fft": "complex gradients are conjugated at both ends of a pass: once more over memory",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    import torch

    draw = Draw(5)
    square = draw.normal(256, 256)
    near = np.eye(256, dtype=np.float32) + square / 50
    definite = square @ square.T / 256 + np.eye(256, dtype=np.float32)
    yield from _systems(draw, torch, near)
    yield from _factors(draw, torch, definite)
    yield from _spectra(draw, torch, square)
    yield from _waves(draw, torch)


def _systems(draw: Draw, torch: Any, near: Any) -> Iterator[Case]:
    ours, theirs, right = rg.linalg, torch.linalg, draw.normal(256, 64)
    yield Case("solve 256", "solve", ours.solve, theirs.solve, [near, right])
    yield Case("inv 256", "inv", ours.inv, theirs.inv, [near])
    yield Case("det 256", "determinant", ours.det, theirs.det, [near])
    yield Case(
        "slogdet 256",
        "determinant",
        lambda x: ours.slogdet(x)[1],
        lambda x: theirs.slogdet(x)[1],
        [near],
    )
    yield Case(
        "solve_triangular 256",
        "triangle",
        lambda x, y: ours.solve_triangular(x, y, lower=True),
        lambda x, y: theirs.solve_triangular(x, y, upper=False),
        [np.tril(near), right],
    )
    many = draw.normal(2000, 8, 8) / 8 + np.eye(8, dtype=np.float32)
    yield Case(
        "solve, batch 2000 of 8",
        "small",
        ours.solve,
        theirs.solve,
        [many, draw.normal(2000, 8, 4)],
    )
    yield Case("inv, batch 2000 of 8", "small", ours.inv, theirs.inv, [many])
    yield Case(
        "matrix_exp 128", "exponential", ours.matrix_exp, theirs.matrix_exp, [near[:128, :128]]
    )


def _factors(draw: Draw, torch: Any, definite: Any) -> Iterator[Case]:
    tall, right = draw.normal(512, 128), draw.normal(512, 16)
    # ours reads the Hermitian part, so its gradient is symmetric: so is this one's
    theirs = lambda x: torch.linalg.cholesky((x + x.T) / 2)  # noqa: E731
    yield Case("cholesky 256", "cholesky", rg.linalg.cholesky, theirs, [definite])

    def signed(x: Any) -> Any:
        """R's diagonal positive, as ours."""
        q, r = torch.linalg.qr(x)
        sign = r.detach().diagonal().sign()
        return q * sign, r * sign[:, None]

    yield Case("qr 512 x 128", "qr", rg.linalg.qr, signed, [tall])
    yield Case("lstsq 512 x 128, 16", "qr", rg.linalg.lstsq, _least(torch), [tall, right])
    yield Case("pinv 512 x 128", "svd", rg.linalg.pinv, torch.linalg.pinv, [tall])


def _least(torch: Any) -> Any:
    """By a QR factorization, which takes PyTorch a third of the time of its lstsq."""

    def f(a: Any, b: Any) -> Any:
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.T @ b, upper=True)

    return f


def _spectra(draw: Draw, torch: Any, square: Any) -> Iterator[Case]:
    yield Case("svdvals 256", "values", rg.linalg.svdvals, torch.linalg.svdvals, [square])
    left, right = (np.linalg.qr(draw.normal(256, 256))[0] for _ in "uv")
    apart = (left * np.linspace(1, 8, 256, dtype=np.float32)) @ right

    def polar(linalg: Any) -> Any:
        """U @ Vh, which does not depend on the signs of singular vectors."""

        def f(x: Any) -> Any:
            u, _, v = linalg.svd(x, full_matrices=False)
            return u @ v

        return f

    yield Case("svd 256, U @ Vh", "svd", polar(rg.linalg), polar(torch.linalg), [apart])

    def root(linalg: Any) -> Any:
        """The square root of a definite matrix."""

        def f(x: Any) -> Any:
            w, v = linalg.eigh((x + x.T) / 2)
            return (v * w**0.5) @ v.T

        return f

    even = (left * np.linspace(1, 8, 256, dtype=np.float32)) @ left.T
    yield Case("eigh 256, V sqrt(w) V'", "svd", root(rg.linalg), root(torch.linalg), [even])


def _waves(draw: Draw, torch: Any) -> Iterator[Case]:
    real, half, whole = draw.normal(256, 4096), draw.waves(256, 2049), draw.waves(16, 256, 256)
    yield Case("rfft 256 x 4096", "fft", rg.fft.rfft, torch.fft.rfft, [real])
    power = (lambda x, f=f: abs(f(x)) ** 2 for f in (rg.fft.rfft, torch.fft.rfft))
    yield Case("abs(rfft)**2, 256 x 4096", "fft", *power, [real])
    yield Case("irfft 256 x 4096", "fft", rg.fft.irfft, torch.fft.irfft, [half])
    yield Case("fft2 16x256x256", "fft", rg.fft.fft2, torch.fft.fft2, [whole])
