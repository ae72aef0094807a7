"""Memory as a promise: what counts, who counts it, and what to do when it is not enough."""

from retrograd.memory.eager import stats, track
from retrograd.memory.ledger import Event, Ledger, Stats

__all__ = ["Event", "Ledger", "Stats", "stats", "track"]
