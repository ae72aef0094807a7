"""Distances and their pull-back on arrays, tile by tile: NumPy, nothing else.

Squares of distances in few coordinates are sums of squared differences. In more they are
|x|² + |y|² - 2 x·y about a common centre, one product of matrices; that form cancels where
points are near, so pairs with d² < (|x|² + |y|²) / 16 are computed again by subtraction.
The relative error of d² is thus some 20 roundings at most, and d(x, x) is exactly 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ELEMENTS = 1 << 18  # of one tile: a few of them fit into the second-level cache
FEW = 4  # coordinates that are subtracted one by one as fast as a product of matrices
NEAR = 1 / 16
MANY = 1 / 8  # of a tile's pairs are near: then all are subtracted


def strips(rows: int, columns: int) -> list[slice]:
    """Slices of rows so that a strip of all columns is a tile."""
    step = max(1, ELEMENTS // max(columns, 1))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


class Centred:
    """Two sets of points about the middle of the second, and the squares of their lengths."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y
        middle = y.mean(0) if len(y) else 0
        self.a, self.b = x - middle, y - middle
        self.aa, self.bb = (np.einsum("ik,ik->i", t, t) for t in (self.a, self.b))
        self.most = self.bb.max(initial=0)
        self.finite = bool(np.isfinite(self.aa).all() and np.isfinite(self.bb).all())

    def near(self, rows: slice, tile: np.ndarray, *, root: bool) -> tuple[Any, Any]:
        """Rows and columns in a tile of (squared) distances whose squares may have cancelled.

        The bound by the longest y costs one comparison for each pair; then the few are
        looked at again.
        """
        aa = self.aa[rows]
        bound = NEAR * (aa + self.most)
        found = np.flatnonzero(tile < (np.sqrt(bound) if root else bound)[:, None])
        i, j = np.divmod(found, tile.shape[1])
        chosen = tile[i, j] ** 2 if root else tile[i, j]
        sure = chosen < NEAR * (aa[i] + self.bb[j])
        return i[sure], j[sure]


def squared(x: np.ndarray, y: np.ndarray, *, root: bool = False) -> np.ndarray:
    """|x_i - y_j|² of x (n, d) and y (m, d), or with `root` the distances themselves."""
    out = np.empty((len(x), len(y)), x.dtype)
    both = Centred(x, y) if x.shape[1] > FEW else None
    if both is None or not both.finite:
        columns = np.ascontiguousarray(y.T)
        for rows in strips(*out.shape):
            subtracted(x[rows], columns, out[rows])
            _ = np.sqrt(out[rows], out=out[rows]) if root else None
        return out
    one = np.ones((1, 1), x.dtype)
    left = np.concatenate([both.a * -2, both.aa[:, None], one.repeat(len(x), 0)], 1)
    right = np.concatenate([both.b.T, one.repeat(len(y), 1), both.bb[None]], 0)
    columns = np.ascontiguousarray(y.T)
    for rows in strips(*out.shape):
        tile = out[rows]
        np.matmul(left[rows], right, out=tile)
        i, j = both.near(rows, tile, root=False)
        if len(i) > MANY * tile.size:
            subtracted(x[rows], columns, tile)
        elif len(i):
            apart = x[rows][i] - y[j]
            tile[i, j] = np.einsum("pk,pk->p", apart, apart)
        if root:
            np.sqrt(tile, out=tile)
    return out


def subtracted(x: np.ndarray, columns: np.ndarray, out: np.ndarray) -> None:
    """Sums of squared differences of x (n, d) and the columns of (d, m), into `out`."""
    out[...] = 0
    apart = np.empty_like(out)
    for k in range(x.shape[1]):
        np.subtract(x[:, k, None], columns[k], out=apart)
        apart *= apart
        out += apart


