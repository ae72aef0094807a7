"""torch and jax for the comparisons, in double precision; the tables are imported from here."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SETTINGS = (
    "jax_enable_x64",
    # "jax_disable_most_optimizations",  # programs run once: most of their time is compiling
)


@pytest.fixture(autouse=True)
def double():
    """jax computes in float64, as long as a test of this folder runs."""
    if importlib.util.find_spec("jax") is None:
        yield
        return
    import jax

    for name in SETTINGS:
        jax.config.update(name, True)
    yield
    for name in SETTINGS:
        jax.config.update(name, False)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """torch computes in one thread: on arrays this small, two mostly wait for each other."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
