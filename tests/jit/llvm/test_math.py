"""Functions of kernels against NumPy in higher precision: stated bounds, edges, every width."""

import ctypes
import importlib.util
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.math import BOUNDS, FUNCTIONS, fit
from retrograd.jit.llvm.native import assembly, library, object_code
from retrograd.jit.llvm.text import F32, F64, I64, PTR, Module

ROOT = Path(__file__).resolve().parents[3]
MACHINES = here()
DTYPES = ["float32", "float64"]
LONG = np.longdouble
PI = 4 * np.arctan(LONG(1))
NUMBERS = {"float32": 1 << 15, "float64": 1 << 14}  # how many arguments, in the short run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, at the edges


# -- what is right -------------------------------------------------------------------------


def sigmoid(x):
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1) / (1 + z)


def silu(x):
    """0 where the denominator is infinite in the dtype that is meant."""
    more = 1 + np.exp(-x)
    top = np.finfo(np.float32 if x.dtype == np.float64 else np.float64).max
    return np.where((more > top) & np.isfinite(x), np.copysign(0, x), x / more)


def gauss(a):
    """exp(-a**2): the square is split, or its rounding would show."""
    first = np.ldexp(np.rint(np.ldexp(a, 24)), -24)
    return np.exp(-first * first) * np.exp(-(a - first) * (a + first))


def erf_series(x):
    z, term, total = 2 * x * x, np.ones_like(x), np.ones_like(x)
    for n in range(1, 40):
        term = term * z / (2 * n + 1)
        total = total + term
    return 2 / np.sqrt(PI) * gauss(x) * total * x


def erfc(x):
    """A series up to 1, a continued fraction beyond."""
    x = x.astype(LONG)
    a = np.clip(np.abs(x), 1, 200)
    tail = a
    for n in range(250, 0, -1):
        tail = a + n / LONG(2) / tail
    far = gauss(a) / (tail * np.sqrt(PI))
    near = 1 - erf_series(np.clip(x, -1, 1))
    y = np.where(x > 1, far, np.where(x < -1, 2 - far, near))
    return np.where(np.isnan(x), x, y)


def erf(x):
    x = x.astype(LONG)
    far = np.copysign(1 - erfc(np.maximum(np.abs(x), 1)), x)
    return np.where(np.abs(x) < 1, erf_series(np.clip(x, -1, 1)), far)


REFERENCES = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": erf,
    "erfc": erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp_below": np.exp,
    "expm1": np.expm1,
    "fast_tanh": np.tanh,
    "floor": np.floor,
    "hypot": np.hypot,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "larger": lambda x, y: np.where(x > y, x, y),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
    "round": np.rint,
    "sigmoid": sigmoid,
    "signbit": np.signbit,
    "silu": silu,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
PAIRS = ["atan2", "copysign", "hypot", "larger", "maximum", "minimum", "pow"]
SINGLE = sorted(set(REFERENCES) - set(PAIRS))


def precise(name, *xs):
    """The result in a precision that has at least ten bits more."""
    higher = np.float64 if xs[0].dtype == np.float32 else LONG
    return REFERENCES[name](*(x.astype(higher) for x in xs)).astype(higher)


def ulps(found, wanted):
    """Errors in units of the last place that `wanted` has in found's dtype.

    Infinity counts as the power of two after the largest number; a zero of the wrong sign, or
    NaN on one side only, as infinitely wrong.
    """
    info, wide = np.finfo(found.dtype), wanted.dtype.type
    top = np.ldexp(wide(1), info.maxexp)
    f, w = (np.clip(v.astype(wide), -top, top) for v in (found, wanted))
    exponent = np.frexp(np.where(np.isfinite(w), w, 1))[1]
    exponent = np.clip(exponent, info.minexp + 1, info.maxexp) - info.nmant - 1
    errors = np.abs(f - w) / np.ldexp(wide(1), exponent)
    wrong = (f == 0) & (w == 0) & (np.signbit(f) != np.signbit(w))
    wrong |= np.isnan(f) != np.isnan(w)
    return np.where(wrong, np.inf, np.where(np.isnan(f) & np.isnan(w), 0, errors))


# -- arguments -----------------------------------------------------------------------------


def specials(dtype):
    i = np.finfo(dtype)
    half = [0.0, 1, 2, 0.5, 1 / 3, 3, 7, 149, 150, 1075, 1e30, np.inf, np.pi / 2, 2.0**20, 1e22]
    half += [i.tiny, i.smallest_subnormal, i.max, i.max / 2, i.eps, 1 + i.eps, 1 - i.epsneg]
    half += [2.0 ** (i.nmant + 1), 2.0 ** (i.nmant + 1) - 1, 2.0**i.nmant + 1, 0.75, 1.5, 2.5]
    half += [2.0**i.nmant / 2 + 0.5, 2.0**1023 if dtype == "float64" else 2.0**127]
    return np.array([*half, *(-v for v in half), np.nan], dtype)


