"""rg.random: random numbers as functions of a key, the same to the bit on every machine.

>>> import retrograd.random
>>> key = rg.random.key(0)
>>> for_weights, for_noise = rg.random.split(key)
>>> rg.random.normal(for_weights, (2, 3)).shape
(2, 3)

There is no hidden state: a key is a tensor, and a draw depends on its key and nothing else,
in eager code, under `vmap`, compiled, and when a checkpoint computes it again. A key is for one
use. `split` makes new keys of it, `fold_in` a new key of it and a number, such as a step's:

>>> same = rg.random.uniform(for_noise, 3) == rg.random.uniform(for_noise, 3)
>>> bool(rg.all(same))
True
>>> rows = rg.vmap(lambda k: rg.random.normal(k, 3))(rg.random.split(key, 5))
>>> rows.shape
(5, 3)

Draws are differentiable in the parameters of continuous laws:

>>> float(rg.grad(lambda s: rg.random.exponential(key, scale=s))(2.0)) > 0
True
"""

from retrograd.ops.random import (
    exponential,
    gumbel,
    normal,
    truncated_normal,
    uniform,
)
from retrograd.ops.random_discrete import (
    bernoulli,
    categorical,
    choice,
    permutation,
    poisson,
    randint,
    shuffle,
)
from retrograd.ops.random_gamma import beta, dirichlet, gamma
from retrograd.ops.random_keys import bits, fold_in, key, split

__all__ = [
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "shuffle",
    "split",
    "truncated_normal",
    "uniform",
]
