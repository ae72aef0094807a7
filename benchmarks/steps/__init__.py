"""Training steps against PyTorch eager, torch.compile and jax.jit: time, first call, memory.

A step is loss, gradients and update of all weights, two threads for each library. Every library
runs in a process of its own; losses and gradients are first checked against PyTorch in float64.
Then all take turns, and the best of many steps counts. The first call is that of a fresh
process with an empty cache on disk; the warm one that of another process after it. Memory is
the most that a process holds during steps, beyond what one holds that has imported its library,
drawn numbers and run `x + 1`; weights and data are in it.

Row q is decided by memory alone, whose speed here changes by the minute, for both alike.
"""
