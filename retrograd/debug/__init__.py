"""Looking inside: the first NaN, changed memory, silent promotion, the tape as a picture."""

from retrograd.core.dtype import strict_promotion
from retrograd.debug.aliasing import aliasing
from retrograd.debug.graph import graph
from retrograd.debug.nans import nans

__all__ = ["aliasing", "graph", "nans", "strict_promotion"]
