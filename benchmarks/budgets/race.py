"""Points of memory and time: each setting of each library in a process of its own.

The peers come first. Then ours, at the memory that each of them took, at the smallest plan, at
a quarter of what a step takes without a budget, and without one. All are timed in turns.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.budgets.models import POLICIES, model
from benchmarks.steps.measure import DIGITS, KINKS, off
from benchmarks.steps.peers import Caches, Peer, PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.budgets.models import Model

MODULE, MB = "benchmarks.budgets.worker", 2**20
ROUNDS, TURN = 5, 0.3  # turns of each, and seconds of one
SHARES = (0.25, 0.5, 0.75)  # of activations, for torch.compile
SEGMENTS = (2, 4, 8, 16, 32, 64)
LONGEST = 600.0  # seconds that torch.compile may take
POINTS = 5  # of ours with a budget, at least


def settings(m: Model, *, full: bool, compiled: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the peers are asked to do; `full`: also what others were seen to beat."""
    depth = len(m.draw()[0]) - 1
    for n in (0, *(s for s in (SEGMENTS if full else m.segments) if s <= depth)):
        yield "eager", {"segments": n}
    for policy in ("", *POLICIES) if full else m.policies:
        yield "jax", {"policy": policy}
    if compiled:
        for share in SHARES:
            yield "compile", {"share": share}


class Race:
    """All settings of one model."""

    def __init__(self, key: str, caches: Caches, *, small: bool, rounds: int) -> None:
        self.model, self.caches, self.small, self.rounds = (
            model(key, small=small),
            caches,
            small,
            rounds,
        )
        self.points: list[dict[str, Any]] = []
        self.alive: list[tuple[Peer, dict[str, Any]]] = []
        self.planned: dict[str, Any] | None = None
        self.path = os.path.join(caches.where, f"{key}.npz")
        start, loss = self._begun("reference", {})
        start.close()
        self.wanted = dict(np.load(self.path)), loss["loss"]

    def _begun(self, name: str, setting: dict[str, Any]) -> tuple[Peer, dict[str, Any]]:
        """A process after its first step."""
        told = json.dumps({"model": self.model.key, "small": self.small, **setting})
        peer = Peer(name, told, self.caches.environment(), MODULE)
        timer = threading.Timer(LONGEST, peer.process.kill)
        timer.start()
        try:
            return peer, peer.ask("first", self.path)
        except PeerError as error:
            late = not timer.is_alive()
            peer.close()
            raise PeerError(f"not compiled in {LONGEST:.0f} s" if late else error) from error
        finally:
            timer.cancel()

    def enter(self, name: str, setting: dict[str, Any]) -> dict[str, Any]:
        """Check a setting, and measure its memory; it waits for its turns then."""
        point: dict[str, Any] = {"peer": name, **setting}
        self.points.append(point)
        try:
            peer, answer = self._begun(name, setting)
            self.alive.append((peer, point))
            point |= {"first": answer["first"], "off": self._off(answer["loss"])}
            if not point["off"] < (KINKS if self.model.kinks else DIGITS):
                raise PeerError(f"{name}: differs from float64 by {point['off']:.1e}")
            point |= peer.ask("memory")
        except PeerError as error:
            point["error"] = str(error)
            if self.alive and self.alive[-1][1] is point:
                self.alive.pop()[0].close()
        print(f"   {said(point)}", flush=True)
        return point

    def _off(self, loss: float) -> float:
        return off(self.wanted, self.path, loss)

    def plan(self) -> dict[str, Any]:
        """All plans of ours; asked a second time, with the better prediction of each."""
        told = json.dumps({"model": self.model.key, "small": self.small})
        peer = Peer("ours", told, self.caches.environment(), MODULE)
        try:
            found = peer.ask("plan")
        finally:
            peer.close()
        if self.planned is not None:
            pairs = zip(found["curve"], self.planned["curve"], strict=True)
            found["curve"] = [[a[0], min(a[1], b[1]), a[2]] for a, b in pairs]
            found["took"] = min(found["took"], self.planned["took"])
        self.planned = found
        return found

    def turns(self) -> None:
        """Everybody's, round after round."""
        for _ in range(self.rounds):
            for peer, point in self.alive:
                point["best"] = min(point["best"], peer.ask("steps", TURN)["best"])

    def close(self) -> None:
        """End all."""
        for peer, _ in self.alive:
            peer.close()


def said(point: dict[str, Any]) -> str:
    """A point for the terminal."""
    who = f"{point['peer']} {setting_of(point)}"
    if "error" in point:
        return f"{who:44} {point['error']}"
    return f"{who:44} {point['peak']:8.1f} MB {point['best'] * 1e3:9.1f} ms"


def setting_of(point: dict[str, Any]) -> str:
    """What a peer was asked to do."""
    if point["peer"] == "eager":
        return f"{point['segments']} segments" if point["segments"] else "all kept"
    if point["peer"] == "jax":
        return point["policy"] or "no checkpoint"
    if point["peer"] == "compile":
        return f"budget {point['share']}"
    return "no budget" if point["budget"] is None else f"{point['budget'] / MB:.0f} MiB"


def fitting(curve: list[Any], nbytes: float) -> Any:
    """The plan of a curve that a budget takes: the largest that fits, if one does."""
    return max((p for p in curve if p[0] <= nbytes), default=None)


def budgets(plan: dict[str, Any], peaks: list[float]) -> list[int]:
    """Bytes to run ours at: what peers took, the least, a quarter, and some between."""
    curve = plan["curve"]
    top = curve[-1][0]
    asked = [plan["minimum"], top / 4, *(p * MB for p in peaks)]
    found = {p[0] for n in asked if (p := fitting(curve, n)) is not None}
    for k in range(1, POINTS):
        if len(found) >= POINTS:
            break
        share = (plan["minimum"] / top) ** (k / POINTS)
        found.add(fitting(curve, top * share)[0])
    return sorted(found)


def race(
    key: str, *, small: bool, full: bool, compiled: bool, rounds: int = ROUNDS
) -> dict[str, Any]:
    """All points of a model, and the plans of ours."""
    caches, begin = Caches(), time.perf_counter()
    try:
        run = Race(key, caches, small=small, rounds=rounds)
        print(f"  {run.model.name}", flush=True)
        try:
            for name, setting in settings(run.model, full=full, compiled=compiled):
                run.enter(name, setting)
            plan = run.plan()
            peaks = [p["peak"] for p in run.points if "peak" in p]
            for budget in (None, *budgets(plan, peaks)):
                run.enter("ours", {"budget": budget})
            run.turns()
            plan = run.plan()
        finally:
            run.close()
    finally:
        caches.close()
    seconds = round(time.perf_counter() - begin, 1)
    found = {"key": key, "name": run.model.name, "points": run.points, "plan": plan}
    return {**found, "seconds": seconds}
