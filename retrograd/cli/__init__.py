"""The command `retrograd`: what the package does from a terminal."""
