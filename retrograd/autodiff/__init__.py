"""Derivatives: the interpreters Tape, Forward and Batch, and the functions made of them."""
