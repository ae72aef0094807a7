"""Kernels of state space ops against the ops' own NumPy, in float64, at every vector width."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.ssm.causal_conv import CausalConv, CausalConvGrad
from retrograd.ops.ssm.mamba3_ssd import DoubleSsd, DoubleSsdGrad, SingleSsd, SingleSsdGrad
from retrograd.ops.ssm.selective import SelectiveScan, SelectiveScanGrad
from retrograd.ops.ssm.ssd import Ssd, SsdGrad
from retrograd.testing import check
from retrograd.testing.compare import assert_close

MACHINES = here()
DTYPES = ("float32", "float64")


def shared(rng, how, lead, core):
    """An operand that a batch may share: for each, for all, or one number."""
    return rng.normal(size={"each": (*lead, *core), "all": core, "one": ()}[how])


def selective(rng, lead, s, i, r, how="all", *, soft=True, gated=True):
    n = lambda *shape: rng.normal(size=(*lead, *shape))
    delta = rng.uniform(-2, 1, (*lead, s, i)) if soft else rng.uniform(0.1, 0.9, (*lead, s, i))
    A = -rng.uniform(0.3, 1.5, (*lead, i, r) if how == "each" else (i, r))
    z = n(s, i) if gated else np.asarray(0.0)
    few = [shared(rng, how, lead, core) for core in ((i,), (i,), (i, r))]
    few[1] = np.abs(few[1])  # the bias of steps that must be positive
    args = [n(s, i), delta, A, n(s, r), n(s, r), few[0], z, *few[1:]]
    return SelectiveScan(soft, gated), SelectiveScanGrad(soft, gated), args


def ssd(rng, lead, s, h, g, p, r, chunk=16, how="all"):
    n = lambda *shape: rng.normal(size=(*lead, *shape))
    A, D, start = (shared(rng, how, lead, core) for core in ((h,), (h,), (h, p, r)))
    dt = rng.uniform(0.05, 0.5, (*lead, s, h))
    args = [n(s, h, p), dt, -np.abs(A), n(s, g, r), n(s, g, r), D, start]
    return Ssd(chunk), SsdGrad(chunk), args


def double(rng, lead, s, h, g, p, r, chunk=16, how="all"):
    n = lambda *shape: rng.normal(size=(*lead, *shape))
    da = -rng.uniform(0.05, 0.9, (*lead, s, h))
    args = [n(s, 1, h, p), da, n(s, 1, g, r), n(s, 1, g, r), shared(rng, how, lead, (h, p, r))]
    return DoubleSsd(chunk), DoubleSsdGrad(chunk), args


def single(rng, lead, s, h, g, p, r, chunk=16, how="all"):
    *args, start = double(rng, lead, s, h, g, p, r, chunk, how)[2]
    weights = rng.uniform(0.1, 1, (2, *lead, s, h))
    return SingleSsd(chunk), SingleSsdGrad(chunk), [*args, *weights, start]


def causal(rng, lead, s, c, k, how="all"):
    n = lambda *shape: rng.normal(size=(*lead, *shape))
    weight = n(k, c) if how == "each" else rng.normal(size=(k, c))
    bias = shared(rng, how, lead, (c,))
    args = [n(s, c), n(k - 1, c), weight, bias]
    return CausalConv(), CausalConvGrad(bias.shape), args


CASES = {
    "scan": (selective, (2,), 70, 35, 16),
    "scan, plain": (selective, (), 9, 3, 5, "one", False, False),
    "scan, long": (selective, (1,), 301, 8, 2, "each", True, False),
    "scan, wide": (selective, (2, 9), 5, 70, 3, "all", False, True),
    "scan, one step": (selective, (3,), 1, 1, 1, "all"),
    "ssd": (ssd, (2,), 70, 4, 2, 20, 33, 32),
    "ssd, one group": (ssd, (2,), 40, 6, 1, 16, 16, 16, "each"),
    "ssd, tiny": (ssd, (), 7, 2, 1, 2, 3, 4, "one"),
    "ssd, one chunk": (ssd, (1,), 5, 1, 1, 9, 1, 512),
    "double": (double, (2,), 50, 4, 4, 5, 18, 16, "each"),
    "double, groups": (double, (), 33, 4, 2, 16, 8, 32, "one"),
    "single": (single, (2,), 50, 4, 2, 17, 4, 16),
    "single, one": (single, (2, 2), 20, 1, 1, 3, 2, 8, "each"),
    "causal": (causal, (2,), 200, 40, 4),
    "causal, each": (causal, (3,), 7, 33, 3, "each"),
    "causal, short": (causal, (2,), 2, 5, 4, "one"),
    "causal, one tap": (causal, (), 70, 16, 1),
    "causal, many taps": (causal, (17,), 37, 9, 8),
}


def made(case, rng):
    """An op and its gradient, each with float64 operands."""
    make, *sizes = CASES[case] if isinstance(case, str) else case
    if make is selective and len(sizes) > 5:
        *sizes, soft, gated = sizes
        op, back, args = selective(rng, *sizes, soft=soft, gated=gated)
    else:
        op, back, args = make(rng, *sizes)
    outs = check.outputs(op.forward(*args))
    gs = [rng.normal(size=np.shape(o)) for o in outs]
    kept = args[:3] if isinstance(op, CausalConv) else args
    return (op, args), (back, [*gs, *kept])


def program(op, arrays, machine=None):
    """The op alone, compiled; it must have kernels of its own."""
    specs = [spec_of(a) for a in arrays]
    assert kernels_of(op, specs)
    graph, _ = trace(lambda *xs: check.outputs(rg.apply(op, *xs)), specs)
    return compiled(graph, (), machine and named(machine))


def agrees(op, arrays, dtype, machine):
    """Its kernels on `machine` give what its NumPy gives in float64."""
    arrays = [np.asarray(a, dtype) for a in arrays]
    wanted = check.outputs(op.forward(*(a.astype(np.float64) for a in arrays)))
    found = Executable(program(op, arrays, machine))(arrays)
    for n, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert_close(got, np.asarray(want, dtype), what=f"{op} {n} on {machine}")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_the_ops(case, machine, rng):
    dtype = DTYPES[list(CASES).index(case) % 2]
    for op, arrays in made(case, rng):
        agrees(op, arrays, dtype, machine)


@pytest.mark.parametrize("case", CASES)
def test_the_other_precision(case, rng):
    dtype = DTYPES[1 - list(CASES).index(case) % 2]
    for op, arrays in made(case, rng):
        agrees(op, arrays, dtype, MACHINES[0])


LEADS = st.sampled_from([(), (1,), (3,), (2, 2)])
HOW = st.sampled_from(["each", "all", "one"])
SMALL = st.integers(1, 20)


@st.composite
def geometries(draw):
    """Any op of any sizes."""
    make = draw(st.sampled_from([selective, ssd, double, single, causal]))
    lead, s, how = draw(LEADS), draw(st.integers(1, 40)), draw(HOW)
    if make is selective:
        return make, lead, s, draw(SMALL), draw(SMALL), how, draw(st.booleans()), True
    if make is causal:
        return make, lead, s, draw(SMALL), draw(st.integers(1, 8)), how
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    chunk = draw(st.sampled_from([1, 4, 16, 24, 64]))
    return make, lead, s, groups * each, groups, draw(SMALL), draw(SMALL), chunk, how


@given(
    geometries(),
    st.sampled_from(MACHINES),
    st.sampled_from(DTYPES),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=settings().max_examples // 4 or 1)
def test_any_sizes(case, machine, dtype, seed):
    for op, arrays in made(case, np.random.default_rng(seed)):
        agrees(op, arrays if dtype == "float64" else map(of_one_sign, arrays), dtype, machine)


def of_one_sign(x):
    """Its magnitudes: a gradient summed over all times may then not end near zero by chance,
    where what float32 lost in its parts is all that is left. Log decays stay negative."""
    return x if np.all(x <= 0) else np.abs(x)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", [222, 341, 406, 455])
def test_the_gradient_of_rates_is_not_lost_in_long_sums(machine, seed):
    """Later times cancel out of the sums that the decay of a time is to blame for."""
    case = ssd, (), 38, 2, 1, 2, 15, 64, "each"
    (_, (back, arrays)) = made(case, np.random.default_rng(seed))
    agrees(back, arrays, "float32", machine)


LARGE = ["scan", "scan, wide", "ssd", "ssd, one group", "double", "single", "causal"]


@pytest.mark.parametrize("case", LARGE)
def test_bits_do_not_depend_on_threads(case, rng):
    for op, arrays in made(case, rng):
        arrays = [np.asarray(a, np.float32) for a in arrays]
        built = program(op, arrays)
        one, *others = (Executable(built, threads=n)(arrays) for n in (1, 2, 3))
        for other in others:
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_kernels_emit_for_neon(case, rng):
    for op, arrays in made(case, rng):
        specs = [spec_of(np.asarray(a, np.float32)) for a in arrays]
        graph, _ = trace(lambda *xs, op=op: check.outputs(rg.apply(op, *xs)), specs)
        writer = Writer(optimized(graph, kernels_of), named("neon"))
        writer.written()
        assert object_code(writer.module).startswith(b"\x7fELF")


def test_strong_decays_stay_finite(rng):
    """Products of decays are never divided by: states may forget all within a step."""
    (op, args), (back, more) = made(CASES["ssd"], rng)
    for arrays in (args, more):
        arrays[-6] = arrays[-6] * 4000.0
    for which, arrays in ((op, args), (back, more)):
        found = Executable(program(which, arrays))(arrays)
        wanted = check.outputs(which.forward(*arrays))
        for got, want in zip(found, wanted, strict=True):
            assert np.isfinite(got).all()
            assert_close(got, want)


DECLINED = [
    lambda rng: (DoubleSsd(4), _ranks(rng)),
    lambda rng: (Ssd(4), [a[:, :0] if n in (0, 1, 3, 4) else a for n, a in _some_ssd(rng)]),
    lambda rng: (CausalConv(), causal(rng, (2,), 9, 3, 9)[2]),
    lambda rng: (SelectiveScan(), [a.astype(np.float16) for a in _plain_scan(rng)]),
]


def _ranks(rng):
    v, da = rng.normal(size=(5, 2, 4, 2)), -rng.uniform(0.1, 1, (5, 4))
    B, C = rng.normal(size=(2, 5, 2, 4, 3))
    return v, da, B, C, rng.normal(size=(4, 2, 3))


def _some_ssd(rng):
    return enumerate(ssd(rng, (2,), 7, 2, 1, 2, 3)[2])


def _plain_scan(rng):
    return [np.asarray(a) for a in selective(rng, (2,), 5, 3, 2, soft=False, gated=False)[2]]


@pytest.mark.parametrize("make", DECLINED)
def test_what_is_declined_is_expanded(make, rng):
    op, arrays = make(rng)
    specs = [spec_of(a) for a in arrays]
    assert not kernels_of(op, specs)
    assert not any(
        type(op) is type(n.op) for n in optimized(_graph(op, specs), kernels_of).nodes
    )


def _graph(op, specs):
    return trace(lambda *xs: check.outputs(rg.apply(op, *xs)), specs)[0]
