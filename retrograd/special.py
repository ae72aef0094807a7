"""rg.special: the functions of statistics and physics, all differentiable.

>>> float(rg.special.erf(0.0))
0.0
>>> bool(rg.grad(rg.special.lgamma)(3.0) == rg.special.digamma(3.0))
True
"""

from retrograd.ops.logarithmic import entr, expit, log_sigmoid, logit, xlog1py, xlogy
from retrograd.ops.special import (
    digamma,
    erf,
    erfc,
    erfinv,
    gammaln,
    lgamma,
    log_ndtr,
    ndtr,
    ndtri,
    polygamma,
)

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gammaln",
    "lgamma",
    "log_ndtr",
    "log_sigmoid",
    "logit",
    "ndtr",
    "ndtri",
    "polygamma",
    "xlog1py",
    "xlogy",
]
