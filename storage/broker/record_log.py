"""The ports of a log: what the layers above a `Broker` call, and what another log must have to take its place.

`Broker` keeps records in a data directory of its own; a log that is replicated, or kept in an existing Kafka cluster,
has these methods and no others. Each port is as narrow as its callers: listeners and services call `RecordLog`, the
writers of records `AppendableLog`, and `TopicRequests` calls `EditableTopics`.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite, OnRecord
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.topics.catalog import TopicConfigChange, TopicPlan, TopicPlans
from muster.storage.types import Appended, AppendOrigin, Topic, TopicPartition


class LogOffsets(Protocol):
    """Where logs begin and end, for monitoring and lags."""

    @property
    def ahead(self) -> Callable[[Sequence[TopicPartition]], Awaitable[None]] | None:
        """Waits until `ends` are known, where another node or cluster has them; None: they are always known."""

    def start_offset(self, topic: str, partition: int) -> int:
        """Raises StorageError; NotKnownYet while another node is being asked, as `high_watermark` does."""

    def high_watermark(self, topic: str, partition: int) -> int:
        """Fetches end here."""

    def ends(self, places: Iterable[TopicPartition]) -> list[int]:
        """The high watermark of each, -1 where it is not known. Nothing is opened or raised."""

    def starts(self, places: Iterable[TopicPartition]) -> list[int]:
        """The first offset of each, -1 where it is not known."""

    def sizes(self, places: Iterable[TopicPartition]) -> list[int]:
        """Bytes of each one's segments on this node's disk, 0 where it has none."""


class RecordLog(LogOffsets, Protocol):
    """The topics and logs of a node, as its listeners and services call them. Errors are StorageErrors."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def settings(self) -> LogSettings: ...

    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, but for private ones."""

    def topic(self, name: str) -> Topic:
        """Raises UnknownTopicOrPartition."""

    def topic_settings(self, name: str) -> TopicSettings: ...

    def plan_change(self, name: str, changes: Mapping[str, str | None]) -> TopicConfigChange:
        """The topic with these settings; None stands for the node's default. Raises StorageError."""

    def check_writable(self, name: str) -> None:
        """Raises InvalidTopicName for an internal topic, which clients may not change."""

    def log(self, topic: str, partition: int) -> Log:
        """The partition's log. Raises UnknownTopicOrPartition, NotLeaderOrFollower, or another StorageError."""

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """(node id, leader epoch) of the partition's leader, for a client that asked another; (-1, -1): not known."""

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Give up the records below `before` (-1: all up to the high watermark). Returns the new log start."""

    def next_producer_id(self, known: int = -1, epoch: int = -1) -> tuple[int, int]:
        """(id, epoch) for an idempotent producer: the next epoch of the one it has, or a new id."""

    def on_topics_changed(self, listener: Callable[[], None]) -> None:
        """Call after topics or partition counts changed."""

    def on_append(self, listener: Callable[[str, int], None]) -> None:
        """Call with topic and partition when more can be read, possibly from the thread that flushed."""


class AppendableLog(RecordLog, Protocol):
    """A log that `GroupCommit` and `Fences` write to."""

    def append(
        self,
        topic: str,
        partition: int,
        batches: Buffer,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: TransactionGuard | None = None,
    ) -> Appended:
        """Append whole batches, all or none. The node's own writers are COORDINATOR; see `Log.append`."""

    def append_marker(self, topic: str, partition: int, marker: MarkerToWrite, now_ms: int) -> Appended:
        """End what a producer has open in this partition; see `Log.append_marker`."""

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Make what was appended to these partitions (None: all) durable."""

    def logs(self) -> Iterator[Log]:
        """The logs that this node writes."""

    def hosted_log(self, topic: str, partition: int) -> Log:
        """As `log`, or this node's copy of it: for tools, which look at one copy. Raises as `log`."""

    def next_fence_id(self) -> int:
        """A producer id that was never given before, for a fence."""

    def keep_fences(self, on_record: OnRecord) -> None:
        """Forget idle fences only where this says that no member needs them."""


class StagedLog(AppendableLog, Protocol):
    """A log that `Staging` commits to, and the directory for what is not committed yet."""

    @property
    def data_dir(self) -> str: ...


class EditableTopics(Protocol):
    """Topics that one node changes alone: what is planned first, and then made, changed or removed."""

    def topic(self, name: str) -> Topic: ...

    def check_new_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        beside: TopicPlans | None = None,
        *,
        internal: bool = False,
    ) -> TopicSettings: ...

    def check_more_partitions(self, name: str, total: int) -> None: ...

    def plan_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        internal: bool = False,
        beside: TopicPlans | None = None,
    ) -> TopicPlan: ...

    def plan_growth(self, name: str, total: int, beside: TopicPlans | None = None) -> TopicPlan: ...

    def plan_change(self, name: str, changes: Mapping[str, str | None]) -> TopicConfigChange: ...

    def make(self, plans: Sequence[TopicPlan]) -> list[Topic | StorageError]: ...

    def change(self, changes: Sequence[TopicConfigChange]) -> None: ...

    def use(self, change: TopicConfigChange, partition: int) -> None: ...

    def hide(self, names: Sequence[str]) -> None: ...

    def clear_away(self) -> None: ...

    def tell_topics(self) -> None: ...


class StandaloneLog(AppendableLog, EditableTopics, Protocol):
    """A log whose topics this node changes alone: what `LogRequests` needs."""
