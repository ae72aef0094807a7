"""The LLVM target: kernels as LLVM IR text, compiled by llvmlite, run on a pool of threads."""