@lru_cache
def arguments(dtype, count, seed=0):
    """All kinds: bit patterns of every exponent, and more where functions have their bends."""
    rng = np.random.default_rng(seed)
    if dtype == "float32":  # an odd stride through all bit patterns
        step = (1 << 32) // count | 1
        patterns = np.arange(rng.integers(step), 1 << 32, step).astype(np.uint32)
    else:
        patterns = rng.integers(1 << 64, size=count, dtype=np.uint64)
    few = count // 8
    edge = 105 if dtype == "float32" else 745
    sizes = 10.0 ** rng.uniform(-12, 9, few)
    multiples = rng.integers(1, 1 << 20, few) * (np.pi / 2)  # the hardest for sin and cos
    extra = [
        rng.normal(size=few) * 3,
        rng.uniform(-1, 1, few),
        rng.uniform(-edge, edge, few),
        1 + rng.choice([-1, 1], few) * np.minimum(sizes, 1.0 / sizes),
        sizes * rng.choice([-1, 1], few),
        np.where(rng.random(few) < 0.5, multiples, np.nextafter(multiples, 0)),
        rng.uniform(0, 28 if dtype == "float64" else 11, few),
    ]
    return np.concatenate([specials(dtype), patterns.view(dtype), *extra], dtype=dtype)


@lru_cache
def pairs(dtype, count, name):
    """Two arguments: all specials with one another, anything, and for pow what fits."""
    rng = np.random.default_rng(1)
    few = specials(dtype)
    x, y = arguments(dtype, count, 2), rng.permutation(arguments(dtype, count, 3))
    grid = [few.repeat(len(few)), np.tile(few, len(few))]
    size = min(len(x), len(y))
    near = x[:size] * (1 + rng.normal(size=size)).astype(dtype)
    if name == "pow":  # exponents that use up the range of the result
        base = np.exp(rng.uniform(-5, 5, size) * 10.0 ** rng.integers(-8, 1, size)).astype(
            dtype
        )
        edge = 105 if dtype == "float32" else 745
        near = (rng.uniform(-edge, edge, size) / np.log(base.astype(float))).astype(dtype)
        more = [base, near]
    else:
        more = [x[:size], near]
    either = zip(grid, (x[:size], y[:size]), more, strict=True)
    return tuple(map(np.concatenate, either))


@lru_cache
def expected(name, dtype, count):
    """Arguments and results."""
    xs = pairs(dtype, count, name) if name in PAIRS else (arguments(dtype, count),)
    if name == "exp_below":
        xs = (-np.abs(xs[0]),)
    if name in {"larger", "maximum", "minimum", "copysign"}:  # exact; of zeros NumPy's choice
        return xs, REFERENCES[name](*xs).astype(np.float64 if dtype == "float32" else LONG)
    return xs, precise(name, *xs)


# -- how it is run -------------------------------------------------------------------------


def program(name, machine, dtype, lanes):
    """out[i] = f(x[i], ...) as a module; 0 lanes are scalars."""
    t, inputs = {"float32": F32, "float64": F64}[dtype], 2 if name in PAIRS else 1
    f = Fn(Module(machine), "run", [("bufs", PTR), ("count", I64)], linkage="")
    buffers = [f.load(PTR, f.at(f.arg("bufs"), i, PTR)) for i in range(inputs + 1)]
    with f.loop(0, f.arg("count"), max(lanes, 1)) as loop:
        spots = [f.at(b, loop.i, t) for b in buffers]
        y = FUNCTIONS[name](f, *(f.load(t.by(lanes), s) for s in spots[:-1]))
        f.store(f.convert("uitofp", y, t) if y.type.bits == 1 else y, spots[-1])
    f.done()
    return f.module


@lru_cache
def compiled(name, machine, dtype, lanes):
    code = library(object_code(program(name, named(machine), dtype, lanes)))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return kind(code.address("run"))


