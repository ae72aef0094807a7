"""rg.nn: what networks are made of, as functions.

>>> x = rg.asarray([[1.0, -2.0, 0.5]])
>>> rg.nn.relu(x)
tensor([[1. , 0. , 0.5]])
>>> float(rg.nn.cross_entropy(x, rg.asarray([0]))) > 0
True
"""
