"""The command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import retrograd as rg
from retrograd.cli.main import main
from retrograd.jit.llvm import cache

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    where = tmp_path / "cache"
    monkeypatch.setenv("RETROGRAD_CACHE", str(where))
    return where


def said(capsys, *words):
    status = main(words)
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_cache_shows_what_it_holds(place, capsys):
    cache.load("a", lambda: b"x" * 3000)
    status, text = said(capsys, "cache")
    assert status == 0
    assert str(place) in text
    assert "entries    1" in text
    assert "KiB of 1.0 GiB" in text


def test_cache_clear(place, capsys):
    cache.load("a", lambda: b"x" * 3000)
    status, text = said(capsys, "cache", "clear")
    assert status == 0
    assert "deleted 1 entry" in text
    assert cache.stats().entries == 0


def test_there_is_no_cache(place, monkeypatch, capsys):
    for words in (["cache"], ["cache", "clear"]):
        status, text = said(capsys, *words)
        assert status == 0
        assert "none" in text
    assert not place.exists()  # to look is not to make


def test_a_size_that_is_none(place, monkeypatch, capsys):
    monkeypatch.setenv("RETROGRAD_CACHE_SIZE", "much")
    status, text = said(capsys, "cache")
    assert status == 2
    assert "RETROGRAD_CACHE_SIZE: got 'much'" in text


@pytest.mark.parametrize("words", [["--help"], ["cache", "--help"]])
def test_help_has_examples(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "retrograd cache clear" in text


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == rg.__version__


@pytest.mark.parametrize("words", [[], ["nothing"], ["cache", "burn"]])
def test_what_it_does_not_know(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: retrograd" in capsys.readouterr().err


def test_as_a_module(place):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "retrograd", "cache"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cache: none" in done.stdout
