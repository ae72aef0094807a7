"""Recurrences and state-space models, as ops: `rg.ssm` is the facade over these files."""
