"""rg.distances: points against points, with gradients that are finite everywhere.

>>> rg.distances.cdist([[0.0, 0.0]], [[3.0, 4.0]]).tolist()
[[5.0]]
"""

from retrograd.control.pairs import pair_reduce
from retrograd.ops.distances.condensed import pdist
from retrograd.ops.distances.neighbours import knn
from retrograd.ops.distances.pairwise import cdist

__all__ = ["cdist", "knn", "pair_reduce", "pdist"]
