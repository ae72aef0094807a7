"""Numbers that must lie in a range: refused when they are known, or while a program runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, op
from retrograd.core.tensor import Box, Tensor

__all__ = ["known", "within"]


@op
class Within(Elementwise):
    """x, refused where it is below `least`, or with `above` where it is not above it."""

    said: str
    least: float
    above: bool = False
    takes = "real"

    def good(self, x: Any) -> Any:
        """Which numbers are taken."""
        return x > self.least if self.above else ~(x < self.least)

    def forward(self, x):
        good = self.good(x)
        if not np.all(good):
            raise ArgumentError(f"{self.said}; got {x[~good].flat[0]}")
        return x

    def slope(self):
        return 1

    def lower(self, k, x):
        return k.required(x, self.good(x), self.said)

    @staticmethod
    def samples(rng):
        yield Within("x must be 0 or more", 0.0), rng.uniform(0, 1, (2, 3))
        yield Within("x must be above 1", 1.0, above=True), np.array([2.5, 7.0])

    @staticmethod
    def refuses(rng):
        yield Within("x must be 0 or more", 0.0), np.array([1.0, -2.0]), "0 or more; got -2.0"
        yield Within("x must be above 0", 0.0, above=True), np.zeros(1), "above 0; got 0.0"


def known(value: Any) -> np.ndarray | None:
    """What is in a parameter, under whatever transforms; None while it is traced."""
    while isinstance(value, Box):
        value = value.value
    if isinstance(value, Tensor):
        return value.array
    return None if value is None else np.asarray(value)


def within(who: str, name: str, value: Any, least: float = 0.0, *, above: bool = False) -> Any:
    """The value, refused where it is below `least` (or not above it), now or as it runs."""
    rule = f"above {least:g}" if above else f"{least:g} or more"
    check = Within(f"{who}: {name} must be {rule}", least, above)
    found = known(value)
    if found is None:
        return apply(check, value)
    check.forward(found)
    return value
