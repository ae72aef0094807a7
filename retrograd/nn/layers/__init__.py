"""Layers by family: modules that hold the weights of the functions of rg.nn."""
