"""The examples run, from anywhere, and show what they promise."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    environment["MPLCONFIGDIR"] = str(folder)
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def shown(folder, name, *options):
    done = run(folder, EXAMPLES / name, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_examples_are_short(path):
    limit = 150 if path.name == "digits.py" else 80
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit


def test_derivatives_agree_with_differences(tmp_path):
    text = shown(tmp_path, "derivative.py")
    assert text.count("True") == 3
    assert "False" not in text


def test_an_op_of_ones_own(tmp_path):
    text = shown(tmp_path, "your_own_op.py")
    assert "check_op found nothing wrong" in text
    assert "untracked: False" in text
    ours, plain = (
        int(n.replace(",", ""))
        for n in re.search(r"keeps +([\d,]+).*?([\d,]+)$", text).groups()
    )
    assert ours == 4 * (2 * 200 * 50 + 200 * 200)  # the points and the distances, float32
    assert plain > 10 * ours


def test_checkpoint_saves_memory_and_no_bit_changes(tmp_path):
    text = shown(tmp_path, "checkpoint.py")
    assert "the same to the bit: True" in text
    rows = re.findall(r"(plain|checkpoint) +([\d.]+) MiB +([\d.]+) MiB", text)
    (_, kept, peak), (_, kept_less, peak_less) = rows
    assert float(kept_less) < float(kept) / 5
    assert float(peak_less) < float(peak) / 2


def test_digits_are_learnt(tmp_path):
    start = time.perf_counter()
    text = shown(tmp_path, "digits.py")
    assert time.perf_counter() - start < 120  # a few seconds, on a machine that is idle
    assert float(re.search(r"held-out accuracy ([\d.]+)% of", text)[1]) > 97
    assert "\r" not in text, "one line is updated on a terminal, and only there"
    assert "read as    0    1" in text
    assert (tmp_path / "out" / "tape.html").read_text(encoding="utf-8").startswith("<!doctype")


def test_digits_without_matplotlib_draw_a_page(tmp_path):
    block = (
        "import runpy, sys; sys.modules['matplotlib'] = None; sys.path.insert(0, sys.argv[1])"
    )
    code = f"{block}; del sys.argv[0]; runpy.run_module('digits', run_name='__main__')"
    done = run(tmp_path, "-c", code, EXAMPLES, "--steps", 20, "--out", tmp_path / "deep" / "x")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "deep" / "x" / "digits.html").read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("*.part"))


def test_digits_refuse_what_makes_no_sense(tmp_path):
    done = run(tmp_path, EXAMPLES / "digits.py", "--steps", 0)
    assert done.returncode == 2
    assert "--steps must be at least 1" in done.stderr
