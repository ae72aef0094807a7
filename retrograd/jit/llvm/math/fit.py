"""Make coefficients.py and constants.py, polynomials and split numbers, with decimals.

    python -m retrograd.jit.llvm.math.fit

Each polynomial interpolates its function at Chebyshev nodes, in arithmetic of 60 digits, which
comes within a small factor of the best polynomial of that degree (if its error counts times a
power of x, at the outer ones of more nodes). The degree is the least
whose error stays below what the goal asks, on a grid between the nodes. Coefficients are
rounded last; the leading terms, where rounding would show, are not in the polynomials but
exact in the formulas (exp: 1 + r + r**2 * EXP(r)).
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, getcontext, localcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["texts"]

DIGITS = 60
D = Decimal
# Error of each polynomial, relative to what it approximates, times its share in the result.
GOALS = {"f32": 2.0**-28, "wide": 2.0**-31, "f64": 2.0**-59}


def _series(z: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """1 + t1 + t2 + ..., where t(n) = t(n - 1) * z * ratio(n)."""
    total, term, n = D(1), D(1), 0
    while abs(term) > D(10) ** -(getcontext().prec + 5):
        n += 1
        term *= z * ratio(n)
        total += term
    return total


def atan(x: Decimal) -> Decimal:
    """The arc tangent, by halving the angle first."""
    for _ in range(3):
        x = x / (1 + (1 + x * x).sqrt())
    z = x * x / (1 + x * x)
    return 8 * x / (1 + x * x) * _series(z, lambda n: D(2 * n) / (2 * n + 1))


def atanh(x: Decimal) -> Decimal:
    """The inverse hyperbolic tangent."""
    return ((1 + x) / (1 - x)).ln() / 2


def asin(x: Decimal) -> Decimal:
    """The arc sine."""
    return atan(x / (1 - x * x).sqrt())


def sinc(z: Decimal) -> Decimal:
    """sin(r) / r of z = r**2."""
    return _series(-z, lambda n: D(1) / (2 * n * (2 * n + 1)))


def cosine(z: Decimal) -> Decimal:
    """cos(r) of z = r**2."""
    return _series(-z, lambda n: D(1) / (2 * n * (2 * n - 1)))


def erf_ratio(z: Decimal) -> Decimal:
    """erf(x) / x of z = x**2."""
    series = _series(2 * z, lambda n: D(1) / (2 * n + 1))
    return 2 / pi().sqrt() * (-z).exp() * series


def erfcx(x: Decimal) -> Decimal:
    """exp(x**2) erfc(x) for x > 0.4, by its continued fraction from the end."""
    terms = 20 + int((75 / float(x)) ** 2 / 2)
    tail = x
    for n in range(terms, 0, -1):
        tail = x + D(n) / 2 / tail
    return 1 / (tail * pi().sqrt())


def pi() -> Decimal:
    """Pi."""
    return 4 * atan(D(1))


def nodes(low: Decimal, high: Decimal, count: int, spared: int = 0) -> list[Decimal]:
    """Chebyshev's, but for some next to the middle: what is 0 there by itself needs none."""
    more = count + spared
    cosines = [D(math.cos((2 * i + 1) * math.pi / (2 * more))) for i in range(more)]
    middle = spared % 2 == 1  # that one among them; else as many on either side
    inner = sorted((c for c in cosines if middle or abs(c) > 1e-9), key=abs)[:spared]
    cosines = [c for c in cosines if c not in inner]
    return [(low + high) / 2 + (high - low) / 2 * c for c in cosines]


def interpolate(f: Callable[[Decimal], Decimal], points: list[Decimal]) -> list[Decimal]:
    """Coefficients of the polynomial through f at the points, by divided differences."""
    heights = [f(p) for p in points]
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            step = points[i] - points[i - level]
            heights[i] = (heights[i] - heights[i - 1]) / step
    found = [heights[-1]]
    for point, height in zip(reversed(points[:-1]), reversed(heights[:-1]), strict=True):
        shifted = [D(0), *found]
        found = [a - point * b for a, b in zip(shifted, [*found, D(0)], strict=True)]
        found[0] += height
    return found


class Target(NamedTuple):
    """What is approximated, where, for which goals; how much its error counts."""

    f: Callable[[Decimal], Decimal]
    low: Decimal
    high: Decimal
    goals: str
    share: Callable[[Decimal], Decimal] = lambda x: D(1)
    slack: float = 1.0
    spared: int = 0  # nodes next to 0

    def fit(self, goal: str) -> tuple[float, ...]:
        """Coefficients of the least degree that is good enough."""
        wanted = D(GOALS[goal] * self.slack)
        grid = [self.low + (self.high - self.low) * D(i) / 100 for i in range(101)]
        known = [(x, self.f(x), self.share(x)) for x in grid if x != 0]
        for count in range(2, 40):
            c = interpolate(self.f, nodes(self.low, self.high, count, self.spared))
            error = max(abs(value(c, x) - y) * s for x, y, s in known)
            if error < wanted:
                kind = np.float32 if goal == "f32" else np.float64
                return tuple(float(kind(float(a))) for a in c)
        raise ValueError("no polynomial is good enough")


