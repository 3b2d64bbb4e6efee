"""Units of which this node cannot use the log (CL-F9): why, and when it is looked at anew.

A log that works again goes on without a restart. It has to have all that was flushed in it when it broke: the
controller may count on that, for a replica that is offline can be in sync, or eligible, still.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.coordinator.replication.protocol.facts import TopicPartition, halves_of
from muster.coordinator.replication.protocol.ports import LogBroken, ReplicaLog

LOOK_AGAIN_MS = 10_000
"""Between two looks at one log: opening one takes reading."""


@dataclass(slots=True)
class LogOutage:
    """kept: how far each half was flushed, where that is known. stays: what its log disagrees about is no matter of the
    disk; it is over with an unclean election of a later epoch than this one. no_room: nothing could be written, so that
    another copy was to lead."""

    kept: Mapping[TopicPartition, int]
    stays: int | None = None
    no_room: bool = False
    look_ms: int | None = None


class LogOutages:
    """reasons: the partitions that are offline here, with the ids of their topics, as the controller is told."""

    __slots__ = ("_units", "reasons")

    def __init__(self) -> None:
        self.reasons: dict[TopicPartition, tuple[bytes, str]] = {}
        self._units: dict[TopicPartition, LogOutage] = {}

    def __contains__(self, unit: TopicPartition) -> bool:
        return unit in self._units

    def begins(self, unit: TopicPartition, ids: Mapping[TopicPartition, bytes], why: str, outage: LogOutage) -> None:
        """ids: of the topics of its halves."""
        known = self._units.get(unit)
        if known is not None:
            outage.kept = {**known.kept, **outage.kept}
            outage.no_room = outage.no_room or known.no_room
        self._units[unit] = outage
        for half, topic_id in ids.items():
            self.reasons[half] = topic_id, why

    def still(self, unit: TopicPartition, why: str) -> None:
        """It was looked at in vain."""
        for half in halves_of(unit):
            if half in self.reasons:
                self.reasons[half] = self.reasons[half][0], why

    def is_over(self, unit: TopicPartition) -> None:
        self._units.pop(unit, None)
        for half in halves_of(unit):
            self.reasons.pop(half, None)

    def may_open(self, unit: TopicPartition, unclean_epoch: int) -> None:
        """Raises LogBroken where opening it is no remedy."""
        outage = self._units[unit]
        if outage.stays is not None and unclean_epoch <= outage.stays:
            raise LogBroken(self.reasons[unit][1])

    def wants_room(self, unit: TopicPartition) -> bool:
        """Whether it is to be asked first if there is room by now."""
        return self._units[unit].no_room

    def must_be_whole(self, unit: TopicPartition, half: TopicPartition, log: ReplicaLog) -> None:
        """Raises LogBroken where the log that was opened lacks what it had."""
        had = self._units[unit].kept.get(half, log.end)
        if log.end < had:
            raise LogBroken(
                f"{half} ends at offset {log.end} since it was opened anew, and had been flushed up to {had}: what is "
                "missing may be committed. Restore its directory, or delete it while this node is stopped and give the "
                "node an empty data directory"
            )

    def due(self, now_ms: int) -> TopicPartition | None:
        """A unit to look at anew now, one at a time; it is the next one's turn afterwards."""
        for outage in self._units.values():
            if outage.stays is None and outage.look_ms is None:
                outage.look_ms = now_ms + LOOK_AGAIN_MS
        found = min(
            ((outage.look_ms, unit) for unit, outage in self._units.items() if outage.look_ms is not None), default=None
        )
        if found is None or found[0] > now_ms:
            return None
        self._units[found[1]].look_ms = now_ms + LOOK_AGAIN_MS
        return found[1]
