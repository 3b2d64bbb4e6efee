"""A copy that cannot be used is taken away, and made anew from its leader's, as soon as nobody counts on it.

As long as this node is in sync, or eligible, its copy may be the only one that has all that was acknowledged: then it
stays as it is, and an operator decides.
"""

from typing import Final, Protocol

import structlog

from muster.coordinator.replication.protocol.facts import TopicPartition
from muster.coordinator.replication.protocol.ports import LogBroken
from muster.coordinator.replication.protocol.replicas import NodeReplicas

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

    def look(self, now_ms: int) -> bool:
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
            security_logger.warning("a damaged copy stays", partition=str(self._place), why=str(error))
            return False
        security_logger.warning(
            "a damaged copy is removed, and made anew from its leader's", partition=str(self._place), why=why
        )
        self._since_ms = None
        self._replicas.copy_anew(self._place, now_ms)
        return True
