"""What networks are made of, as ops: `rg.nn` is the facade over these files."""