def value(c: list[Decimal], x: Decimal) -> Decimal:
    """A polynomial at x."""
    y = D(0)
    for a in reversed(c):
        y = y * x + a
    return y


def powers() -> dict[str, Target]:
    """Polynomials of exp, by the name of their table."""
    half = D(2).ln() / 2 * (1 + D(2) ** -16)  # a little more: n is rounded, too

    def rest(r: Decimal) -> Decimal:
        return (r.exp() - 1 - r) / r**2

    return {
        # exp(r) = 1 + r + r**2 EXP(r); alone, the error counts beside 1 and not beside r
        "EXP": Target(rest, -half, half, "f32 wide f64", abs),
        "EXP_ALONE": Target(rest, -half, half, "f32 wide f64", lambda r: r * r, 2.0, 2),
        # the same between neighbours of SIXTEENTHS
        "EXP_NEAR": Target(rest, -half / 16, half / 16, "f32", lambda r: r * r, 2.0, 2),
        # exp(r) = 1 + r EXP_NEARER(r) between neighbours of THIRTY_SECONDS
        "EXP_NEARER": Target(
            lambda r: (r.exp() - 1) / r, -half / 32, half / 32, "f32", abs, 16.0, 1
        ),
    }


def hyperbolic() -> dict[str, Target]:
    """Polynomials of log and the kin of exp, by the name of their table."""
    root = D(2).sqrt()
    low, high = root / 2 - 1 - D(2) ** -20, root - 1 + D(2) ** -20
    z = ((root - 1) / (root + 1)) ** 2 * (1 + D(2) ** -16)
    s = D.sqrt
    return {
        # log(1 + f) = f - f**2 / 2 + f**3 LOG(f)
        "LOG": Target(
            lambda f: ((1 + f).ln() - f + f * f / 2) / f**3,
            low,
            high,
            "f32",
            lambda f: f * f,
            2.0,
        ),
        # atanh(s) = s + s z (1/3 + z ATANH(z)) with z = s**2
        "ATANH": Target(
            lambda t: (atanh(s(t)) / s(t) - 1 - t / 3) / t**2,
            D(0),
            z,
            "wide f64",
            lambda t: t * t,
            2.0**-8,  # pow multiplies its logarithm by up to 1075
        ),
        # sinh(x) = x + x z SINH(z) with z = x**2, up to 1
        "SINH": Target(
            lambda t: ((s(t).exp() - (-s(t)).exp()) / 2 / s(t) - 1) / t, D(0), D(1), "wide f64"
        ),
    }


def circular() -> dict[str, Target]:
    """Polynomials of angles, of the normal distribution and of roots."""
    quarter = (pi() / 4 * (1 + D(2) ** -16)) ** 2
    eighth = (D(2).sqrt() - 1) ** 2 * (1 + D(2) ** -16)
    s = D.sqrt
    return {
        # sin(r) = r + r z SIN(z), cos(r) = 1 - z / 2 + z**2 COS(z), up to pi / 4
        "SIN": Target(lambda t: (sinc(t) - 1) / t, D(0), quarter, "wide f64"),
        "COS": Target(lambda t: (cosine(t) - 1 + t / 2) / t**2, D(0), quarter, "wide f64"),
        # sin(r) = r (1 + z SIN_LONG(z)), up to pi / 2
        "SIN_LONG": Target(
            lambda t: (sinc(t) - 1) / t, D(0), 4 * quarter, "wide", lambda t: t / sinc(t)
        ),
        # asin(x) = x + x z ASIN(z), up to 1/2
        "ASIN": Target(lambda t: (asin(s(t)) / s(t) - 1) / t, D(0), D("0.25"), "wide f64"),
        # atan(x) = x + x z ATAN(z), up to tan(pi / 8)
        "ATAN": Target(lambda t: (atan(s(t)) / s(t) - 1) / t, D(0), eighth, "wide f64"),
        # erf(x) = x + x ERF(z), up to 1
        "ERF": Target(lambda t: erf_ratio(t) - 1, D(0), D(1), "f32 wide f64"),
        # erfc(x) = exp(-x**2) ERFC(y) / (1 + 2 x) with y = (x - 4) / (x + 4), from 1/2
        "ERFC": Target(_erfc_scaled, D(-7) / 9, D(24) / 32, "wide f64"),
        # erfc(x) = exp(-ERFC_LOG(x)), from 0.9 to 4, where erf in float32 is 1 - erfc
        "ERFC_LOG": Target(
            lambda x: x * x - erfcx(x).ln(),
            D("0.9"),
            D(4),
            "f32",
            lambda x: (-x * x).exp() * erfcx(x),
            2.0,
        ),
        # cbrt(m), m from 1 to 2; in float64 a first guess of 24 bits
        "CBRT": Target(lambda m: (m.ln() / 3).exp(), D(1), D(2), "wide"),
        "CBRT_GUESS": Target(lambda m: (m.ln() / 3).exp(), D(1), D(2), "f64", slack=2.0**34),
    }


