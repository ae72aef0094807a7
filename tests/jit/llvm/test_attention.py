"""Attention's kernels against the ops' own NumPy, in float64, at every vector width."""

import ctypes
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.attention_backward import Backward
from retrograd.jit.llvm.attention_kernels import sums_of
from retrograd.jit.llvm.attention_plan import Geometry
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import library, object_code
from retrograd.jit.llvm.text import F32, Module
from retrograd.jit.threads import get_threads, set_threads
from retrograd.ops.nn.attention_ops import Attention
from retrograd.testing.compare import assert_close

MACHINES = here()
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
GUARD = 256  # bytes around each buffer


@dataclass(frozen=True)
class Case:
    """An attention: sizes and options; bias and mask as the axes that do not broadcast."""

    batch: int
    queries: int
    keys: int
    heads: int
    kinds: int
    features: int
    values: int
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    bias: str | None = None  # some of b, h, q, k
    mask: str | None = None
    slopes: bool = False
    lead: tuple[int, ...] = field(default=())

    def op(self):
        given = {"bias": self.bias, "mask": self.mask}
        parts = [n for n, axes in given.items() if axes is not None]
        parts += ["slopes"] if self.slopes else []
        parts += ["key"] if self.dropout else []
        return Attention(0.4, self.left, self.right, self.dropout, tuple(parts))

    def arrays(self, rng):
        """The operands, in float64 where they are floats."""
        before = (*self.lead, self.batch)
        sizes = [
            (*before, self.queries, self.heads, self.features),
            (*before, self.keys, self.kinds, self.features),
            (*before, self.keys, self.kinds, self.values),
        ]
        arrays = [rng.normal(size=s) for s in sizes]
        scores = self.batch, self.heads, self.queries, self.keys
        over = lambda axes: (
            *self.lead,
            *(n if a in axes else 1 for a, n in zip("bhqk", scores, strict=True)),
        )
        if self.bias is not None:
            arrays.append(rng.normal(size=over(self.bias)))
        if self.mask is not None:
            arrays.append(rng.random(over(self.mask)) > 0.3)
        if self.slopes:
            arrays.append(rng.random((*self.lead, self.heads)))
        if self.dropout:
            arrays.append(rng.integers(0, 2**32, (*self.lead, 2), np.uint32))
        return arrays


CASES = [
    Case(2, 7, 9, 4, 2, 5, 3),
    Case(1, 1, 1, 1, 1, 1, 1),
    Case(2, 1, 70, 2, 1, 16, 16),
    Case(1, 70, 1, 2, 2, 16, 16, None, 0),
    Case(1, 130, 300, 2, 1, 33, 17, None, 0),
    Case(1, 300, 130, 2, 1, 17, 48, None, 0),
    Case(1, 300, 330, 2, 1, 16, 48, 10, 5),
    Case(2, 129, 129, 3, 3, 32, 32, None, 0),
    Case(1, 64, 64, 6, 2, 64, 40, 0, 0),
    Case(1, 40, 600, 1, 1, 8, 12, 100, None),
    Case(1, 200, 1100, 2, 2, 8, 8, None, 3),  # several ranges of keys
    Case(1, 90, 900, 1, 1, 130, 140),  # and of many features
    Case(2, 65, 70, 4, 2, 16, 16, bias="bhqk", mask="bhqk"),
    Case(2, 65, 70, 4, 2, 16, 16, None, 0, bias="hqk"),
    Case(3, 30, 70, 4, 2, 16, 16, bias="qk", mask="bk"),
    Case(2, 33, 20, 2, 1, 16, 16, bias="bhq"),
    Case(2, 33, 20, 2, 1, 16, 16, 4, None, bias="", mask="q"),
    Case(2, 33, 600, 2, 2, 16, 16, bias="k", lead=(2,)),
    Case(2, 66, 70, 4, 4, 16, 16, None, 0, slopes=True, lead=(3,)),
    Case(1, 140, 520, 4, 2, 16, 16, slopes=True),
    Case(2, 67, 69, 4, 2, 16, 16, None, 0, dropout=0.3),
    Case(1, 20, 130, 4, 2, 16, 16, 7, 30, 0.5, "bh", "hk", slopes=True, lead=(2,)),
    Case(0, 4, 5, 2, 1, 8, 8, bias="k", slopes=True),
    Case(1, 0, 5, 2, 1, 8, 8, None, 0, bias="k", slopes=True),
    Case(1, 4, 0, 2, 1, 8, 8, slopes=True),
]


