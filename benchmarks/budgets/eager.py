"""Eager code in a half and a third of the bytes it takes by itself."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.budgets.models import Model, deep_mlp, deep_transformer

SHARES, TIMES = (1 / 2, 1 / 3), 5


def _gradient(rg: Any, made: Model) -> Any:
    row = made.row()
    drawn, loss = row.draw(), row.ours(rg)
    params = {n: rg.asarray(a) for n, a in drawn.params.items()}
    data = {n: rg.asarray(a) for n, a in drawn.data.items()}
    return lambda: rg.grad(loss)(params, data)


def measure() -> list[dict[str, Any]]:
    """A row for each model and share."""
    import retrograd as rg

    rg.set_threads(2)
    rows = []
    for made in (deep_mlp(16, 1024, 256), deep_transformer(4, 8, 128)):
        gradient = _gradient(rg, made)
        with rg.memory.track() as free:
            gradient()
        bare = _seconds(gradient)
        for share in SHARES:
            rows.append(_row(made, free, share, _within(rg, gradient, free.peak * share), bare))
            print("  ", *rows[-1].values(), flush=True)
    return rows


def _within(rg: Any, gradient: Any, budget: float) -> tuple[float, Any]:
    """Seconds, and what was counted."""
    ledgers = []

    def work() -> None:
        with rg.budget(int(budget)) as ledger:
            ledgers.append(ledger)
            gradient()

    try:
        return _seconds(work), ledgers[-1]
    except rg.BudgetError:
        return float("nan"), ledgers[-1]


def _row(
    made: Model, free: Any, share: float, found: tuple[float, Any], bare: float
) -> dict[str, Any]:
    took, ledger = found
    return {
        "gradient, eager": made.name,
        "bytes by itself": f"{free.peak:,}",
        "budget": f"1/{round(1 / share)}",
        "bytes at most": f"{ledger.peak:,}" if took == took else "does not fit",
        "dropped": ledger.dropped,
        "ran again": ledger.replayed,
        "times as long": f"{took / bare:.2f}",
    }


def _seconds(work: Any) -> float:
    work()
    best = float("inf")
    for _ in range(TIMES):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
