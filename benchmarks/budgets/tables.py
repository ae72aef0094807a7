"""From points to tables."""

from __future__ import annotations

from typing import Any

from benchmarks.budgets.race import MB, fitting, setting_of
from benchmarks.steps.peers import TITLES

QUARTER, NEAR = (
    1.25,
    0.15,
)  # times as long at a quarter of the memory; how wrong a prediction is


def points(found: dict[str, Any], peer: str = "") -> list[dict[str, Any]]:
    """What was measured, of ours or of all others."""
    return [
        p
        for p in found["points"]
        if "error" not in p and (p["peer"] == "ours") == (peer == "ours")
    ]


def free(found: dict[str, Any]) -> dict[str, Any]:
    """Ours without a budget."""
    return next(p for p in points(found, "ours") if p["budget"] is None)


def at(found: dict[str, Any], mb: float) -> dict[str, Any] | None:
    """Ours in so much memory: the plan of that budget, or none at all if that fits too."""
    plan = fitting(found["plan"]["curve"], mb * MB)
    wanted = plan and plan[0]
    fits = [p for p in points(found, "ours") if p["budget"] == wanted and wanted]
    if free(found)["taken"] <= mb:
        fits.append(free(found))
    return min(fits, key=lambda p: p["best"], default=None)


def quarter(found: dict[str, Any]) -> tuple[dict[str, Any] | None, float]:
    """Ours in a quarter of the memory, and how many times as long it takes."""
    mine, whole = (at(found, mb) for mb in (found["plan"]["curve"][-1][0] / 4 / MB, 2.0**40))
    return mine, mine["best"] / whole["best"] if mine and whole else 0.0


def against(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each point of a peer, and ours in the same memory."""
    rows = []
    for p in points(found):
        cells = {
            "peer": TITLES[p["peer"]],
            "setting": setting_of(p),
            "peak, MB": f"{p['peak']:.1f}",
            "step, ms": _ms(p["best"]),
        }
        mine = at(found, p["peak"])
        if mine is None:
            least = found["plan"]["minimum"] / MB
            rows.append({**cells, "ours, MB": f"not below {least:.1f}", "ours, ms": "-"})
            rows[-1]["faster"] = "-"
            continue
        ratio = p["best"] / mine["best"]
        mb, ms = f"{mine['peak']:.1f}", _ms(mine["best"])
        rows.append({**cells, "ours, MB": mb, "ours, ms": ms})
        rows[-1]["faster"] = f"**{ratio:.2f} x**" if ratio > 1 else f"{ratio:.2f} x"
    return rows


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def promises(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What plans say, and what came true, for each model."""
    return [_promise(f) for f in found]


def _promise(found: dict[str, Any]) -> dict[str, Any]:
    curve, mine = found["plan"]["curve"], points(found, "ours")
    alone, (small, ratio) = free(found), quarter(found)
    said = [(p, fitting(curve, (p["budget"] or curve[-1][0]))) for p in mine]
    peaks = [p["taken"] * MB - s[0] for p, s in said if p["budget"]]
    more = [p["peak"] - p["taken"] for p in mine]
    times = [s[1] / p["best"] for p, s in said]
    return {
        "model": found["name"],
        "no budget": f"{alone['peak']:.0f} MB, {_ms(alone['best'])} ms",
        "at a quarter, times as long": f"{ratio:.2f}" if small else "-",
        "taken - predicted, bytes": f"{min(peaks):.0f} to {max(peaks):.0f}",
        "process - taken, MB": f"{min(more):.1f} to {max(more):.1f}",
        "predicted time / measured": f"{min(times):.2f} to {max(times):.2f}",
        "s to compile, measure and plan": f"{found['plan']['took']:.1f}",
    }


def smallest(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The smallest budget that was found to do, and what is proven that none can be below."""
    rows = []
    for f in found:
        bound, least = f["plan"]["bound"], f["plan"]["minimum"]
        rows.append(
            {
                "model": f["name"],
                "smallest budget found, MB": f"{least / MB:.1f}",
                "none below, proven, MB": f"{bound / MB:.1f}",
                "ratio": f"{least / bound:.2f}",
            }
        )
    return rows


def misses(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was aimed at and missed."""
    rows = []
    for f in found:
        for p in points(f):
            mine = at(f, p["peak"])
            if mine is None:
                why = f"{p['peak']:.1f} MB is below our smallest plan"
            elif mine["best"] > p["best"]:
                why = f"{mine['best'] / p['best']:.2f} times its time in {p['peak']:.1f} MB"
            else:
                continue
            who = f"{TITLES[p['peer']]}, {setting_of(p)}"
            rows.append({"model": f["key"], "where": who, "what": why})
        for p in f["points"]:
            if "error" in p:
                who = f"{TITLES[p['peer']]}, {setting_of(p)}"
                rows.append({"model": f["key"], "where": who, "what": p["error"][-160:]})
        ratio = quarter(f)[1]
        if ratio > QUARTER:
            what = f"{ratio:.2f} times as long"
            rows.append({"model": f["key"], "where": "a quarter of the memory", "what": what})
    return rows