def run(name, machine, *xs, lanes=None):
    """The compiled function of arrays; they are filled up to whole vectors."""
    dtype = xs[0].dtype.name
    lanes = named(machine).lanes(xs[0].itemsize) if lanes is None else lanes
    size = -(-len(xs[0]) // max(lanes, 1)) * max(lanes, 1)
    filled = [np.concatenate([x, np.ones(size - len(x), dtype)]) for x in xs]
    out = np.empty(size, dtype)
    block = np.array([a.ctypes.data for a in (*filled, out)], np.uintp)
    compiled(name, machine, dtype, lanes)(block.ctypes.data, size)
    return out[: len(xs[0])]


def check(name, dtype, machine, count):
    if dtype == "float64" and np.finfo(LONG).nmant < 62:
        pytest.skip("no precision above float64 here")
    xs, wanted = expected(name, dtype, count)
    found = run(name, machine, *xs)
    errors = ulps(found, wanted)
    bound = BOUNDS[name].of(8 * xs[0].itemsize, fma=named(machine).fma)
    i = int(errors.argmax())
    at = ", ".join(repr(x[i]) for x in xs)
    assert errors[i] <= bound, (
        f"{errors[i]:.3f} ulp: {name}({at}) = {found[i]!r}, {wanted[i]!r}"
    )


# -- tests ---------------------------------------------------------------------------------


def test_every_function_has_a_reference():
    assert set(FUNCTIONS) == set(REFERENCES) == set(BOUNDS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_errors_are_within_the_bounds(name, dtype, machine):
    check(name, dtype, machine, NUMBERS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_errors_are_within_the_bounds_of_many(name, dtype, machine):
    check(name, dtype, machine, NUMBERS[dtype] * 16)
    if machine == MACHINES[-1]:
        expected.cache_clear()  # of large arrays


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_width_gives_the_same_bits(name, dtype, machine):
    xs, _ = expected(name, dtype, 1 << 9)
    whole = run(name, machine, *xs)
    for lanes in (0, 3, 2 * named(machine).lanes(xs[0].itemsize)):
        found = run(name, machine, *xs, lanes=lanes)
        assert np.array_equal(found, whole, equal_nan=True), lanes
        assert np.array_equal(np.signbit(found[whole == 0]), np.signbit(whole[whole == 0]))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_roots_and_wholes_are_numpy_s(dtype, machine):
    (x,), _ = expected("sqrt", dtype, NUMBERS[dtype])
    for name in ("sqrt", "round", "floor", "ceil", "trunc"):
        found, wanted = run(name, machine, x), REFERENCES[name](x)
        assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_powers_of_two_are_exact(dtype, machine):
    i = np.finfo(dtype)
    n = np.arange(i.minexp - i.nmant, i.maxexp).astype(dtype)
    powers = np.ldexp(np.ones_like(n), n.astype(int))
    assert np.array_equal(run("exp2", machine, n), powers)
    assert np.array_equal(run("pow", machine, np.full_like(n, 2), n), powers)
    assert np.array_equal(run("log2", machine, powers), n)


def strangers(module):
    """Functions that a module calls and does not have: named directly, or put in a register."""
    named_in = re.findall(r"(?:\s\$|\b(?:callq?|jmp|bl|b)\s+)([A-Za-z_]\w*)", assembly(module))
    own = {*module.functions, *module.globals.values(), "_GLOBAL_OFFSET_TABLE_"}
    return set(named_in) - own


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_outside_is_called(dtype, machine):
    """Code for each machine, also where it does not run; libm is not asked."""
    target = named(machine)
    for name in sorted(REFERENCES):
        assert not strangers(program(name, target, dtype, target.lanes(4))), name
    assert object_code(program("sin", target, dtype, 4))


@pytest.mark.parametrize("machine", ["sse2", "neon"])
def test_a_call_outside_is_seen(machine):
    f = Fn(Module(named(machine)), "run", [("x", F64)], F64, linkage="")
    f.done(f.intrinsic("exp", f.arg("x")))
    assert strangers(f.module) == {"exp"}


def test_long_functions_are_written_once():
    f = Fn(Module(named("sse2")), "run", [("x", F64)], F64)
    twice = FUNCTIONS["erf"](f, FUNCTIONS["erf"](f, f.arg("x")))
    f.done(twice)
    assert sorted(f.module.functions) == ["math_erf_f64", "run"]


def test_the_coefficients_are_what_the_fit_gives():
    for name, text in fit.texts().items():
        written = Path(fit.__file__).with_name(name).read_text(encoding="utf-8")
        assert written == text, "python -m retrograd.jit.llvm.math.fit"


def test_the_page_of_bounds_is_what_the_functions_say():
    spec = importlib.util.spec_from_file_location("make_ulps", ROOT / "docs" / "make_ulps.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert make.PAGE.read_text(encoding="utf-8") == make.page(), "python docs/make_ulps.py"
