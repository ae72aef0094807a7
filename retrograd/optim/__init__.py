"""rg.optim: optimizers as frozen values, whose steps are functions on trees.

>>> optimizer = rg.optim.AdamW(rg.optim.cosine(1e-3, 1000, warmup=100), clip=1.0)
>>> model = rg.nn.Linear(3, 2, key=rg.random.key(0))
>>> state = optimizer.init(model)
>>> grads = rg.grad(lambda model: rg.sum(model(rg.ones(3))))(model)
>>> model, state = optimizer.step(model, grads, state)
>>> state["step"]
tensor(1)
"""

from retrograd.ops.nn.clip import clip_global_norm, clip_values, global_norm
from retrograd.optim.adam import Adam, AdamW
from retrograd.optim.base import Optimizer
from retrograd.optim.schedule import constant, cosine, linear
from retrograd.optim.sgd import SGD

__all__ = [
    "Adam",
    "AdamW",
    "Optimizer",
    "SGD",
    "clip_global_norm",
    "clip_values",
    "constant",
    "cosine",
    "global_norm",
    "linear",
]
