"""The states of a transactional id, the legal moves between them, and the facts that the log keeps of each id.

`TransactionStored` is the whole hard state of one id: the last record of a key replaces the ones before it. States,
numbers and names are Kafka's (KIP-98, KIP-890).
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Final, TypeAlias

from muster.coordinator.values import frozen_value

TopicPartition: TypeAlias = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1

LAST_CLIENT_EPOCH: Final = 32_766
"""The last epoch that a client is given. The next one, 32767, is for a last marker only."""
LAST_EPOCH: Final = 32_767

MAX_ID_BYTES: Final = 32_767
"""The longest transactional id, in UTF-8 bytes: a record's key holds no longer string."""


class TransactionState(IntEnum):
    """The state of a transactional id, by its number in a record. The last two are never written here."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name of it.

        >>> TransactionState.PREPARE_COMMIT.title
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")

    @property
    def prepared(self) -> bool:
        """Whether the transaction is decided and its markers are under way."""
        return self in COMPLETES

    @property
    def idle(self) -> bool:
        """Whether no transaction is open or under way."""
        return self in IDLE


IDLE: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

MOVES: Final[Mapping[TransactionState, tuple[TransactionState | None, ...]]] = {
    TransactionState.EMPTY: (None, *IDLE),
    TransactionState.ONGOING: (*IDLE, TransactionState.ONGOING),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (*IDLE, TransactionState.ONGOING),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
}
"""State -> the states that it may follow; None: the id is new. Any other move is a bug."""

COMPLETES: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class IllegalMove(Exception):
    """A bug in the coordinator: a state follows one that it may not follow. The shard is dropped and replayed."""


def check_move(transactional_id: str, before: TransactionState | None, after: TransactionState) -> None:
    """Raises IllegalMove."""
    if before not in MOVES.get(after, ()):
        known = "a new id" if before is None else before.title
        raise IllegalMove(f"transactional id {transactional_id!r}: {after.title} cannot follow {known}")


@frozen_value
class TransactionStored:
    """Everything the log keeps of one transactional id. Times are milliseconds since 1970, -1 for none.

    partitions: topic -> partition numbers, ascending; topics in the order in which they joined. epoch: of the producer
    id; in a prepared state, the one that the markers carry. client_level: `transaction.version` by which the
    transaction began or ends (0 or 2). previous_producer_id: the producer id before this move. next_producer_id: the
    one that replaces it once the transaction is complete, -1 for none.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_level: int = 0

    @property
    def places(self) -> list[TopicPartition]:
        return [(topic, number) for topic, numbers in self.partitions.items() for number in numbers]

    @property
    def size(self) -> int:
        """How many partitions the transaction has."""
        return sum(len(numbers) for numbers in self.partitions.values())


@frozen_value
class TransactionExpired:
    """The id is forgotten: a tombstone."""

    transactional_id: str


TransactionRecord: TypeAlias = TransactionStored | TransactionExpired


def join_partitions(known: Mapping[str, tuple[int, ...]], added: Mapping[str, set[int]]) -> dict[str, tuple[int, ...]]:
    """The partitions of a transaction after more have joined: topics keep their order, partitions are sorted.

    >>> join_partitions({"b": (1,)}, {"c": {2}, "b": {0}, "a": {3, 1}})
    {'b': (0, 1), 'a': (1, 3), 'c': (2,)}
    """
    joined = dict(known)
    for topic in sorted(added):
        joined[topic] = tuple(sorted(added[topic].union(joined.get(topic, ()))))
    return joined
