"""Runs shards of transactional ids by the engine that runs those of groups: an adapter of the core, and its log.

`TransactionShardCore` tells a `TransactionShard` in its own events what the engine tells every core, and hands its
effects on. Markers to be written are notices, which leave once the decision is durable. `BrokerTransactionLog` keeps
the facts in `__transaction_state`, each record in a batch of its own, as Kafka does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.runtime.group_log import PartitionCountConflict, is_out_of_room, log_places, records_from
from muster.coordinator.runtime.kafka_records import EncodedTurn
from muster.coordinator.runtime.ports import (
    Entry,
    GroupLog,
    KeyValue,
    LogDamage,
    LogFailed,
    LogWithoutTransactions,
    Read,
)
from muster.coordinator.runtime.replay import LoadReport, Replayable, newest_of_each_key, slices_while_wanted
from muster.coordinator.runtime.shards import ShardKind
from muster.coordinator.runtime.transaction_records import (
    TRANSACTIONS_TOPIC,
    TransactionReadReport,
    encode_transaction,
    version_for,
)
from muster.coordinator.transactions.effects import AddPartitionsReply, TransactionEffects
from muster.coordinator.transactions.events import (
    NO_CONNECTION,
    ForgetRequest,
    TopicsDeleted,
    TransactionEvent,
    TransactionsLoaded,
    TransactionsStoodStill,
    TransactionTimer,
    UnloadTransactions,
)
from muster.coordinator.transactions.records import TransactionExpired, TransactionRecord
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import NewTopic
from muster.storage.errors import StorageError
from muster.storage.records.batch import encode_turn, read_batches
from muster.storage.types import AppendOrigin, Fetched

READ_BYTES: Final = 4 << 20
"""How much of the log one step of a replay holds in memory."""

NewestConnection: TypeAlias = Callable[[], int]
"""The number of the newest connection to this node."""


# The core
# --------


def ignore_joined(request_id: int) -> None:
    """The default of `TransactionShardCore`."""


class TransactionShardCore:
    """A `TransactionShard` as the engine's `ShardCore`. begin_life: says in which life it is, once it is loaded.
    on_joined: gets the number of each request whose partitions have joined, before their record is durable (TX-L12)."""

    def __init__(
        self,
        limits: TransactionLimits,
        index: int,
        begin_life: Callable[[int], TransactionsLoaded],
        on_joined: Callable[[int], None] = ignore_joined,
    ) -> None:
        self.shard = TransactionShard(limits, index)
        self._begin_life = begin_life
        self._on_joined = on_joined

    @property
    def deadlines(self) -> Mapping[tuple[str, ...], int]:
        return self.shard.deadlines

    def writes_nothing(self, event: Any) -> bool:
        return self.shard.writes_nothing(event)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        """There are no groups here."""
        return False

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        return False

    def committed_to(self) -> Mapping[tuple[str, bytes], int]:
        return {}

    def apply(self, record: Any) -> None:
        self.shard.apply(record)

    def step(self, event: Any, now_ms: int) -> Effects:
        told = self._event_of(event)
        if told is None:
            return Effects()
        made = self.shard.step(told, now_ms)
        for request_id, reply in made.replies:
            if isinstance(reply, AddPartitionsReply) and not reply.code:
                self._on_joined(request_id)
        return effects_of(made)

    def _event_of(self, event: Any) -> TransactionEvent | None:
        """What the engine tells every core, in the words of this one; None: it means nothing here."""
        match event:
            case events.TimerFired():
                return TransactionTimer(event.key, event.deadline_ms)
            case events.StoodStill():
                return TransactionsStoodStill(event.moved_ms)
            case events.TopicsChanged():
                return TopicsDeleted(frozenset(event.deleted), event.partitions.keys(), event.ids)
            case events.Loaded():
                return self._begin_life(self.shard.index)
            case events.Unload():
                return UnloadTransactions()
            case events.Forget():
                return ForgetRequest(event.request_id)
            case events.TurnedAway():
                return None
        told: TransactionEvent = event
        return told


def effects_of(made: TransactionEffects) -> Effects:
    """The same effects as the engine takes them, which looks into none of them."""
    out: Any = Effects()
    out.records, out.replies, out.notices = made.records, made.replies, made.notices
    out.timers, out.chores = made.timers, made.chores
    effects: Effects = out
    return effects


class TransactionCores:
    """Makes an engine's cores, and counts their lives. The limits of groups are not theirs.

    In the first life of a shard in a process every connection is younger than it; in a later one those that there were
    may bring requests that were overtaken in the life before (TX-C12).
    """

    def __init__(
        self,
        limits: TransactionLimits,
        newest_connection: NewestConnection,
        on_joined: Callable[[int], None] = ignore_joined,
    ) -> None:
        self._limits = limits
        self._on_joined = on_joined
        self._newest_connection = newest_connection
        self._lives = count(1)
        self._loaded: set[int] = set()

    def __call__(self, _: Limits, index: int) -> TransactionShardCore:
        return TransactionShardCore(self._limits, index, self._begin_life, self._on_joined)

    def _begin_life(self, index: int) -> TransactionsLoaded:
        newest = self._newest_connection() if index in self._loaded else NO_CONNECTION
        self._loaded.add(index)
        return TransactionsLoaded(next(self._lives), newest_connection=newest, orphans_follow=True)


class LedTransactionCores(TransactionCores):
    """Of a node that shares its shards with others. Its markers carry the leader epoch (TX-N1), another node may have
    coordinated before (TX-N4), and nobody tells it of open transactions (TX-N6).

    epoch_of: of a shard's partition of `__transaction_state`, which this node leads.
    """

    def __init__(
        self, limits: TransactionLimits, newest_connection: NewestConnection, epoch_of: Callable[[int], int]
    ) -> None:
        super().__init__(limits, newest_connection)
        self._epoch_of = epoch_of

    def _begin_life(self, index: int) -> TransactionsLoaded:
        epoch = self._epoch_of(index)
        newest = self._newest_connection() if epoch > 0 or index in self._loaded else NO_CONNECTION
        self._loaded.add(index)
        return TransactionsLoaded(next(self._lives), max(epoch, 0), newest)


# Facts to bytes, and back
# ------------------------


def encode_transactions(records: Iterable[TransactionRecord], level: int = 2) -> EncodedTurn:
    """Encode for a node with this `transaction.version`. Raises ValueError for a name that no record can hold."""
    return EncodedTurn(groups=[encode_transaction(record, version_for(record, level)) for record in records])


def room_probe() -> Entry:
    """A tombstone of an id that nobody can have."""
    return encode_transaction(TransactionExpired(""))


def replay_transactions(
    log: GroupLog, shard: int, core: Replayable, report: LoadReport, given_up: Callable[[], bool]
) -> None:
    """Apply the newest record of each id. Raises LogFailed when the log cannot be read, or nobody wants the shard.

    A malformed record is reported and passed over: it is one id's trouble alone.
    """
    place, read = f"{TRANSACTIONS_TOPIC}-{shard}", TransactionReadReport()
    stored = (item for item in log.read_groups(shard) if isinstance(item, KeyValue))
    newest = newest_of_each_key(slices_while_wanted(stored, place, given_up), report)
    for item in slices_while_wanted(newest, place, given_up):
        fact: Any = read.read(item, place)
        if fact is not None:
            core.apply(fact)
            report.groups += 1
            report.tombstones += isinstance(fact, TransactionExpired)
    report.malformed += read.malformed
    report.complaints += read.complaints
    report.skipped.update({f"{TRANSACTIONS_TOPIC} {kind}": times for kind, times in read.skipped.items()})


def transaction_kind(level: int) -> ShardKind:
    """Shards of transactional ids, on a node with this `transaction.version`."""
    return ShardKind(
        partial(encode_transactions, level=level), replay_transactions, room_probe, contents="transactional ids"
    )


TRANSACTIONS: Final = transaction_kind(2)


# The log
# -------


def transaction_topic(partitions: int, segment_bytes: int) -> NewTopic:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(segment_bytes),
        "max.message.bytes": str(segment_bytes),
    }
    return NewTopic(TRANSACTIONS_TOPIC, partitions, configs, internal=True)


def check_partition_count(broker: Broker, partitions: int) -> bool:
    """Whether the topic is there. Ids are spread over its partitions by a hash, so their number cannot change.

    Raises PartitionCountConflict where `partitions` is not that of the topic.
    """
    present = broker.topics().get(TRANSACTIONS_TOPIC)
    if present is not None and present.partitions != partitions:
        raise PartitionCountConflict(
            f"transaction.state.log.num.partitions is {partitions}, but the data directory's {TRANSACTIONS_TOPIC} "
            f"has {present.partitions} partitions and the place of every transactional id depends on it; set it to "
            f"{present.partitions}, or use another data directory"
        )
    return present is not None


class BrokerTransactionLog(LogWithoutTransactions):
    """`__transaction_state` in a broker, as a `GroupLog` without a ledger. The topic has to be there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        try:
            batches = [encode_turn((entry,), now_ms) for entry in groups]
            if len(batches) == 1:  # a call less
                self._broker.append(TRANSACTIONS_TOPIC, shard, batches[0], now_ms, origin=AppendOrigin.COORDINATOR)
            else:
                self._broker.append_own(TRANSACTIONS_TOPIC, shard, batches, now_ms)
        except (StorageError, OSError) as error:
            raise LogFailed(f"{TRANSACTIONS_TOPIC}-{shard}: {error}", no_room=is_out_of_room(error)) from error

    def flush(self, shards: Sequence[int]) -> None:
        try:
            self._broker.flush(log_places(TRANSACTIONS_TOPIC, shards))
        except (StorageError, OSError) as error:
            # One bad file must not take the others' shards along: find out which it is.
            failed = [shard for shard in shards if not self._can_flush(shard)]
            raise LogFailed(str(error), failed or shards) from error

    def _can_flush(self, shard: int) -> bool:
        try:
            self._broker.flush([(TRANSACTIONS_TOPIC, shard)])
        except (StorageError, OSError):
            return False
        return True

    def read_groups(self, shard: int) -> Iterator[Read | LogDamage]:
        """Every record, oldest first. Raises LogFailed for what cannot be read and was not given up."""
        place = (TRANSACTIONS_TOPIC, shard)
        try:
            # What is not durable cannot be fetched, and after a failure in this process there may be such records.
            self._broker.flush([place])
            offset, end = self._broker.start_offset(*place), self._broker.end_offset(*place)
            while offset < end:
                batches = list(read_batches(self._fetch(shard, offset).records))
                for item in records_from(offset, batches):
                    if isinstance(item, LogDamage) and not item.given_up:
                        raise LogFailed(f"{TRANSACTIONS_TOPIC}-{shard}: {item.sentence}")
                    yield item
                if not batches or batches[-1].next_offset <= offset:
                    raise OSError(f"nothing can be read at offset {offset}, but it ends at {end}")
                offset = batches[-1].next_offset
        except (StorageError, OSError) as error:
            raise LogFailed(f"{TRANSACTIONS_TOPIC}-{shard}: {error}") from error

    def _fetch(self, shard: int, offset: int) -> Fetched:
        return self._broker.fetch(TRANSACTIONS_TOPIC, shard, offset, READ_BYTES, min_one=True)

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return iter(())


if TYPE_CHECKING:
    _CONFORMS: type[GroupLog] = BrokerTransactionLog
