"""An op of your own, with all the rights of ours: pairwise Euclidean distances.

Written with ordinary ops, the distances between n and m points in d dimensions would keep an
array [n, m, d] for the backward pass. By hand, the points and the distances are enough.
"""

import numpy as np

import retrograd as rg


@rg.op
class PairwiseDistance(rg.Op):
    """out[i, j] = |x[i] - y[j]|. Where two points meet, the gradient is 0."""

    uniform = True  # x and y meet in one dtype
    takes = "floating"
    host = "an example: a kernel could follow"

    def shape(self, x: rg.Spec, y: rg.Spec) -> rg.Spec:
        """Spec in, spec out; refuses bad operands by name."""
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
            raise rg.ShapeError(
                f"pairwise_distance: x {x.shape} and y {y.shape} must be [n, d] and [m, d]"
            )
        return x.with_shape((x.shape[0], y.shape[0]))

    def forward(self, x, y) -> np.ndarray:
        """NumPy: the only place where it appears."""
        return np.linalg.norm(x[:, None] - y, axis=-1)

    def vjp_x(self, g, x, y, out) -> rg.Tensor:
        """For x alone: what is named here is kept, and only if x needs a gradient."""
        w = divided(g, out)
        return rg.sum(w, axis=1, keepdims=True) * x - w @ y

    def vjp_y(self, g, x, y, out) -> rg.Tensor:
        """For y alone. Forward mode follows from these two."""
        w = divided(g, out)
        return rg.sum(w, axis=0)[:, None] * y - w.mT @ x

    @staticmethod
    def samples(rng) -> object:
        """Valid inputs, away from kinks, for check_op and the like."""
        yield PairwiseDistance(), rng.normal(size=(4, 3)), rng.normal(size=(5, 3))


def divided(g, out) -> rg.Tensor:
    """g / out, and 0 where out is 0."""
    zero = out == 0
    return rg.where(zero, 0.0, g / rg.where(zero, 1.0, out))


def pairwise_distance(x, y) -> rg.Tensor:
    """The distances between the rows of x and the rows of y."""
    return rg.apply(PairwiseDistance(), x, y)


def main() -> None:
    """Check it, then use it tracked and untracked."""
    for op, *arrays in PairwiseDistance.samples(np.random.default_rng(0)):
        rg.testing.check_op(op, *arrays)  # shape, both modes, second order, vmap, what is kept
    print("check_op found nothing wrong")

    x, y = (rg.random.normal(k, (200, 50)) for k in rg.random.split(rg.random.key(0), 2))
    print("untracked:", pairwise_distance(x, y).requires_grad)  # nothing is kept

    leaf = rg.tensor(x, requires_grad=True)
    ours = rg.debug.graph(rg.sum(pairwise_distance(leaf, y)))
    plain = rg.debug.graph(rg.sum(rg.vector_norm(leaf[:, None] - y, axis=-1)))
    print(f"tracked:   keeps {ours.nbytes:>9,} bytes, the composition {plain.nbytes:>10,}")


if __name__ == "__main__":
    main()
