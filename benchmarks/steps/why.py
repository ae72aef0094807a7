"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "c2": "In a profile of one first call, on a busy machine, a little more than half of what "
    "is not the run was LLVM writing code, a third our writing it, the rest fusion. Which "
    "kernels take most of it was not measured.",
    "f2": "The step itself takes 0.61 s of it; the 0.15 s beyond are tracing and loading.",
    "q": "Weights, gradients and both moments are 381.5 MB for everybody. Where the 7 MB "
    "beyond are was not looked into.",
}