def described(case):
    sizes = "x".join(map(str, (*case.lead, case.batch, case.queries, case.keys, case.heads)))
    more = f"b{case.bias}m{case.mask}s{case.slopes:d}p{case.dropout}"
    kind = f"k{case.kinds}d{case.features}v{case.values}l{case.left}r{case.right}"
    return f"{sizes}{kind}{more}"


class Buffer:
    """Memory with guards on both sides; its data begins unaligned but for its items."""

    def __init__(self, size, item, content=0xFF):
        self.whole = np.full(size + 2 * GUARD + item, 0xA5, np.uint8)
        self.start = GUARD + -self.whole.ctypes.data % item
        self.bytes = self.whole[self.start : self.start + size]
        self.bytes[...] = content

    def holds(self, array):
        self.bytes[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self

    def check(self):
        assert (self.whole[: self.start] == 0xA5).all(), "written before a buffer"
        assert (self.whole[self.start + self.bytes.size :] == 0xA5).all(), "written after"


class Shelf:
    """What kernels are written to, in place of a program."""

    def __init__(self, machine):
        self.module, self.count = Module(named(machine)), 0

    def fresh(self):
        self.count += 1
        return self.count

    def share(self, name):
        return name


def written(op, arrays, machine):
    """The kernels of an op, with names that can be found."""
    shelf, specs = Shelf(machine), [spec_of(a) for a in arrays]
    found = kernels_of(op, specs)(shelf, op, specs, 0)
    functions = shelf.module.functions
    for info, _ in found.launches:
        functions[info.name] = functions[info.name].replace("define internal", "define", 1)
    return shelf.module, found


def run(op, arrays, machine, *, backwards=False):
    """What an op's kernels make of operands; chunks in rising or falling order."""
    module, kernels = written(op, arrays, machine)
    loaded = library(object_code(module))
    outs = op.shape(*map(spec_of, arrays))
    held = [Buffer(a.nbytes, a.itemsize).holds(a) for a in arrays]
    held += [Buffer(s.nbytes, s.dtype.itemsize) for s in outs]
    held += [Buffer(n, arrays[0].itemsize) for n in kernels.temporaries]
    before = [b.bytes.copy() for b in held[: len(arrays)]]
    for info, numbers in kernels.launches:
        assert 1 <= info.chunks <= 32
        spots = (ctypes.c_void_p * len(numbers))(*(held[n].bytes.ctypes.data for n in numbers))
        call, scratch = KERNEL(loaded.address(info.name)), Buffer(info.scratch, 64)
        chunks = range(info.chunks)
        for chunk in reversed(chunks) if backwards else chunks:
            call(ctypes.addressof(spots), chunk, scratch.bytes.ctypes.data)
        scratch.check()
    for b in held:
        b.check()
    for was, b in zip(before, held, strict=False):
        assert (was == b.bytes).all()
    results = held[len(arrays) : len(arrays) + len(outs)]
    return [
        b.bytes.view(s.dtype).reshape(s.shape).copy()
        for b, s in zip(results, outs, strict=True)
    ]


def both(case, dtype, rng):
    """The op and its gradient, each with operands of a dtype, and the results in float64."""
    op, arrays = case.op(), case.arrays(rng)
    rounded = [a.astype(dtype) if a.dtype == np.float64 else a for a in arrays]
    wide = [a.astype(np.float64) if a.dtype == dtype else a for a in rounded]
    out, lse = op.forward(*wide)
    extra = [lse, rng.normal(size=out.shape), rng.normal(size=lse.shape)]
    extra = [a.astype(dtype) for a in extra]
    grad = op.grad()
    wide[3:3] = [a.astype(np.float64) for a in extra]
    yield op, rounded, (out, lse), [1.0, 1.0]
    found = grad.forward(*wide)
    yield grad, [*rounded[:3], *extra, *rounded[3:]], found, sizes(case, grad, wide, found)


def sizes(case, grad, wide, found):
    """How large the numbers are that each gradient is a sum of, if they cancel each other.

    The gradients of scores are 0 in sum over the keys of a query. The gradient of a bias that
    is the same for many scores is their sum; that of a slope, the sum of each times how far
    its key is. Thousands of roundings come to the root of the sum of their squares there.
    """
    each = blames(case, grad, wide)
    names = [n for n in grad.parts if n in ("bias", "slopes")]
    result = {"q": 1.0, "k": 1.0, "v": 1.0}
    for name, total in zip(names, found[3:], strict=True):
        if name == "bias":
            axes = tuple(a for a, n in enumerate(total.shape) if n == 1)
            result[name] = max(1.0, np.abs(each).sum(axes).max(initial=0))
        else:
            i = np.arange(case.queries)[:, None] + case.keys - case.queries
            away = each * np.abs(i - np.arange(case.keys))
            result[name] = np.maximum(1.0, np.sqrt((away**2).sum((-4, -2, -1))))
    return list(result.values())


def blames(case, grad, wide):
    """The gradient of each score, in float64: that of a bias of its own."""
    scores = (*case.lead, case.batch, case.heads, case.queries, case.keys)
    bias = wide[6] if case.bias is not None else np.zeros(())
    rest = wide[7:] if case.bias is not None else wide[6:]
    parts = ("bias", *(n for n in grad.parts if n != "bias"))
    full = [*wide[:6], np.broadcast_to(bias, scores), *rest]
    return grad.replace(parts=parts).forward(*full)[3]


def check(case, machine, dtype, rng):
    for op, arrays, wanted, sizes in both(case, dtype, rng):
        got = run(op, arrays, machine)
        for g, w, size in zip(got, wanted, sizes, strict=True):
            what = f"{op.name} {described(case)}"
            assert_close(g / size, (w / size).astype(dtype), what=what)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES, ids=described)
