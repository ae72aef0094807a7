"""explain: what it says is what the program is; never how fast it is."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import retrograd as rg
from retrograd.ir.verify import verify
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.limits import Limits, measured
from retrograd.jit.llvm.machine import host
from retrograd.jit.llvm.program import build
from retrograd.jit.llvm.timing import Stopwatch
from retrograd.jit.passes import PASSES, optimized
from retrograd.testing.compare import assert_close

TURNS = 5


def layer(w, x):
    hidden = rg.tanh(x @ w)  # the first line

    def body(carry, row):
        return rg.sin(carry) * row, rg.sum(carry)  # the line of the body

    found = rg.scan(body, hidden, x[:TURNS])[1]
    return rg.sort(found) + hidden[0, 0]  # the line of the sort


W = np.linspace(-1, 1, 12 * 12, dtype=np.float32).reshape(12, 12)
X = np.linspace(0, 1, 7 * 12, dtype=np.float32).reshape(7, 12)


@pytest.fixture(scope="module")
def explained():
    return rg.jit(layer, threads=1).explain(W, X)


def test_there_is_a_graph_after_each_pass(explained):
    assert [name for name, _ in explained.graphs] == ["traced", *(p.__name__ for p in PASSES)]
    for _, graph in explained.graphs:
        verify(graph)
    assert explained.after("cse") == explained.graphs[-2][1]
    assert str(explained.after("dce")).startswith("graph(%0: float32[12, 12]")
    with pytest.raises(rg.ArgumentError, match="no pass 'magic'; there are traced, expand"):
        explained.after("magic")


def test_steps_come_in_order_with_bodies_inside(explained):
    depths = [s.depth for s in explained.steps]
    kinds = [s.what for s in explained.steps]
    assert kinds[0] == "gemm"
    at = kinds.index("scan")
    assert depths[at] == 0
    assert depths[at + 1] == 1
    numbers = [s.number for s in explained.steps]
    assert numbers == sorted(set(numbers))


def test_every_op_is_in_some_step_with_the_users_line(explained):
    ops = {name for s in explained.steps for name in s.ops}
    assert {"matmul", "tanh", "scan", "sin", "multiply", "sum", "sort", "add"} <= ops
    lines = {line for s in explained.steps for line, _ in s.lines}
    for words in ("the first line", "the line of the body", "the line of the sort"):
        assert any(words in line for line in lines)


def test_host_calls_are_seen_with_their_reason(explained):
    (call,) = explained.hosts
    assert call.what.startswith("host: ")
    assert call.ops == ["sort"]
    assert call.nbytes == 2 * TURNS * 4
    assert not call.roof


def test_steps_of_a_loop_count_their_turns(explained):
    for s in explained.steps:
        assert s.turns == (TURNS if s.depth else 1)
        assert s.seconds >= 0


def test_flops_and_bytes_are_those_of_the_shapes(explained):
    gemm = explained.steps[0]
    assert gemm.flops == 2 * 7 * 12 * 12
    assert gemm.nbytes >= (7 * 12 + 12 * 12 + 7 * 12) * 4
    assert gemm.chunks >= 1


def test_a_loop_takes_as_long_as_what_is_in_it(explained):
    at = next(i for i, s in enumerate(explained.steps) if s.what == "scan")
    inside = [s for s in explained.steps[at + 1 :] if s.depth]
    assert inside
    assert sum(s.roof for s in inside) > 0


def test_memory_is_accounted_for(explained):
    m = explained.memory
    assert m.arguments == W.nbytes + X.nbytes
    assert m.outputs == TURNS * 4
    assert m.reused == 0
    assert 0 < m.peak <= m.arena
    sizes = [v.nbytes for v in m.values]
    assert sizes == sorted(sizes, reverse=True)
    numbers = {s.number for s in explained.steps if not s.depth}
    for v in m.values:
        assert 0 <= v.offset <= m.arena - v.nbytes
        assert v.first <= v.last
        assert {v.first, v.last} <= numbers


def test_values_alive_at_once_do_not_overlap(explained):
    values = [v for v in explained.memory.values if v.nbytes]
    for i, a in enumerate(values):
        for b in values[i + 1 :]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or not together


def test_the_text_says_it_all(explained):
    text = str(explained)
    assert text.startswith("layer: ")
    for s in explained.steps:
        assert s.what in text
    for words in ("nodes after each pass", "of roof", "arena", "the line of the body"):
        assert words in text
    assert "layer" in repr(explained)


class Reader(HTMLParser):
    """Notes the tags, and what is loaded from elsewhere."""

    void = frozenset({"meta", "rect", "line", "circle", "polyline", "br"})

    def __init__(self):
        super().__init__()
        self.tags, self.loaded, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loaded += [v for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag


def test_the_page_is_self_contained_and_whole(explained, tmp_path):
    page = explained.save(tmp_path / "page.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert not reader.loaded
    assert "://" not in page
    assert "@import" not in page
    assert reader.tags.count("svg") == 3
    assert "script" not in reader.tags
    assert "nan" not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL).lower().split()
    assert "the line of the body" in page
    with pytest.raises(rg.ArgumentError, match=r"must end in \.html"):
        explained.save(tmp_path / "page.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_text_of_the_user_cannot_break_the_page(tmp_path):
    f = rg.jit(lambda x: x + 1 if "</pre><script>" else x)
    page = f.explain(rg.ones(3)).save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x,  # nothing to do
        lambda x: x[:0] * 2,  # nothing to compute
        lambda x: rg.linalg.inv(rg.reshape(x, (2, 2))),  # one call
        lambda x: rg.cond(x[0] > 0, lambda a: a + 1, lambda a: a * 2, x),  # a side not taken
        lambda x: rg.zeros(3),
    ],
)
def test_small_programs_have_pages_too(f, tmp_path):
    found = rg.jit(f).explain(rg.asarray([1.0, 0.0, 0.0, 1.0]))
    assert str(found)
    found.save(tmp_path / "page.html")


def test_a_convolution_has_its_flops():
    f = rg.jit(lambda x, w: rg.nn.conv(x, w, padding="same"))
    found = f.explain(rg.ones((2, 8, 8, 3)), rg.ones((3, 3, 3, 16)))
    assert sum(s.flops for s in found.steps) >= 2 * 2 * 6 * 6 * 9 * 3 * 16  # without the rim


def test_donated_arguments_stay_and_are_reported():
    @rg.jit(donate=("w",))
    def step(w, g):
        return w - 0.1 * g

    w = rg.ones(100)
    found = step.explain(w, rg.ones(100))
    assert found.memory.reused == found.memory.outputs == 400
    assert_close(w, np.ones(100, np.float32))


def test_effects_happen_once(capsys):
    def f(x):
        rg.debug.print("x {}", x)
        return x

    found = rg.jit(f).explain(rg.asarray(2.0))
    assert capsys.readouterr().out == "x 2.0\n"
    assert [s.what for s in found.hosts] == ["host: it prints"]
    assert found.seconds > 0


def test_explaining_compiles_for_calls_to_come():
    f = rg.jit(lambda x: x * 2)
    f.explain(rg.ones(3))
    f(rg.ones(3))
    assert f.traces == 1


def test_specs_stand_for_values():
    found = rg.jit(rg.exp).explain(rg.Spec((5,), rg.float32))
    assert "exp" in str(found)


def test_errors_of_the_program_come_through():
    f = rg.jit(lambda x, i: x[i])
    with pytest.raises(rg.BoundsError):
        f.explain(rg.ones(3), rg.asarray([7]))


def test_a_clock_changes_no_bit():
    lowered = rg.jit(layer).lower(W, X)
    found = []
    for clock in (None, Stopwatch()):
        program = build(optimized(lowered.graph, kernels_of), host(), (), clock)
        hidden = [t.array for t in lowered.captured]
        found.append(Executable(program, 1)([W, X, *hidden]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_limits_are_positive_and_measured_once():
    limits = measured(1)
    assert isinstance(limits, Limits)
    assert min(limits.flops, limits.memory, limits.cache) > 0
    assert measured(1) is limits


def test_the_roof_is_the_slower_of_arithmetic_and_memory():
    limits = Limits(1, flops=100.0, memory=10.0, cache=20.0)
    assert limits.roof(1000, 10) == 10.0
    assert limits.roof(1000, 10, itemsize=8) == 20.0
    large = 1 << 40  # no cache has that
    assert limits.roof(1, large) == large / 10.0
    assert limits.roof(1, 2000) == 2000 / 20.0
