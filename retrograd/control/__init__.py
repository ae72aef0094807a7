"""Loops as ops: what they hold is a Graph, so that they stay small when compiled."""
