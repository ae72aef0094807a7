"""Linear algebra: solving, factorizations, functions and norms of matrices; see rg.linalg."""
