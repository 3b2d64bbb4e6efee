"""Copies that are made again from their leaders' once no node counts on them (CL-F9).

These are copies with records that are not as they were written, which the node removes first, and copies that an
operator has removed while the node was stopped. While this node is in the ISR or ELR by the image, its copy may be the
only one with everything that was acknowledged: then it waits. The copy of `__security` has its own repair, since it is
checked whole.
"""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

import structlog

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition, halves_of, unit_of
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.replication.protocol.replica_fetch import LogBroken

# Corrupt copies, and those of which nothing is left
# --------------------------------------------------

AFTER_MS: Final = 15_000
"""In which the controller has heard that the copy is offline, so that it lets it into no ISR."""

log = structlog.get_logger("muster.replication")


class HeldCopies(Protocol):
    """See `StoredLogs`."""

    def is_gone(self, place: TopicPartition) -> bool: ...

    def give_up(self, place: TopicPartition) -> None: ...


class OfflineCopies(Protocol):
    """See `Replicas`."""

    @property
    def offline(self) -> Iterable[TopicPartition]: ...

    def is_missed(self, unit: TopicPartition) -> bool: ...

    def corrupt_halves(self, unit: TopicPartition) -> Collection[TopicPartition]: ...

    def copy_anew(self, unit: TopicPartition, now_ms: int) -> None: ...


class CopyRepair:
    """Of all copies of a node but those that are `others`' to mend."""

    def __init__(self, replicas: OfflineCopies, logs: HeldCopies, others: Collection[str] = ()) -> None:
        self._replicas = replicas
        self._logs = logs
        self._others = others
        self._since_ms: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, str] = {}
        """Why each was not made anew, as far as the log has it."""

    def repair_copies(self, now_ms: int) -> bool:
        """From time to time. Whether one has begun to be copied."""
        offline = dict.fromkeys(unit_of(place) for place in self._replicas.offline if place.topic not in self._others)
        self._since_ms = {unit: self._since_ms.get(unit, now_ms) for unit in offline}
        self._told = {unit: why for unit, why in self._told.items() if unit in offline}
        due = [unit for unit, since_ms in self._since_ms.items() if now_ms - since_ms >= AFTER_MS]
        return bool([unit for unit in due if self._mended(unit, now_ms)])

    def _mended(self, unit: TopicPartition, now_ms: int) -> bool:
        try:
            corrupt = self._replicas.corrupt_halves(unit)
            lost = [half for half in halves_of(unit) if half in corrupt or self._logs.is_gone(half)]
            if not lost or self._replicas.is_missed(unit):
                return False
            for half in lost:
                self._logs.give_up(half)
        except LogBroken as error:
            self._log_reason(unit, str(error))
            return False
        if corrupt:
            log.warning("a damaged replica is removed, and copied again from its leader", partition=str(unit))
        else:
            log.warning("a replica's directory is gone: it is copied again from its leader", partition=str(unit))
        del self._since_ms[unit]
        self._replicas.copy_anew(unit, now_ms)
        return True

    def _log_reason(self, unit: TopicPartition, why: str) -> None:
        if self._told.get(unit) != why:
            self._told[unit] = why
            log.warning("an offline replica is not copied again", partition=str(unit), why=why)


# The copy of `__security`
# ------------------------

SECURITY_AFTER_MS: Final = 15_000
"""In which the controller has heard that the copy is offline, so that it lets it into no ISR."""

security_logger = structlog.get_logger("muster.security")


class HeldSecurityCopy(Protocol):
    """See `StoredLogs`."""

    def give_up(self, place: TopicPartition) -> None: ...


class SecurityCopyRepair:
    def __init__(self, place: TopicPartition, replicas: NodeReplicas, logs: HeldSecurityCopy) -> None:
        self._place = place
        self._replicas = replicas
        self._logs = logs
        self._since_ms: int | None = None

    def repair_copy(self, now_ms: int) -> bool:
        """From time to time. Whether it has begun to copy."""
        if self._place not in self._replicas.offline:
            self._since_ms = None
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms < SECURITY_AFTER_MS or self._replicas.is_missed(self._place):
            return False
        why = self._replicas.offline[self._place][1]
        try:
            self._logs.give_up(self._place)
        except LogBroken as error:
            security_logger.warning("a damaged replica cannot be removed", partition=str(self._place), why=str(error))
            return False
        security_logger.warning(
            "a damaged replica is removed, and copied again from its leader", partition=str(self._place), why=why
        )
        self._since_ms = None
        self._replicas.copy_anew(self._place, now_ms)
        return True
