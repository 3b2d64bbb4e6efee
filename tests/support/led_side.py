"""Node 1 of a cluster without doors or followers: a real log on a disk in memory, the replicas over it, and a side that
does what a `ClusterSide` does when it is told to. Followers fetch, flushes end and images change by hand."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.commit_waits import CommitWaits, LocalWaits, LogStartWaits
from muster.coordinator.replication.io.replica_logs import StoredLogs
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.replicated_requests import ReplicatedRequests
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterImage,
    ClusterState,
    ImageChanges,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.storage.logs.log import Log
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, open_broker

HERE, THERE, YONDER, CONTROLLER = 1, 2, 3, 9
ALL = (HERE, THERE, YONDER)
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = b"o" * 16
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def partition(leader: int = HERE, epoch: int = 3, isr: tuple[int, ...] = ALL, version: int = 0) -> PartitionView:
    """version: how often its in-sync replicas have changed in the epoch."""
    return PartitionView(leader, epoch, 100 * epoch + version, isr, (), ALL)


def topic(
    *partitions: PartitionView,
    name: str = "orders",
    topic_id: bytes = TOPIC_ID,
    configs: Mapping[str, str] = NO_CONFIGS,
    deleted: bool = False,
) -> TopicView:
    return TopicView(topic_id, name, {"min.insync.replicas": "2", **configs}, dict(enumerate(partitions)), deleted)


class UnchangedTopics:
    """The topic requests of nodes whose topics the test changes: only `close` is called."""

    async def close(self) -> None:
        """Nothing was begun."""

    def _changes_nothing(self, wanted: Any) -> Any:
        raise AssertionError("topics are changed by the test")

    check_new = check_growth = create = grow = change = delete = _changes_nothing


class LedSide:
    """The side, and what is over it: `led`, `requests`."""

    def __init__(self, *topics: TopicView, **settings: object) -> None:
        self.files = MemoryFiles()
        self.broker = open_broker(self.files, **settings)
        self.image = ClusterImage()
        self.logs = StoredLogs(self.broker, self.image.topics.get, lambda: T0)
        self.replicas = NodeReplicas(HERE, self.logs, ReplicaSettings(lag_time_ms=1_000), 0)
        self.replicas.registered(10)
        self.committing = CommitWaits(self.replicas)
        self.keeping = LocalWaits(self.replicas)
        self.starting = LogStartWaits(self.replicas)
        self.grew: list[TopicPartition] = []
        self._learners: list[Callable[[ImageChanges], None]] = []
        self._movers: list[Callable[[TopicPartition], None]] = []
        self._sequence = 0
        self.hears(*topics, nodes=tuple(NodeView(node, 10 * node) for node in ALL))
        self.led = ReplicatedLog(self.broker, self)
        self.requests = ReplicatedRequests(self.led, self, UnchangedTopics(), clock_ms=lambda: T0)

    # What a `ClusterSide` is asked.

    def on_learned(self, listener: Callable[[ImageChanges], None]) -> None:
        self._learners.append(listener)

    def on_moved(self, listener: Callable[[TopicPartition], None]) -> None:
        self._movers.append(listener)

    def grown(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.grew.append(place)
            if place in self.replicas.led:
                self.replicas.appended(place)
        self.settle()

    def begins(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.replicas.begins(place)
        self.settle()

    def unwritable(self, place: TopicPartition, why: str) -> bool:
        return self.replicas.unwritable(place, why)

    # What happens.

    def hears(self, *topics: TopicView, nodes: tuple[NodeView, ...] = ()) -> None:
        self._sequence += 1
        full = self._sequence == 1
        answer = ClusterState(ErrorCode.NONE, CONTROLLER, 1, self._sequence, full, nodes, topics)
        changes = self.image.apply(answer)
        assert changes is not None
        self.logs.prepare(HERE, self.image, changes)
        self.replicas.learn(self.image, changes, 0)
        self.settle()
        for listener in self._learners:
            listener(changes)

    def flushes(self, *places: TopicPartition) -> None:
        for place in places or (ORDERS,):
            self.log(place).flush()
            self.replicas.flushed([place], 0)
            self.keeping.moved(place)
        self.settle()

    def follows(self, *nodes: int, place: TopicPartition = ORDERS, end: int | None = None, start: int = 0) -> None:
        """These have fetched up to there, or to the end."""
        led = self.replicas.led[place]
        for node in nodes or (THERE, YONDER):
            offset, peer = led.log.end if end is None else end, self.replicas._peer(node)
            told = led.leader.fetched(
                led.half, peer, 10 * node, led.leader.epoch, offset, NO_EPOCH, start, led.log.end_for_epoch, 0
            )
            assert told is None
            self.replicas._stirred(led.leader)
        self.settle()

    def settle(self) -> None:
        moved, self.replicas.moved = self.replicas.moved, {}
        for place in moved:
            self.committing.moved(place)
            self.keeping.moved(place)
            for listener in self._movers:
                listener(place)
        self.starting.check_waits()

    def log(self, place: TopicPartition = ORDERS) -> Log:
        return self.broker.log(*place)
