"""What producers ask nodes, and nodes each other, about transactions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from tests.sim.transactions.group_node import PositionCommit
from tests.sim.transactions.logs import DataBatch, MarkerBatch


class IdAsk(NamedTuple):
    """A request to the coordinator of a transactional id; made of the node's number for it and a fresh producer id."""

    transactional_id: str
    make: Callable[[int, int], Any]


class DataAsk(NamedTuple):
    """A batch of a transaction for one partition, acks=all."""

    place: TopicPartition
    topic_id: bytes
    transactional_id: str
    level: int
    batch: DataBatch


class MarkerAsk(NamedTuple):
    """A marker for one partition; the answer is Kafka's number, 0 once it is committed."""

    place: TopicPartition
    marker: MarkerBatch


class PositionsAsk(NamedTuple):
    """Positions in a transaction, by a connection of this number."""

    commit: PositionCommit
    connection: int


class JoinedEarly:
    """An addition that is decided, and whose record is not committed yet (TX-L12)."""

    code = 0

    def __init__(self) -> None:
        self._recorded: int | None = None
        self._waiting: list[Callable[[int], None]] = []

    def finish(self, code: int) -> None:
        """The record is committed, or never will be."""
        self._recorded, waiting, self._waiting = code, self._waiting, []
        for each in waiting:
            each(code)

    def then(self, told: Callable[[int], None]) -> None:
        if self._recorded is None:
            self._waiting.append(told)
        else:
            told(self._recorded)


class IdTold(NamedTuple):
    """Who answers did not reach a coordinator: a code alone."""

    code: int
