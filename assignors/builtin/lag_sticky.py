"""Lag-sticky: even lag, but a partition moves only when it pays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import Assignment, RebalanceProtocol, Snapshot
from muster.assignors.builtin.improving import MoveThresholds
from muster.assignors.builtin.weighted import Placement
from muster.assignors.data.columns import SnapshotColumns
from muster.assignors.options import LagStickyOptions, read_options


class LagStickyAssignor:
    """Keep what members have, give free partitions to whoever has the least lag to read, and move others
    only when the heaviest member becomes lighter by at least `min.gain`, within the budget.

    Members may have a capacity, a priority or a limit. The assignment carries the proof in its note.

    >>> from muster.assignors.api import Member
    >>> members = [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",), {"t": [3]}, 1)]
    >>> group = Snapshot({"t": 4}, members, lags={"t": [500, 400, 300, 100]}, options={"move.budget": 3})
    >>> answer = LagStickyAssignor().assign(group)
    >>> answer.to_dict(), answer.note
    ({'a': {'t': [0, 1]}, 'b': {'t': [2, 3]}}, 'gain 25 % >= 5 %, 1 move <= budget 3')
    """

    name = "lag-sticky"
    options = (
        *("member.capacity", "max.partitions.per.member", "member.priority", "member.standby"),
        *("imbalance.tolerance", "min.gain", "move.budget", "dampening", "cooldown.ms", "now.ms", "moved.at.ms"),
        *("base.lag", "seed"),
    )
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Assignment:
        options = read_options(self.name, LagStickyOptions, snapshot.options)
        columns = snapshot.columns
        knobs = MoveThresholds(
            tolerance=options.tolerance,
            min_gain=options.min_gain,
            budget=options.move_budget,
            dampening=options.dampening,
            seed=options.seed,
            frozen=cooling_partitions(columns, options),
            # The second round of a cooperative hand-over must not start a third one.
            calm=True,
        )
        weight = columns.lags.astype(np.float64) + options.base_lag
        outcome = Placement(columns, weight, options, knobs).decide()
        return Assignment(columns.table(outcome.owner), note=outcome.note)


def cooling_partitions(columns: SnapshotColumns, options: LagStickyOptions) -> NDArray[np.bool_] | None:
    """Partitions that moved too recently to move again."""
    if not options.moved_at_ms:
        return None
    mask = np.zeros(columns.axis.size, dtype=np.bool_)
    for topic, moved in options.moved_at_ms.items():
        place = columns.axis.place.get(topic)
        for partition, at_ms in moved.items():
            inside = place is not None and partition.isascii() and partition.isdecimal()
            if place is None or not inside or int(partition) >= int(columns.axis.counts[place]):
                continue  # The topic may have shrunk or gone since.
            if options.now_ms - at_ms < options.cooldown_ms:
                mask[int(columns.axis.base[place]) + int(partition)] = True
    return mask