def crossed(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(x_i - y_j) · (a_i - b_j), by subtraction."""
    out = np.zeros((len(x), len(y)), x.dtype)
    for rows in strips(*out.shape):
        for k in range(x.shape[1]):
            out[rows] += (x[rows, k, None] - y[:, k]) * (a[rows, k, None] - b[:, k])
    return out


def pulled(
    g: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of w (x_i - y_j) over j, and of its negative over i.

    w is 2 g for squares (out is None), g / out for distances, and 0 where out is 0. In many
    coordinates the sums are products of matrices, but for near pairs when `out` tells them.
    """
    gx, gy = np.zeros_like(x), np.zeros_like(y)
    both = Centred(x, y) if x.shape[1] > FEW else None
    matrices = both is not None and both.finite
    if matrices:
        assert both is not None
        a, b = (np.concatenate([t, np.ones_like(t[:, :1])], 1) for t in (both.a, both.b))
    for rows in strips(*g.shape):
        w = g[rows] * 2 if out is None else weights(g[rows], out[rows])
        if not matrices:
            _add_differences(w, x[rows], y, gx[rows], gy)
            continue
        assert both is not None
        if out is not None:
            i, j = both.near(rows, out[rows], root=True)
            if len(i) > MANY * w.size:
                _add_differences(w, x[rows], y, gx[rows], gy)
                continue
            apart = (x[rows][i] - y[j]) * w[i, j][:, None]
            np.add.at(gx[rows], i, apart)
            np.subtract.at(gy, j, apart)
            w[i, j] = 0
        sums = w @ b
        gx[rows] += both.a[rows] * sums[:, -1:] - sums[:, :-1]
        sums = w.T @ a[rows]
        gy += both.b * sums[:, -1:] - sums[:, :-1]
    return gx, gy


def weights(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """g / out, and 0 where out is 0."""
    w = g / out
    zero = out == 0
    if zero.any():
        w[zero] = 0
    return w


def _add_differences(w: Any, x: Any, y: Any, gx: Any, gy: Any) -> None:
    for k in range(x.shape[1]):
        apart = x[:, k, None] - y[:, k]
        apart *= w
        gx[:, k] += apart.sum(1)
        gy[:, k] -= apart.sum(0)


# -- coordinate by coordinate: manhattan, minkowski, chebyshev --------------------------------


def powered(t: np.ndarray, p: float) -> np.ndarray:
    """t ** p of t >= 0; whole powers by multiplication, which is faster by far."""
    if p > 8 or p != int(p) or p < 1:
        return t**p
    out = t
    for _ in range(int(p) - 1):
        out = out * t
    return out


def coordinatewise(x: np.ndarray, y: np.ndarray, metric: str, p: float) -> np.ndarray:
    """The distances of x (n, d) and y (m, d) by a metric of single coordinates."""
    out = np.zeros((len(x), len(y)), x.dtype)
    columns = np.ascontiguousarray(y.T)
    for rows in strips(*out.shape):
        tile = out[rows]
        for k in range(x.shape[1]):
            apart = np.abs(x[rows, k, None] - columns[k])
            if metric == "chebyshev":
                np.maximum(tile, apart, out=tile)
            else:
                tile += apart if metric == "manhattan" else powered(apart, p)
        if metric == "minkowski":
            tile[...] = tile ** (1 / p)
    return out


def coordinates_pulled(
    g: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray, metric: str, p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of g times the slope in x_i of each distance over j, and its negative over i."""
    gx, gy = np.zeros_like(x), np.zeros_like(y)
    columns = np.ascontiguousarray(y.T)
    for rows in strips(*g.shape):
        scale, tile = g[rows], out[rows]
        if metric == "chebyshev":
            scale = scale / _ties(x[rows], columns, tile)
        for k in range(x.shape[1]):
            apart = x[rows, k, None] - columns[k]
            if metric == "minkowski":
                slope = np.copysign(powered(weights(np.abs(apart), tile), p - 1), apart)
            else:
                slope = np.sign(apart)
            if metric == "chebyshev":
                slope *= np.abs(apart) == tile
            slope *= scale
            gx[rows, k] += slope.sum(1)
            gy[:, k] -= slope.sum(0)
    return gx, gy


def _ties(x: np.ndarray, columns: np.ndarray, out: np.ndarray) -> np.ndarray:
    """How many coordinates of each pair are as far apart as the farthest."""
    count = np.zeros_like(out)
    for k in range(x.shape[1]):
        count += np.abs(x[:, k, None] - columns[k]) == out
    return np.maximum(count, 1, out=count)  # none, where `out` was not asked for
