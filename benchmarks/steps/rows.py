"""All rows, by key."""

from __future__ import annotations

from benchmarks.steps import (
    cnn,
    conv1d,
    conv3d,
    elementwise,
    embedding,
    gp,
    hvp,
    mamba1,
    mamba2,
    mamba3,
    mlp,
    norms,
    optimizer,
    pairs,
    recurrent,
    transformer,
    umap,
)
from benchmarks.steps.row import Row

_FAMILIES = (
    *(mlp, cnn, transformer, recurrent, mamba1, mamba2, mamba3, pairs, umap, elementwise),
    *(embedding, norms, hvp, conv1d, conv3d, gp, optimizer),
)
ROWS: dict[str, Row] = {
    row.key: row for row in sorted((r for f in _FAMILIES for r in f.ROWS), key=lambda r: r.key)
}


def chosen(wanted: str) -> list[Row]:
    """Rows by their keys or their letters, such as "a,c1"; all unless told."""
    names = [n for n in wanted.split(",") if n]
    found = [r for k, r in ROWS.items() if not names or k in names or k[0] in names]
    known = {k[0] for k in ROWS} | set(ROWS)
    if missing := [n for n in names if n not in known]:
        raise SystemExit(f"no row {', '.join(missing)}; there are {', '.join(ROWS)}")
    return found
