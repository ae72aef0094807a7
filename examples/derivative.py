"""Derivatives of a plain function, each next to a finite difference."""

import numpy as np

import retrograd as rg


def f(x) -> rg.Tensor:
    """Any program: branches, loops, several uses of x."""
    y = x
    for power in range(1, 4):
        y = rg.sin(y) * x if power % 2 else y + rg.exp(-(x**2))
    return rg.sum(y * y)


def difference(g, x, direction, eps=1e-5) -> float:
    """The slope of g at x along a direction, from two values."""
    ahead, back = g(x + eps * direction), g(x - eps * direction)
    return float(ahead - back) / (2 * eps)


def show(what, ours, theirs) -> None:
    """Both numbers, and a complaint if they differ."""
    print(f"{what:<22}{ours:>16.10f}{theirs:>16.10f}")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def main() -> None:
    """First, second and third derivatives along one direction."""
    keys = rg.random.split(rg.random.key(0), 2)
    x, t = (rg.random.normal(key, (5,), dtype=rg.float64) for key in keys)
    print(f"{'along one direction':<22}{'retrograd':>16}{'differences':>16}")

    first = rg.grad(f)
    show("reverse mode", float(rg.sum(first(x) * t)), difference(f, x, t))
    show("forward mode", float(rg.jvp(f, (x,), (t,))[1]), difference(f, x, t))

    def slope(x):  # the derivative along t, itself a function
        return rg.sum(first(x) * t)

    show("second derivative", float(rg.sum(rg.grad(slope)(x) * t)), difference(slope, x, t))

    def bend(x):
        return rg.sum(rg.hvp(f, (x,), (t,)) * t)

    show("third derivative", float(rg.sum(rg.grad(bend)(x) * t)), difference(bend, x, t))

    # The tape face: the same rules, gradients left on the tensors.
    leaf = rg.tensor(x, requires_grad=True)
    f(leaf).backward()
    print("backward() agrees with grad:", bool(rg.all(leaf.grad == first(x))))

    # A whole Jacobian, and the gradient of many examples at once.
    hessian = rg.hessian(f)(x)
    print("the Hessian is symmetric:   ", bool(rg.allclose(hessian, hessian.T)))
    rows = rg.random.normal(rg.random.key(1), (4, 5), dtype=rg.float64)
    each = rg.stack([first(row) for row in rows])
    print("vmap(grad) equals a loop:   ", bool(rg.allclose(rg.vmap(first)(rows), each)))


if __name__ == "__main__":
    main()
