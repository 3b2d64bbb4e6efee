"""Runs assignors from plugins under a deadline, so that one that hangs cannot block a query or a backtest for ever."""

from muster.assignors.api import Assignment, Assignor, Snapshot
from muster.assignors.plugin_pool import DEADLINE_MS, shared_isolation
from muster.assignors.plugin_process import PluginOverran

__all__ = ["DEADLINE_MS", "MAX_DEADLINE_MS", "PluginOverran", "run_in_time"]

MAX_DEADLINE_MS = 3_600_000


def run_in_time(
    assignor: Assignor, snapshot: Snapshot, deadline_ms: int, remedy: str, *, withhold: bool = True
) -> Assignment:
    """As `muster.assignors.run.run`; Overran, which ends with `remedy`, when a plugin takes too long.

    Ours are not timed. A plugin runs in a process of its own, which this one keeps for its next plan and does not
    leave behind.
    """
    return shared_isolation().run(assignor, snapshot, deadline_ms, withhold=withhold, remedy=remedy)
