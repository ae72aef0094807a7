"""unite: kernels that run the same loops over what both read become one, at the earlier place.

Roots join kernels in program order, so what starts on one array does not join a kernel that
reads another; by what follows, the two may yet have the same rows to read.
"""

from __future__ import annotations

from typing import Any

from retrograd.jit.group import Group

__all__ = ["unite"]


def unite(fusion: Any, near: int, wide: int) -> None:
    """Move kernels of reductions into earlier ones, where all that they need comes before.

    At most `near` steps back, and where there are no more than `wide` roots then.
    """
    for at, late in enumerate(fusion.steps):
        if isinstance(late, Group) and late.frame[1] and not fusion.few(late.frame):
            home = _home(fusion, at, late, near, wide)
            if home is not None:
                fusion.place.update(dict.fromkeys(late.roots, home))
                fusion.steps[at] = None
    kept = [at for at, step in enumerate(fusion.steps) if step is not None]
    moved = {at: to for to, at in enumerate(kept)}
    fusion.steps = [fusion.steps[at] for at in kept]
    fusion.place = {v: moved[at] for v, at in fusion.place.items()}


def _home(fusion: Any, at: int, late: Group, near: int, wide: int) -> int | None:
    """The step that took a later kernel's roots."""
    assert late.built is not None
    needs = max((fusion.place[v] for v in late.built.reads if v in fusion.place), default=0)
    for to in range(at - 1, max(needs, at - near) - 1, -1):
        early = fusion.steps[to]
        if not isinstance(early, Group) or early.frame != late.frame or not early.built:
            continue
        if len(early.roots) + len(late.roots) > wide:
            continue
        shared = late.built.reads & (early.built.reads | set(early.roots))
        if not any(fusion.graph.specs[v].size > 1 for v in shared):
            continue
        if fusion.takes(early, late.frame, late.roots):
            return to
    return None
