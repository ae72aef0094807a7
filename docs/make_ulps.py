"""Write docs/ulps.md: how far the functions of compiled programs may be from the truth.

python docs/make_ulps.py
"""

from pathlib import Path

from retrograd.jit.llvm.math import BOUNDS

PAGE = Path(__file__).resolve().with_name("ulps.md")

HEAD = """\
# Errors of mathematical functions

The largest error of each function in compiled programs, in units of the last place (ulp) of the
result: 0.5 is correctly rounded, *exact* has no rounding at all. The bounds hold over the whole
range, denormal arguments and results and huge angles included; the tests sample every exponent
and compare with float64, or with the extended precision of the machine. NaN, infinities and
signed zeros are as in IEEE 754 and C. `silu` is 0 where e**-x is infinite. `exp_below`, of
softmax, is for numbers up to 0.

Most float32 functions are computed in float64 and rounded once: 0.51. The last two columns are
for machines without fused multiply-add (SSE2). Polynomials and constants are made by
`retrograd/jit/llvm/math/fit.py`, which says how.

| function | float32 | float64 | float32, no fma | float64, no fma |
|---|---|---|---|---|
"""


def page() -> str:
    """The text of docs/ulps.md."""
    rows = (
        f"| {name} | {' | '.join('exact' if b == 0 else f'{b:g}' for b in bound)} |\n"
        for name, bound in sorted(BOUNDS.items())
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
