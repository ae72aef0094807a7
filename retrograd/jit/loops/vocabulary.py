"""The functions of numbers that kernels may call: a target enters those that it has.

An op whose `lower` asks for another one runs on the host.
"""

from __future__ import annotations

__all__ = ["EXTREMA", "FUNCTIONS"]

EXTREMA = ("larger", "maximum", "minimum")  # functions that choose one of two numbers
FUNCTIONS: set[str] = set()
