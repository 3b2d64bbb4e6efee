"""What the runtime needs of the world outside: protocols, and what a log says that takes no transactions."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from muster.coordinator.core.model.records import TxnMarked
from muster.coordinator.errors import ErrorCode


class LogFailed(Exception):
    """The log could not keep, or give back, what it was asked for. The shards named are dropped and replayed.

    `shards` None means: every shard that the call was about. `no_room`: nothing is wrong but that it is full.
    """

    def __init__(self, sentence: str, shards: Collection[int] | None = None, *, no_room: bool = False) -> None:
        super().__init__(sentence)
        self.shards = shards
        self.no_room = no_room


class LogNotReady(LogFailed):
    """What another node is asked for is not there yet. `wait`, for a thread, returns when it is, or takes too long."""

    def __init__(self, sentence: str, wait: Callable[[], None]) -> None:
        super().__init__(sentence)
        self.wait = wait


class LastKnownExtent(NamedTuple):
    """Where a log began and ended when its leader last said so: it does not answer now."""

    start: int
    end: int


class KeyValue(NamedTuple):
    """One record of an internal topic. `value` None is a tombstone."""

    key: bytes
    value: bytes | None
    offset: int = -1
    """Where it stands in the log; -1 as long as it is not there."""


class TxnProducer(NamedTuple):
    """Whose transaction a batch belongs to."""

    id: int
    epoch: int


class TxnBatchRead(NamedTuple):
    """A batch of a producer's transaction as it stands in the log: it counts if a marker commits it."""

    producer: TxnProducer
    records: tuple[KeyValue, ...]

    @property
    def offset(self) -> int:
        """Of its last record."""
        return self.records[-1].offset


class TxnMarkerFound(NamedTuple):
    """A marker as it stands in the log: the producer's transaction ends there."""

    producer: TxnProducer
    commit: bool
    offset: int


Read: TypeAlias = KeyValue | TxnBatchRead | TxnMarkerFound
"""What an internal topic is made of."""

Entry: TypeAlias = tuple[bytes, bytes | None, int]
"""A record that is to be written: a `KeyValue`, or a plain tuple of its fields, which takes a quarter of the time to
make. Commits bring them by the dozen. Its offset means nothing."""


class LogDamage(NamedTuple):
    """A part of an internal topic that cannot be read, and why."""

    offset: int
    sentence: str
    next_offset: int
    """Where it ends."""
    given_up: bool = False
    """An operator has taken it out: the rest is to be served without it."""


class GroupLog(Protocol):
    """The two internal topics of one shard: `__consumer_offsets` (groups, offsets) and `__rebalances` (ledger)."""

    def draft(self) -> list[Entry]:
        """An empty list for records that come by `extend`, a portion at a time, and are appended as one in the end.

        What a log can do to them in advance it does then.
        """

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        """Write one batch per topic that has records, ledger first. Raises LogFailed; then nothing counts as kept.

        The ledger explains: a part of it that cannot be written is lost, and no reason to refuse the groups' facts.
        """

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        """Write the groups' records as a batch of a producer's transaction (TX-G3). Raises LogFailed.

        `guard`: leave of the transaction's coordinator to begin it there, as the edge got it (TX-L3).
        """

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        """Write that the producer's transaction ends (TX-G4). Raises LogFailed."""

    def transaction_refusal(self, shard: int, producer: TxnProducer, guard: object | None) -> ErrorCode:
        """Why a batch of the producer's transaction would be refused now; NONE: it would not. Raises LogFailed."""

    def marker_refusal(self, shard: int, marker: TxnMarked) -> ErrorCode:
        """Why the marker would be refused now (TX-L5); NONE: it would not. Raises LogFailed."""

    def flush(self, shards: Sequence[int]) -> None:
        """Return once all facts appended to these shards before the call are durable. Raises LogFailed. Any thread."""

    def read_groups(self, shard: int) -> Iterator[Read | LogDamage]:
        """Every record of the shard's part of `__consumer_offsets`, oldest first, and which were given up.

        Raises LogFailed for what cannot be read and was not given up.
        """

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        """What can be read of the shard's part of `__rebalances`, oldest first, and what cannot."""


class LogWithoutTransactions:
    """The part of a `GroupLog` that is about transactions, where it takes none."""

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        raise LogFailed(f"the log of shard {shard} takes no transactions, but producer {producer.id} has one")

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        raise LogFailed(f"the log of shard {shard} takes no markers, but producer {marker.producer_id} has one")

    def transaction_refusal(self, shard: int, producer: TxnProducer, guard: object | None) -> ErrorCode:
        return ErrorCode.UNSUPPORTED_VERSION

    def marker_refusal(self, shard: int, marker: TxnMarked) -> ErrorCode:
        return ErrorCode.UNSUPPORTED_VERSION
