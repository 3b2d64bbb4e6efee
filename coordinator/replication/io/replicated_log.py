"""The log as a cluster node's listeners see it: all topics of the cluster, and the records that the node leads.

It takes the place of the `Broker` of a single node and answers in the same terms; which topics exist comes from the
image.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.remote_log_ends import LogSpan, RemoteLogEnds
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    ClusterImage,
    ImageChanges,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import StagedLog
from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import (
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicOrPartition,
)
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite, OnRecord
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.topics.catalog import PRIVATE_TOPICS, TopicConfigChange, check_not_internal, plan_topic_change
from muster.storage.topics.topics import TopicListeners
from muster.storage.types import Appended, AppendOrigin, Topic
from muster.storage.types import TopicPartition as Place

NewIds: TypeAlias = Callable[[int, int], tuple[int, int]]
"""(id, epoch) for a producer that has (id, epoch), or (-1, -1); see `Broker.next_producer_id`."""


class ReplicaSide(Protocol):
    """What is asked of a `ReplicaManager`."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def replicas(self) -> NodeReplicas: ...

    def on_learned(self, listener: Callable[[ImageChanges], None]) -> None: ...

    def on_moved(self, listener: Callable[[TopicPartition], None]) -> None: ...


class ReplicatedLog(TopicListeners):
    """The log for clients, over the `Broker` that holds this node's copies: a `StagedLog`.

    What reads and writes records asks `log`; what is said of topics comes from the image, and is made anew for those
    that a change of it names. Who only measures (`ends`, `starts`, `sizes`, `high_watermark`, `start_offset`) is told
    of any copy that is in sync here: a follower's high watermark is at most a fetch behind; of other partitions what
    their leaders say, once somebody asks them (`asks_elsewhere`). What a node does to its disk is done to the `Broker`
    itself; topics are changed by `ClusterTopics`.
    """

    ahead: Callable[[Sequence[Place]], Awaitable[None]] | None = None
    """Waits until leaders elsewhere have answered; None before `asks_elsewhere`."""

    def __init__(
        self,
        broker: Broker,
        side: ReplicaSide,
        new_ids: NewIds | None = None,
        new_fence: Callable[[], int] | None = None,
    ) -> None:
        """broker: as opened by this node. side: listened to from here on. new_ids, new_fence: what gives producer ids
        out that no other node gives (CL-A4); None: this node's own.
        """
        super().__init__()
        self.data_dir = broker.data_dir
        self.settings: LogSettings = broker.settings
        self.cluster_id = broker.cluster_id
        self.holds = broker.holds
        self._disk = broker
        self._new_ids = new_ids or broker.next_producer_id
        self._new_fence = new_fence or broker.next_fence_id
        self._image = side.image
        self._replicas = side.replicas
        self._elsewhere: RemoteLogEnds | None = None
        self._known: dict[str, Topic] = {}
        self._shown: Mapping[str, Topic] = MappingProxyType({})
        self._refresh_topics(side.image.topics)
        side.on_learned(self._learned)
        side.on_moved(self._moved)

    # -- topics -------------------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, Topic]:
        """All topics of the cluster by name, but for private ones."""
        return self._shown

    def topic(self, name: str) -> Topic:
        topic = self._shown.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"There is no topic '{name}'. Create it first, or check its spelling.")
        return topic

    def topic_settings(self, name: str) -> TopicSettings:
        return self.settings.for_topic(self.topic(name).configs)

    def plan_change(self, name: str, changes: Mapping[str, str | None]) -> TopicConfigChange:
        """What the topic would be; `ClusterTopics` changes it."""
        return plan_topic_change(self.topic(name), self.settings, changes)

    def check_writable(self, name: str) -> None:
        """InvalidTopicName for an internal topic, which clients may not change."""
        check_not_internal(self.topic(name))

    def _learned(self, changes: ImageChanges) -> None:
        """The image has changed, and the replicas have taken it in."""
        new = (moved.place.topic for moved in changes.partitions if moved.before is None)
        if self._refresh_topics({*changes.configs, *changes.unknown, *changes.deleted.values(), *new}):
            self.tell_topics()

    def _refresh_topics(self, names: Iterable[str]) -> bool:
        """Look at these topics anew; whether one of them is new, gone or larger."""
        known = dict(self._known)
        for name in names:
            view = self._image.topics.get(name)
            known.pop(name, None)
            if view is not None and name not in PRIVATE_TOPICS:
                known[name] = topic_from_view(view)
        told = known.keys() != self._known.keys() or any(
            (topic.id, topic.partitions) != (self._known[name].id, self._known[name].partitions)
            for name, topic in known.items()
        )
        self._known = known
        self._shown = MappingProxyType(known)
        return told

    # -- logs ---------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """The log of a partition that this node leads now.

        UnknownTopicOrPartition where the cluster has none; NotLeaderOrFollower, which says who leads, elsewhere;
        StorageError where the copy that would lead is broken (CL-F9).
        """
        led = self._replicas.led.get((topic, partition))  # type: ignore[call-overload]
        if led is None or led.leader.over or led.leader.passed_by:
            raise self._no_log(topic, partition)
        return self._disk.log(topic, partition)

    def hosted_log(self, topic: str, partition: int) -> Log:
        """See `AppendableLog`; a copy has what its leader sent until now."""
        if topic not in PRIVATE_TOPICS and TopicPartition(topic, partition) in self._replicas.copies:
            return self._disk.log(topic, partition)
        return self.log(topic, partition)

    def _no_log(self, topic: str, partition: int) -> StorageError:
        place = TopicPartition(topic, partition)
        view = None if topic in PRIVATE_TOPICS else self._image.partition(place)
        if view is None:
            count = self.topic(topic).partitions
            return UnknownTopicOrPartition(
                f"Topic '{topic}' has no partition {partition}; its partitions are 0 to {count - 1}."
            )
        if view.leader == NO_NODE_ID:
            return NotLeaderOrFollower(
                f"Nobody leads partition {place} at present. Try again.", NO_NODE_ID, view.leader_epoch
            )
        if view.leader != self._replicas.me:
            return NotLeaderOrFollower(
                f"Partition {place} is led by node {view.leader}, in leader epoch {view.leader_epoch}. Ask there.",
                view.leader,
                view.leader_epoch,
            )
        if place in self._replicas.offline:
            return StorageError(f"Partition {place} is out of order on this node: {self._replicas.offline[place][1]}")
        led = self._replicas.led.get(place)
        if led is not None and led.leader.passed_by:
            return NotLeaderOrFollower(
                f"This node has led partition {place}, but reaches neither ZooKeeper nor any replica in sync: another "
                "one may lead by now. Look its leader up at another node.",
                NO_NODE_ID,
                NO_EPOCH,
            )
        return NotLeaderOrFollower(
            f"This node leads partition {place} no more. Look its leader up.", NO_NODE_ID, NO_EPOCH
        )

    def gone(self, place: TopicPartition) -> NotLeaderOrFollower:
        """The refusal of what waited here for the copies of others."""
        return NotLeaderOrFollower(
            f"This node leads {place} no more, and does not know what of it is committed. What was written may yet "
            "survive; an idempotent producer can safely send it again, to the leader.",
            *self.leader_of(*place),
        )

    def too_few(self, topic: str, partition: int) -> NotEnoughReplicas | None:
        """CL-L2: why nothing may be written here with acks=all. None as well where nobody may write at all: `log` says
        why."""
        led = self._replicas.led.get((topic, partition))  # type: ignore[call-overload]
        if led is None or led.leader.may_append(ALL) is not ErrorCode.NOT_ENOUGH_REPLICAS:
            return None
        in_sync = led.leader.in_sync
        return NotEnoughReplicas(
            f"Of {topic}-{partition} the replicas {in_sync.committed} are in sync, but acks=all asks for "
            f"{in_sync.min_size} (min.insync.replicas). Nothing was written; try again when nodes are back."
        )

    def knows_latest(self, topic: str, partition: int) -> bool:
        """CL-L8: whether this node's high watermark has passed all that earlier leaders may have committed. True where
        it does not lead: `log` says so."""
        led = self._replicas.led.get((topic, partition))  # type: ignore[call-overload]
        return led is None or led.leader.latest(led.half) is not None

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """(leader, leader epoch) as the image has it; (-1, -1) for what it does not know."""
        return self._replicas.leader_of(TopicPartition(topic, partition))

    def logs(self) -> Iterator[Log]:
        """The logs that this node leads, but for private ones. In any thread; what goes meanwhile is passed over."""
        for place in list(self._replicas.led):
            if place.topic not in PRIVATE_TOPICS:
                with suppress(StorageError):
                    yield self.log(*place)

    # -- records ------------------------------------------------------------------------------------------

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
        """See `Broker.append`; NotEnoughReplicas as with acks=all. Who calls it waits with `GroupCommit.flushed`."""
        log = self._appendable(topic, partition)
        if origin is AppendOrigin.CLIENT:
            self.check_writable(topic)
        return log.append(batches, now_ms, origin=origin, guard=guard)

    def append_marker(self, topic: str, partition: int, marker: MarkerToWrite, now_ms: int) -> Appended:
        """See `Log.append_marker`; NotEnoughReplicas as with acks=all."""
        return self._appendable(topic, partition).append_marker(marker, now_ms)

    def _appendable(self, topic: str, partition: int) -> Log:
        log = self.log(topic, partition)
        if (refusal := self.too_few(topic, partition)) is not None:
            raise refusal
        return log

    def asks_elsewhere(self, ends: RemoteLogEnds) -> None:
        """From here on it is known where logs begin and end that are not here."""
        self._elsewhere = ends
        self.ahead = self._ask_ahead

    async def _ask_ahead(self, places: Sequence[Place]) -> None:
        assert self._elsewhere is not None, "it is there before this is"
        away = [place for place in places if not self.in_sync(place)]
        if away:
            self._elsewhere.spans(away)
            if self._elsewhere.untried:
                await self._elsewhere.known()

    def in_sync(self, place: Place) -> bool:
        """Whether this node has a copy of it with all that is committed, but for the last moment."""
        view = self._image.partition(TopicPartition(*place))
        return view is None or self._replicas.me in view.isr

    def start_offset(self, topic: str, partition: int) -> int:
        """Raises NotKnownYet, as `high_watermark` does, where another node is being asked."""
        if self._elsewhere is None or self.in_sync((topic, partition)):
            return self._disk.start_offset(topic, partition)
        return self._elsewhere.span((topic, partition)).start

    def end_offset(self, topic: str, partition: int) -> int:
        return self._disk.end_offset(topic, partition)

    def high_watermark(self, topic: str, partition: int) -> int:
        if self._elsewhere is None or self.in_sync((topic, partition)):
            return self._disk.high_watermark(topic, partition)
        return self._elsewhere.span((topic, partition)).end

    def ends(self, places: Iterable[Place]) -> list[int]:
        asked = list(places)
        return self._measured(asked, self._disk.ends(asked), lambda span: span.end)

    def starts(self, places: Iterable[Place]) -> list[int]:
        asked = list(places)
        return self._measured(asked, self._disk.starts(asked), lambda span: span.start)

    def _measured(self, places: list[Place], here: list[int], of: Callable[[LogSpan], int]) -> list[int]:
        """What is known here, and of the others what their leaders said; -1 where that is not known (yet)."""
        if self._elsewhere is None:
            return here
        away = [at for at, place in enumerate(places) if not self.in_sync(place)]
        for at, span in zip(away, self._elsewhere.spans([places[at] for at in away]), strict=True):
            here[at] = -1 if span is None else of(span)
        return here

    def sizes(self, places: Iterable[Place]) -> list[int]:
        return self._disk.sizes(places)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """See `Broker.delete_records`, of a log that this node leads."""
        self.log(topic, partition)
        start = self._disk.delete_records(topic, partition, before)
        self._moved(TopicPartition(topic, partition))  # The last stable offset may have moved along (TX-L8).
        return start

    def flush(self, partitions: Iterable[Place] | None = None) -> None:
        self._disk.flush(partitions)

    def next_producer_id(self, known: int = -1, epoch: int = -1) -> tuple[int, int]:
        return self._new_ids(known, epoch)

    def next_fence_id(self) -> int:
        return self._new_fence()

    def keep_fences(self, on_record: OnRecord) -> None:
        self._disk.keep_fences(on_record)

    def _moved(self, place: TopicPartition) -> None:
        """More of it is committed, or it is led here no more: either is to be told to who waits for its records."""
        for listener in self._append_listeners:
            listener(*place)


def topic_from_view(view: TopicView) -> Topic:
    """A topic of the image, as the log's edges know topics."""
    return Topic(view.name, view.topic_id, max(view.partitions, default=-1) + 1, view.configs, view.internal)


if TYPE_CHECKING:
    _CONFORMS: type[StagedLog] = ReplicatedLog
