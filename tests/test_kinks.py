"""docs/kinks.md is what the engine gives at kinks; and the peers' columns what they give."""

import importlib.util
import warnings
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("make_kinks", DOCS / "make_kinks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(text):
    return text.splitlines()


def test_our_column_is_what_the_engine_gives():
    make = generator()
    found = lines((DOCS / "kinks.md").read_text(encoding="utf-8"))
    assert found == lines(make.page(make.written_peers())), "python docs/make_kinks.py"


def test_no_answer_of_a_peer_is_missing():
    make = generator()
    wanted = {words for rows in make.ROWS.values() for words, *_ in rows}
    assert set(make.written_peers()) == wanted | {"at"}, "python docs/make_kinks.py --peers"


@pytest.mark.peers
def test_the_peers_columns_are_what_they_give():
    make = generator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs: "may change at any time"
        found = make.ask_peers()
    written = make.written_peers()
    different = {w: (written[w], found[w]) for w in found if written[w] != found[w]}
    assert not different, "python docs/make_kinks.py --peers"
