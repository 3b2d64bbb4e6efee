"""The upstream's topics in place of a log of the node's own: which exist, and where their logs begin and end.

Reading and writing records is refused with a sentence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.runtime.ports import LogFailed, LogNotReady
from muster.storage.broker.fetches import FetchLimits, FetchPosition, FetchRead
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import (
    Batches,
    Changes,
    Found,
    GivenUp,
    MorePartitions,
    NewTopic,
    OffsetByTime,
    RecordRequests,
    check_single_node,
)
from muster.storage.errors import NotKnownYet, StorageError, UnknownTopicOrPartition
from muster.storage.logs.log import Log
from muster.storage.topics.topics import TopicListeners
from muster.storage.types import Appended, Topic, TopicPartition

TOPICS_CHANGE: Final = "Topics are made, changed and removed"


class RecordsKeptInKafka(StorageError):
    """This node has no log to do it with."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicsTold(Protocol):
    """`UpstreamTopics`, as far as it is asked here."""

    @property
    def internal(self) -> frozenset[str]: ...

    def partitions(self) -> Mapping[str, int]: ...

    def ids(self) -> Mapping[str, bytes]: ...

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None: ...

    def leader(self, topic: str, partition: int) -> int: ...


class LogEndsTold(Protocol):
    """`UpstreamLogEnds`, as far as it is asked here."""

    def span(self, topic: str, partition: int) -> tuple[int, int]: ...

    def ends(self, places: Iterable[TopicPartition]) -> list[int]: ...

    def starts(self, places: Iterable[TopicPartition]) -> list[int]: ...

    async def ahead(self, places: Sequence[TopicPartition]) -> None: ...

    def forget(self, topics: Iterable[str]) -> None: ...


class UpstreamLog(TopicListeners):
    """The log for listeners that ask which topics there are: a `RecordLog` that refuses, in words, to read or write
    records and to change topics."""

    def __init__(self, settings: Settings, cluster_id: str, topics: TopicsTold, ends: LogEndsTold) -> None:
        """cluster_id: the upstream's."""
        super().__init__()
        self.settings = settings
        self.cluster_id = cluster_id
        self._told = topics
        self._ends = ends
        self._shown = self._known()
        self.ahead = ends.ahead
        topics.on_change(self._changed)

    # -- topics -----------------------------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, Topic]:
        """All topics of the upstream by name, as far as this node may see them."""
        return self._shown

    def topic(self, name: str) -> Topic:
        topic = self._shown.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(
                f"The upstream has no topic '{name}', or shows none to this node. Make it with Kafka's tools, or check "
                "its spelling."
            )
        return topic

    def _known(self) -> dict[str, Topic]:
        ids, internal = self._told.ids(), self._told.internal
        return {
            name: Topic(name, ids.get(name, b""), count, {}, name in internal)
            for name, count in self._told.partitions().items()
        }

    def _changed(self, change: TopicsChanged) -> None:
        self._ends.forget(change.deleted)
        self._shown = self._known()
        self.tell_topics()

    # -- where logs end -----------------------------------------------------------------------------------------------

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        """See `UpstreamLogEnds.span`. Raises LogNotReady and LogFailed."""
        return self._ends.span(topic, partition)

    def start_offset(self, topic: str, partition: int) -> int:
        return self._span(topic, partition)[0]

    def high_watermark(self, topic: str, partition: int) -> int:
        return self._span(topic, partition)[1]

    def _span(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            return self._ends.span(topic, partition)
        except LogNotReady as error:
            raise NotKnownYet(str(error), error.wait) from error
        except LogFailed as error:
            raise StorageError(str(error)) from error

    def ends(self, places: Iterable[TopicPartition]) -> list[int]:
        return self._ends.ends(places)

    def starts(self, places: Iterable[TopicPartition]) -> list[int]:
        return self._ends.starts(places)

    def sizes(self, places: Iterable[TopicPartition]) -> list[int]:
        """Nothing of it is on this node's disk."""
        return [0 for _ in places]

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """The upstream's broker; its epoch is not told."""
        return self._told.leader(topic, partition), -1

    # -- what is not here ---------------------------------------------------------------------------------------------

    def refusal(self, what: str) -> RecordsKeptInKafka:
        """what: a sentence's beginning, such as "Topics are made"."""
        return RecordsKeptInKafka(
            f"{what} in the Kafka cluster at {self.settings.engine.removeprefix('kafka://')}, not by this node, "
            "whose engine it is. Use Kafka's own clients and tools there."
        )

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self.refusal(TOPICS_CHANGE)

    check_writable = plan_change = topic_settings = _refuse

    def log(self, topic: str, partition: int) -> Log:
        raise self.record_refusal(topic, partition)

    def record_refusal(self, topic: str, partition: int) -> StorageError:
        """Why no record of this partition is written or read here."""
        try:
            count = self.topic(topic).partitions
        except UnknownTopicOrPartition as unknown:
            return unknown
        if not 0 <= partition < count:
            return UnknownTopicOrPartition(
                f"Topic '{topic}' has no partition {partition}; its partitions are 0 to {count - 1}."
            )
        return self.refusal(f"Records of '{topic}' are written and read")

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        raise self.record_refusal(topic, partition)

    def next_producer_id(self, known: int = -1, epoch: int = -1) -> tuple[int, int]:
        raise self.refusal("Records are written and read")


class UpstreamTopicChanges:
    """Changes of the upstream's topics: refused, one by one."""

    def __init__(self, logs: UpstreamLog) -> None:
        self._logs = logs

    def check_new(self, wanted: NewTopic) -> None:
        check_single_node(wanted)
        raise self._refusal()

    def check_growth(self, wanted: MorePartitions) -> None:
        raise self._refusal()

    async def create(self, wanted: Sequence[NewTopic]) -> list[Topic | StorageError]:
        return [self._refusal_of(partial(check_single_node, each)) for each in wanted]

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]:
        return [self._refusal() for _ in wanted]

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        return [self._refusal_of(changes if callable(changes) else dict) for _, changes in wanted]

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        return [self._refusal_of(partial(self._logs.topic, topic.name)) for topic in topics]

    async def close(self) -> None:
        """Nothing is under way."""

    def _refusal_of(self, look: Callable[[], object]) -> StorageError:
        """look: what is asked is looked at first; what is wrong with it is the refusal then."""
        try:
            look()
        except StorageError as wrong:
            return wrong
        return self._refusal()

    def _refusal(self) -> StorageError:
        return self._logs.refusal(TOPICS_CHANGE)


class UpstreamRequests:
    """The requests of a node without a log: refused, each partition and topic in words."""

    parked = 0

    def __init__(self, logs: UpstreamLog) -> None:
        self.broker = logs
        self.topics = UpstreamTopicChanges(logs)

    async def produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> list[Appended | StorageError]:
        return [self.broker.record_refusal(topic, partition) for topic, partition, _ in parts]

    async def fetch(
        self, places: Sequence[FetchPosition], bounds: FetchLimits, max_wait_ms: int, begun: FetchRead | None = None
    ) -> Found:
        return [self.broker.record_refusal(*place[:2]) for place in places]

    def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> OffsetByTime:
        raise self.broker.record_refusal(topic, partition)

    async def delete_records(self, asked: Sequence[GivenUp], timeout_ms: int) -> list[int | StorageError]:
        return [self.broker.refusal(TOPICS_CHANGE) for _ in asked]

    async def close(self) -> None:
        """Nothing is under way."""


if TYPE_CHECKING:
    _CONFORMS: type[RecordLog] = UpstreamLog
    _REQUESTS: type[RecordRequests] = UpstreamRequests
