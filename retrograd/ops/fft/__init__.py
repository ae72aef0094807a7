"""Fourier transforms, as ops: `rg.fft` is the facade over these files."""
