"""Measure rows: check all against float64, time in turns, write what was found, row by row."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.steps.peers import PEERS, Caches, Peer, PeerError, idle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.steps.row import Row

# Errors are relative to the norm of each array. Where relus follow batch norms, rounding
# decides on which side of a kink many numbers lie: there PyTorch's own float32 is 2e-2 from its
# float64.
DIGITS, KINKS, NOISE = 1e-3, 3e-2, 1e-4
ROUNDS = 12
TURN = 0.3  # seconds of one peer's turn
PATIENCE = 10.0  # seconds of all its turns: a slow step is timed less often


def measure(
    rows: list[Row], into: Path, *, peers: Any = PEERS, rounds: int = ROUNDS, lock: str = ""
) -> None:
    """Each row with each peer; what is known of it is written after each step."""
    into.mkdir(parents=True, exist_ok=True)
    caches = Caches()
    try:
        bases: dict[str, Any] = {}
        for name in peers:
            try:
                bases[name] = idle(name, caches.environment())
            except PeerError as error:  # such as torch.compile without a C++ compiler
                bases[name] = {"error": str(error)}
        (into / "idle.json").write_text(json.dumps(bases, indent=1), encoding="utf-8")
        for row in rows:
            begin = time.perf_counter()
            found = _row(row, peers, caches, bases, rounds, lock)
            path = into / f"{row.key}.json"
            if path.exists():  # peers that were left out keep what they had
                old = json.loads(path.read_text(encoding="utf-8"))
                found["peers"] = {**old["peers"], **found["peers"]}
            found["seconds"] = round(time.perf_counter() - begin, 1)
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(said(row, found), flush=True)
    finally:
        caches.close()


def said(row: Row, found: dict[str, Any]) -> str:
    """A row for the terminal."""
    lines = [f"{row.key:3} {row.name}  ({found['seconds']} s)"]
    for name, got in found["peers"].items():
        if "error" in got:
            lines.append(f"    {name:8} {got['error']}")
            continue
        warm = f"  warm {got['warm']:.2f} s" if "warm" in got else ""
        lines.append(
            f"    {name:8} {got['best'] * 1e3:10.3f} ms  first {got['first']:6.2f} s{warm}"
            f"  memory {got['extra']:7.1f} MB  off by {got['off']:.0e}"
        )
    return "\n".join(lines)


def _row(
    row: Row, peers: Any, caches: Caches, bases: Any, rounds: int, lock: str
) -> dict[str, Any]:
    got: dict[str, dict[str, Any]] = {name: {} for name in peers}
    alive: dict[str, Peer] = {}
    reference = _reference(row, caches)
    try:
        for name in peers:
            try:
                if "error" in bases[name]:
                    raise PeerError(bases[name]["error"])
                alive[name] = _started(row, name, caches, got[name])
                got[name]["off"] = off(reference, _found(caches, row, name), got[name]["loss"])
                if not got[name]["off"] < (KINKS if row.kinks else DIGITS):
                    raise PeerError(f"differs from float64 by {got[name]['off']:.1e}")
                answer = alive[name].ask("memory", TURN)
                got[name] |= {"rss": answer["peak"], "base": bases[name]["ready"]}
                got[name]["extra"] = answer["peak"] - bases[name]["ready"]
                got[name]["best"] = float("inf")
            except PeerError as error:
                got[name]["error"] = str(error)
                if name in alive:
                    alive.pop(name).close()
        spent = dict.fromkeys(alive, 0.0)
        with _alone(lock if alive else ""):
            for _ in range(rounds):
                _round(alive, spent, got)
    finally:
        for peer in alive.values():
            peer.close()
    return {"key": row.key, "name": row.name, "peers": got}


def _round(alive: dict[str, Peer], spent: dict[str, float], got: Any) -> None:
    """Everybody's turn."""
    for name, peer in alive.items():
        if spent[name] < PATIENCE:
            answer = peer.ask("steps", TURN)
            spent[name] += answer["took"]
            got[name]["best"] = min(got[name]["best"], answer["best"])


@contextmanager
def _alone(lock: str) -> Iterator[None]:
    """While a file is locked, on a machine where others time things too."""
    if not lock:
        yield
        return
    with open(lock, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(caches: Caches, row: Row, name: str) -> str:
    return os.path.join(caches.where, f"{row.key}-{name}.npz")


def _started(row: Row, name: str, caches: Caches, got: dict[str, Any]) -> Peer:
    """A worker after its first call. With a cache on disk: after that of another process."""
    path, environment = _found(caches, row, name), caches.environment(f"cache-{row.key}")
    if name in ("ours", "compile"):
        cold = Peer(name, row.key, environment)
        try:
            got["first"] = cold.ask("first", "")["first"]
        finally:
            cold.close()
    peer = Peer(name, row.key, environment)
    answer = peer.ask("first", path)
    got["loss"] = answer["loss"]
    got["warm" if "first" in got else "first"] = answer["first"]
    return peer


def _reference(row: Row, caches: Caches) -> tuple[dict[str, np.ndarray], float]:
    peer = Peer("reference", row.key, caches.environment())
    try:
        path = _found(caches, row, "reference")
        loss = peer.ask("first", path)["loss"]
    finally:
        peer.close()
    return dict(np.load(path)), loss


def off(reference: tuple[dict[str, np.ndarray], float], path: str, loss: float) -> float:
    """The largest error of the loss and of all arrays, relative to their norms."""
    wanted, value = reference
    found, errors = dict(np.load(path)), [abs(loss - value) / max(abs(value), 1e-6)]
    arrays = {n: w for n, w in wanted.items() if not n.endswith((":sum", ":size"))}
    least = NOISE * max(map(_norm, arrays.values()))  # a gradient may be 0 but for rounding
    for name, w in arrays.items():
        errors.append(_norm(found[name] - w) / max(_norm(w), least))
        if f"{name}:sum" in wanted:  # of all, where only a sample was compared
            total = abs(float(found[f"{name}:sum"]) - float(wanted[f"{name}:sum"]))
            errors.append(total / float(wanted[f"{name}:size"]))
    os.remove(path)
    return float("nan") if not all(np.isfinite(errors)) else max(errors)


def _norm(a: np.ndarray) -> float:
    return float(np.linalg.norm(a.ravel().astype(np.float64)))
