"""Times against peers, measured in one interleaved run; see benchmarks/README.md."""
