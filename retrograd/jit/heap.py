"""Memory that was freed, back to the system: a compiler frees megabytes, malloc keeps them."""

from __future__ import annotations

import ctypes

__all__ = ["give_back"]


def give_back() -> None:
    """Let the system have what nobody uses; a program that was compiled should leave none."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not glibc
        return
