"""What whoever calls a kernel must know."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KernelInfo"]


class KernelInfo(NamedTuple):
    """A kernel that was written: its function, its chunks, what it needs and what it does."""

    name: str
    chunks: int
    scratch: int = 0  # bytes for each thread
    flops: int = 0
    bytes: int = 0  # read and written
