"""torch and jax for the comparisons, in double precision; the tables are imported from here."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(autouse=True)
def double():
    """jax computes in float64 as long as a test of this folder runs."""
    if importlib.util.find_spec("jax") is None:
        yield
        return
    import jax

    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


SETTINGS = {
    "jax_enable_x64": True,
    "jax_disable_most_optimizations": True,  # programs run once: compiling is all the time
}
