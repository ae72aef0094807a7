"""Distances between points, as ops: `rg.distances` is the facade over these files."""
