"""rg.debug: the first NaN with its line, the tape as data and as a page."""

import os
import stat

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close


def test_nans_names_the_op_its_operands_and_the_line():
    x = rg.asarray([1.0, 0.0, 4.0])
    with rg.debug.nans(), pytest.raises(rg.NonFiniteError) as error:
        rg.sqrt(x) / x  # the line that is to be named
    text = str(error.value)
    assert text.startswith("divide: made NaN in 1 of 3 elements")
    assert "x2 float32[3] from 0 to 4" in text
    assert "the line that is to be named" in text


def test_nans_in_a_backward_rule_names_the_forward_line():
    x = rg.tensor([0.0, 1.0], requires_grad=True)
    with rg.debug.nans():
        y = rg.sqrt(x)  # finite here; its slope at 0 is not
        with pytest.raises(rg.NonFiniteError, match="finite here; its slope at 0 is not"):
            rg.sum(y).backward()


def test_nans_watches_transforms_too():
    with rg.debug.nans():
        with pytest.raises(rg.NonFiniteError, match="log"):
            rg.grad(lambda v: rg.sum(rg.log(v)))(np.zeros(2))
        with pytest.raises(rg.NonFiniteError, match="log"):
            rg.vmap(rg.log)(np.zeros(2))
        found = rg.grad(lambda v: rg.sum(v * v))(np.ones(2))
    assert_close(found, np.full(2, 2.0))


def test_what_comes_in_from_outside_is_not_reported():
    mask = rg.asarray([0.0, -np.inf])
    with rg.debug.nans():
        assert_close(rg.nn.softmax(rg.ones(2) + mask), np.array([1.0, 0.0], np.float32))


def test_outside_the_block_infinities_are_values():
    with rg.debug.nans():
        pass
    assert np.isinf(float(rg.log(rg.zeros(()))))


def tape():
    w = rg.tensor(np.ones((4, 4), np.float32), requires_grad=True)
    x = rg.ones((8, 4))
    return rg.sum(rg.tanh(x @ w)), x, w


def test_graph_counts_the_bytes_that_are_kept():
    loss, x, _ = tape()
    found = rg.debug.graph(loss)
    assert found.nbytes == x.nbytes + 8 * 4 * 4, "x for w's gradient, and tanh's result"
    assert sum(b for _, b, _ in found.by_line()) == found.nbytes
    assert [item.name for item in found.items] == ["leaf", "matmul", "tanh", "sum"]
    loss.backward()
    assert rg.debug.graph(loss).nbytes == 0, "freed as it was consumed"


def test_graph_of_a_checkpoint_shows_what_will_be_recomputed():
    w = rg.tensor(np.ones(4), requires_grad=True)
    kept = rg.debug.graph(rg.sum(rg.checkpoint(lambda v: rg.tanh(rg.tanh(v) * v))(w)))
    assert any("recomputed" in name for item in kept.items for name, _ in item.kept)


def test_the_page_is_whole_self_contained_and_readable(tmp_path):
    loss, _, _ = tape()
    page = rg.debug.graph(loss).save(tmp_path / "tape.html")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "</html>" in text
    assert "http" not in text, "nothing is fetched"
    assert "matmul float32[8, 4]" in text
    assert stat.S_IMODE(page.stat().st_mode) & 0o044 == 0o044
    assert os.listdir(tmp_path) == ["tape.html"], "no temporary file stays"


def test_graph_refusals(tmp_path):
    with pytest.raises(rg.ArgumentError, match="requires a gradient"):
        rg.debug.graph(rg.ones(2))
    with pytest.raises(rg.ArgumentError, match=r"must end in .html"):
        rg.debug.graph(tape()[0]).save(tmp_path / "tape.txt")


def test_strict_promotion_makes_silent_widening_an_error():
    narrow, wide = rg.ones(2), rg.ones(2, dtype=rg.float64)
    assert (narrow + wide).dtype == rg.float64
    with rg.debug.strict_promotion():
        with pytest.raises(rg.DtypeError, match="strict_promotion"):
            narrow + wide
        assert (narrow + 1.0).dtype == rg.float32
        assert (narrow + rg.arange(2)).dtype == rg.float32
