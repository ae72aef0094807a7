"""The compiler: from a traced program to machine code."""
