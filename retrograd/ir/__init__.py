"""Programs as data: Graph, the Trace interpreter that makes one, and what reads it."""
