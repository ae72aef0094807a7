"""What every room speaks: values, ops, the seam. Imports NumPy and nothing of ours."""
