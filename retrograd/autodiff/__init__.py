"""Derivatives: the interpreters Tape, Forward and Batch, and the functions made of them."""

from retrograd.autodiff import derived as _derived  # noqa: F401 - each mode from the other
