"""Loops that Python leads inside of programs: their steps have the options of the program."""

import pytest

import retrograd as rg
from retrograd.jit import compile, execute


def value(h):
    """Of a loop with a budget, whose gradient Python leads."""
    step = lambda h, _: (rg.tanh(h * 1.5 + h) * 0.5, None)
    return rg.sum(rg.scan(step, h, length=40, budget="64 KiB")[0])


@pytest.fixture
def made(monkeypatch):
    """Options of all that is made to run: threads, and whether it is fast."""
    found, real_run, real_compiled = [], execute.Executable, compile.compiled

    class Seen(real_run):
        def __init__(self, program, threads=None, *given, **named):
            super().__init__(program, threads, *given, **named)
            found.append((threads, fast.pop()))

    fast = []

    def compiled(*given, **named):
        fast.append(named.get("fast", False))
        return real_compiled(*given, **named)

    monkeypatch.setattr(execute, "Executable", Seen)
    monkeypatch.setattr(compile, "compiled", compiled)
    execute._ready.cache_clear()
    yield found
    execute._ready.cache_clear()


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"fast_math": True, "threads": 3}])
def test_steps_have_the_options_of_the_program(options, made):
    rg.jit(rg.grad(value), **options)(rg.ones(6))
    assert len(made) > 1, "the steps are programs of their own"
    assert set(made) == {(options.get("threads"), options.get("fast_math", False))}
