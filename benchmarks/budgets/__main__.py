"""Some models, or more settings: `python -m benchmarks.budgets --models mlp --full`."""

from __future__ import annotations

import argparse

from benchmarks import budgets, pages


def main() -> None:
    """Measure; pages are written unless models are small."""
    given = argparse.ArgumentParser(prog="python -m benchmarks.budgets")
    given.add_argument("--models", default=",".join(budgets.ORDER), help="some of them")
    given.add_argument("--full", action="store_true", help="all segments and policies")
    given.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    given.add_argument("--small", action="store_true", help="small models, to try it out")
    given.add_argument("--steps", type=int, help="of the long recurrence")
    told = given.parse_args()
    if told.small:
        budgets.RESULTS = budgets.RESULTS.with_name("budgets-small")
    found = budgets.measure(
        models=[m for m in told.models.split(",") if m],
        small=told.small,
        full=told.full,
        compiled=not told.no_compile,
        steps=told.steps,
    )
    if not told.small:
        title = (budgets.__doc__ or "").strip().split("\n\n")
        pages.Results().save("budgets", {"about": title, "tables": found})
        pages.write(pages.Results())


if __name__ == "__main__":
    main()
