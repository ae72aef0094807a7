"""The catalogue: each op in one block, in the file of its family.

Ops need each other across files, in cycles (a sum's transpose broadcasts, a broadcast's
transpose sums), so they import modules, not names: `from retrograd.ops import reduce`.
"""