def test_kernels_agree_with_the_ops(case, machine, rng):
    dtype = "float64" if CASES.index(case) % 3 == 1 else "float32"
    check(case, machine, np.dtype(dtype), rng)


@st.composite
def attentions(draw):
    """Any attention of a few thousand scores."""
    of = lambda *values: draw(st.sampled_from(values))
    kinds, axes = of(1, 2, 3), ("", "k", "q", "qk", "hqk", "bk", "bhqk")
    length = st.integers(1, 70)
    return Case(
        of(1, 2),
        draw(length),
        draw(length),
        kinds * of(1, 2),
        kinds,
        of(1, 3, 8, 16, 21),
        of(1, 4, 8, 19, 32),
        of(None, None, 0, 2, 20),
        of(None, 0, 0, 3, 20),
        of(0.0, 0.0, 0.25),
        of(None, None, *axes),
        of(None, None, *axes),
        of(False, True),
        of((), (), (2,)),
    )


@given(
    attentions(),
    st.sampled_from(MACHINES),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=max(10, settings().max_examples // 3))
def test_any_attention(case, machine, dtype, seed):
    check(case, machine, np.dtype(dtype), np.random.default_rng(seed))


@pytest.mark.parametrize("machine", MACHINES)
def test_slopes_whose_gradient_is_a_small_part_of_what_it_sums(machine):
    case = Case(1, 55, 57, 2, 1, 16, 8, None, 20, 0.25, "qk", slopes=True)
    check(case, machine, np.dtype("float32"), np.random.default_rng(1692266162))


LARGE = [  # more than one chunk, forward and backward
    Case(3, 200, 200, 6, 6, 32, 32, None, 0),
    Case(1, 300, 900, 2, 1, 16, 16, None, 0),
    Case(2, 130, 520, 3, 3, 16, 16, bias="hqk", slopes=True),
]


@pytest.mark.parametrize("case", LARGE, ids=described)
def test_the_order_of_chunks_does_not_matter(case, rng):
    for op, arrays, *_ in both(case, np.dtype("float32"), rng):
        _, kernels = written(op, arrays, MACHINES[0])
        assert kernels.info.chunks > 1
        first = run(op, arrays, MACHINES[0])
        again = run(op, arrays, MACHINES[0], backwards=True)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)


def step(**options):
    """Attention with its gradients, and an array that they are pulled from."""

    def f(q, k, v, g):
        out, pull = rg.vjp(lambda *xs: rg.nn.attention(*xs, **options), q, k, v)
        return [out, *pull(g)]

    return f


def program(f, arrays):
    graph, captured = trace(f, [spec_of(a) for a in arrays])
    return compiled(graph), [t.array for t in captured]


@pytest.mark.parametrize("case", LARGE[:2], ids=described)
def test_threads_do_not_change_a_bit(case, rng):
    q, k, v = (a.astype(np.float32) for a in case.arrays(rng)[:3])
    arrays = [q, k, v, rng.normal(size=q.shape).astype(np.float32)]
    built, captured = program(step(causal=True), arrays)
    assert {"attention", "attention_grad"} <= {s.what for s in built.steps}
    call, results, before = Executable(built), [], get_threads()
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            results.append(call([*arrays, *captured]))
    finally:
        set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_memory_grows_with_the_length_and_not_with_its_square():
    def room(length):
        arrays = [np.zeros((1, length, 2, 16), np.float32)] * 4
        built, _ = program(step(causal=True), arrays)
        return built.arena + built.scratch

    one, two = room(1024), room(2048)
    assert two < 2.2 * one
    assert two < 2048 * 2048 * 4


def test_keys_that_are_hidden_may_hold_anything(rng):
    case = Case(1, 20, 20, 2, 2, 8, 8, mask="k")
    op, arrays, *_ = next(both(case, np.dtype("float32"), rng))
    arrays[-1][...] = np.arange(20) < 17
    clean = run(op, arrays, MACHINES[0])
    arrays[1][:, 17:] = np.nan
    for a, b in zip(clean, run(op, arrays, MACHINES[0]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nan_and_infinity_go_where_they_belong(rng):
    case = Case(1, 40, 40, 2, 2, 8, 8, None, 0)
    op, arrays, *_ = next(both(case, np.dtype("float32"), rng))
    arrays[0][0, 3, 1, 2], arrays[1][0, 30, 0, 1] = np.nan, np.inf
    with np.errstate(all="ignore"):
        wanted = op.forward(*arrays)
    got = run(op, arrays, MACHINES[0])
    for g, w in zip(got, wanted, strict=True):
        assert np.isnan(w).any()
        np.testing.assert_array_equal(np.isnan(g), np.isnan(w))


@pytest.mark.parametrize("case", [CASES[n] for n in (4, 11, 17, 21)], ids=described)
def test_kernels_emit_for_neon(case, rng):
    for op, arrays, *_ in both(case, np.dtype("float32"), rng):
        module, _ = written(op, arrays, "neon")
        assert object_code(module).startswith(b"\x7fELF")


@pytest.mark.parametrize("case", [CASES[n] for n in (13, 18, 21)], ids=described)
def test_gradients_that_nobody_reads_are_left_out(case, rng):
    _, (op, arrays, wanted, _) = both(case, np.dtype("float64"), rng)
    shelf = [spec_of(a) for a in arrays]
    graph, _ = trace(lambda *xs: list(rg.apply(op, *xs)[:3]), shelf)
    built = compiled(graph)
    assert [s.what for s in built.steps] == ["attention_grad"]
    for got, want in zip(Executable(built)(arrays), wanted, strict=False):
        assert_close(got, want)


def test_layers_of_one_shape_share_their_kernels():
    def text(layers):
        def f(x):
            for _ in range(layers):
                x = rg.nn.attention(x, x, x, causal=True)
            return rg.sum(x)

        built, _ = program(lambda x: [rg.grad(f)(x)], [np.zeros((2, 40, 2, 16), np.float32)])
        return built.text

    assert text(4).count("define internal void @k_") == text(2).count(
        "define internal void @k_"
    )


def test_few_heads_are_cut_into_even_pieces():
    geometry = Geometry(F32, (1,), 2048, 2048, 1, 1, 32, 32, 1.0, None, 0)
    cut = Backward(Module(named(MACHINES[0])), geometry)
    assert cut.pieces > 1
    seen = np.add.reduceat(cut.geometry.watched, cut.cuts[:-1])
    assert seen.max() < 1.2 * seen.min()
    assert sums_of(cut)["q"].count == cut.pieces


def test_what_has_no_kernel_is_left_to_the_composition():
    some = lambda *shape, dtype=np.float32: spec_of(np.zeros(shape, dtype))
    q = some(2, 3, 4, 5, 6)
    assert kernels_of(Attention(1.0), [q] * 3)
    assert not kernels_of(Attention(1.0), [some(2, 3, 4, 0)] * 3)
    assert not kernels_of(Attention(1.0), [some(2, 3, 4, 5, dtype=np.float16)] * 3)
    grad = Attention(1.0, None, None, 0.0, ("bias",)).grad()
    given = [q, q, q, some(2, 3, 4, 5), q, some(2, 3, 4, 5)]
    assert kernels_of(grad, [*given, some(2, 1, 5, 4, 4)])
    assert not kernels_of(grad, [*given, some(1, 3, 5, 4, 4)])
