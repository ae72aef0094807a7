"""The functions of numbers that kernels may call: a target enters those that it has.

An op whose `lower` asks for another one runs on the host.
"""

from __future__ import annotations

__all__ = ["FUNCTIONS"]

FUNCTIONS: set[str] = set()
