"""rg.special: the functions of statistics and physics, all differentiable.

>>> float(rg.special.erf(0.0))
0.0
>>> bool(rg.grad(rg.special.lgamma)(3.0) == rg.special.digamma(3.0))
True
"""

from retrograd.ops.bessel import i0, i0e, i1, i1e, j0, j1
from retrograd.ops.incomplete import beta, betainc, betaln, gammainc, gammaincc, zeta
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
    "beta",
    "betainc",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "lgamma",
    "log_ndtr",
    "log_sigmoid",
    "logit",
    "ndtr",
    "ndtri",
    "polygamma",
    "xlog1py",
    "xlogy",
    "zeta",
]
