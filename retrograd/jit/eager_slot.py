"""Puts the kernels for heavy eager ops in their place; they are loaded when first asked.

RETROGRAD_EAGER_KERNELS    0: eager ops are NumPy's alone
"""

from __future__ import annotations

import os
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.executor import slot

__all__ = ["load", "register", "unload"]


def register() -> None:
    """Let the first heavy op load the kernels: programs without one never load LLVM."""
    slot.forward, slot.pull = _first_forward, _first_pull


def unload() -> None:
    """Leave eager ops to NumPy."""
    slot.forward = slot.pull = _nothing


def load() -> None:
    """The kernels themselves, unless the environment says no."""
    if not _wanted():
        unload()
        return
    from retrograd.jit.eager import EagerKernels  # noqa: PLC0415  it loads llvmlite

    kernels = EagerKernels()
    slot.forward, slot.pull = kernels.forward, kernels.pull


def _nothing(*_given: Any) -> None:
    """Nothing is taken."""


def _first_forward(*given: Any) -> Any:
    load()
    return slot.forward(*given)


def _first_pull(*given: Any) -> Any:
    load()
    return slot.pull(*given)


def _wanted() -> bool:
    told = os.environ.get("RETROGRAD_EAGER_KERNELS", "1").strip()
    if told not in ("0", "1"):
        raise ArgumentError(f"RETROGRAD_EAGER_KERNELS: it must be 0 or 1; got {told!r}")
    return told == "1"
