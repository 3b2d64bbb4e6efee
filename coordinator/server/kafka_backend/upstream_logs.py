"""The upstream's topics in place of a log of the node's own: which exist, and where their logs begin and end.

Reading and writing records is refused with a sentence.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamLogEnds, UpstreamTopics
from muster.coordinator.runtime.ports import LogFailed, LogNotReady
from muster.storage.broker.record_log import StandaloneLog
from muster.storage.errors import NotKnownYet, StorageError, UnknownTopicOrPartition
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import OnRecord
from muster.storage.topics.topics import TopicListeners
from muster.storage.types import Appended, Topic, TopicPartition


class RecordsKeptInKafka(StorageError):
    """This node has no log to do it with."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class UpstreamLogs(TopicListeners):
    """The log for listeners that ask which topics there are: a `StandaloneLog` that refuses, in words, to read or write
    records and to change topics."""

    def __init__(self, settings: Settings, cluster_id: str, topics: UpstreamTopics, ends: UpstreamLogEnds) -> None:
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
        raise self.refusal("Topics are made, changed and removed")

    check_writable = check_new_topic = check_more_partitions = _refuse
    plan_topic = plan_growth = plan_change = topic_settings = _refuse
    make = change = use = hide = clear_away = _refuse

    def log(self, topic: str, partition: int) -> Log:
        count = self.topic(topic).partitions
        if not 0 <= partition < count:
            raise UnknownTopicOrPartition(
                f"Topic '{topic}' has no partition {partition}; its partitions are 0 to {count - 1}."
            )
        raise self.refusal(f"Records of '{topic}' are written and read")

    def logs(self) -> Iterator[Log]:
        return iter(())

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Nothing was written."""

    def append(self, topic: str, partition: int, batches: Buffer, now_ms: int, *, trusted: bool = False) -> Appended:
        raise self.refusal(f"Records of '{topic}' are written and read")

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        self.log(topic, partition)
        raise AssertionError("it is refused there")

    def next_producer_id(self, known: int = -1, epoch: int = -1) -> tuple[int, int]:
        raise self.refusal("Records are written and read")

    def next_fence_id(self) -> int:
        raise self.refusal("Records are written and read")

    def keep_fences(self, on_record: OnRecord) -> None:
        """There are none."""


if TYPE_CHECKING:
    _CONFORMS: type[StandaloneLog] = UpstreamLogs
