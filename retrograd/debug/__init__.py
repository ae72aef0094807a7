"""Looking inside: printing and checking in programs, the first NaN, memory, the tape drawn."""

from retrograd.core.dtype import strict_promotion
from retrograd.debug.aliasing import aliasing
from retrograd.debug.effects import check, print
from retrograd.debug.graph import graph
from retrograd.debug.nans import nans

__all__ = ["aliasing", "check", "graph", "nans", "print", "strict_promotion"]