def _erfc_scaled(y: Decimal) -> Decimal:
    x = 4 * (1 + y) / (1 - y)
    return erfcx(x) * (1 + 2 * x)


def split(x: Decimal, *widths: int) -> tuple[float, ...]:
    """x as a sum of floats: all but the last have at most so many bits."""
    parts = []
    for width in widths:
        exponent = math.frexp(float(x))[1]
        part = float(math.floor(x * D(2) ** (width - exponent))) * 2.0 ** (exponent - width)
        parts.append(part)
        x -= D(part)
    return (*parts, float(x))


def constants() -> dict[str, object]:
    """What formulas need to more digits than a float has, by name."""
    two, ten = D(2).ln(), D(10).ln()
    words = int(2 / pi() * D(2) ** 1280)
    near, lost = zip(*(_single(two * j / 16) for j in range(16)), strict=True)
    more, alone = _sixteenths()
    return {
        # a multiple of the first part by a whole exponent is exact, with and without fma
        "LN2_PARTS": {"f32": split(two, 16), "wide": split(two, 41), "f64": split(two, 41)},
        "LN2_PAIR": {"f32": split(two, 24), "wide": split(two, 53), "f64": split(two, 53)},
        # 2 ** (j / 16), and what share of it a float32 lacks
        "SIXTEENTHS": near,
        "SIXTEENTHS_LOST": lost,
        # 2 ** (j / 16) over 1 + SIXTEENTHS_MORE, which lacks little
        "SIXTEENTHS_ALONE": alone,
        "SIXTEENTHS_MORE": more,
        # 2 ** (j / 32); and log 2, to which a float32 is nearer than it might be
        "THIRTY_SECONDS": tuple(_single(two * j / 32)[0] for j in range(32)),
        "LN2_NEAR": _single(two.ln())[0],
        "LOG10_2_PAIR": split(two / ten, 53),
        "TWO_OVER_LN2_PAIR": split(2 / two, 53),
        "THIRD_PAIR": split(D(1) / 3, 53),
        "HALF_PI_PAIR": split(pi() / 2, 53),
        # multiples by 20 bits are exact
        "HALF_PI_PARTS": split(pi() / 2, 33, 33, 33),
        "TWO_OVER_PI": float(2 / pi()),
        # 2 / pi in 1280 bits, least word first, and room above
        "TWO_OVER_PI_WORDS": tuple(words >> 64 * i & (1 << 64) - 1 for i in range(24)),
    }


def _single(x: Decimal) -> tuple[float, float]:
    """exp(x) as the nearest float32, and how much there is besides, as a share of it."""
    near = float(np.float32(float(x.exp())))
    return near, float(np.float32(float(x.exp() / D(near) - 1)))


def _sixteenths() -> tuple[float, tuple[float, ...]]:
    """A small number c such that all 2 ** (j / 16) / (1 + c) are nearly float32, and those.

    By chance: of a quarter of a million c one leaves a quarter of an ulp.
    """
    powers = np.exp2(np.arange(16) / 16)
    more = np.arange(-(1 << 17), 1 << 17)[:, None] * 2.0**-24
    near = (powers / (1 + more)).astype(np.float32).astype(np.float64)
    error = np.abs(near * (1 + more) - powers)
    error[:, 0] *= 2  # half of its results are below 1, where an ulp is half as much
    best = error.max(axis=1).argmin()
    return float(more[best, 0]), tuple(near[best].tolist())


def texts() -> dict[str, str]:
    """The modules that are made, by the names of their files."""
    with localcontext() as context:
        context.prec = DIGITS
        targets = powers() | hyperbolic() | circular()
        tables = {n: {g: t.fit(g) for g in t.goals.split()} for n, t in targets.items()}
        context.prec = 450
        rest = constants()
    return {"coefficients.py": _module(tables), "constants.py": _module(rest)}


def _module(entries: Mapping[str, object]) -> str:
    lines = ['"""Made by fit.py, which says what each is; do not edit."""', "", "__all__ = ["]
    lines += [f'    "{n}",' for n in sorted(entries)] + ["]", ""]
    for name, entry in entries.items():
        lines += _literal(f"{name} = ", entry, "")
    return "\n".join(lines) + "\n"


def _literal(head: str, entry: object, margin: str) -> list[str]:
    """Lines of source, as the formatter would have them."""
    end = "," if margin else ""
    if isinstance(entry, dict):
        inner = [line for k, v in entry.items() for line in _literal(f'"{k}": ', v, "    ")]
        return [f"{margin}{head}{{", *inner, f"{margin}}}{end}"]
    if isinstance(entry, tuple):
        flat = f"{margin}{head}({', '.join(map(repr, entry))}){end}"
        if len(flat) <= 96:
            return [flat]
        return [f"{margin}{head}(", *(f"{margin}    {v!r}," for v in entry), f"{margin}){end}"]
    return [f"{margin}{head}{entry!r}{end}"]


if __name__ == "__main__":
    for name, text in texts().items():
        path = os.path.join(os.path.dirname(__file__), name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
