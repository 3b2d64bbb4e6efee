"""The group log of a node that shares its shards with others: both halves of the units that it leads."""

from collections.abc import Sequence
from typing import Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.tail import StoredShardTail
from muster.coordinator.replication.protocol.facts import OFFSETS, TopicPartition, halves_of
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.replicas import NodeReplicas
from muster.coordinator.runtime.group_log import READ_BYTES, BrokerGroupLog
from muster.coordinator.runtime.ports import Entry, LogFailed
from muster.storage.broker.broker import Broker
from muster.storage.logs import replica
from muster.storage.types import Fetched


class GroupLogSide(Protocol):
    """Of `ClusterSide`, what the log needs."""

    @property
    def replicas(self) -> NodeReplicas: ...

    def written(self, places: Sequence[TopicPartition]) -> None: ...

    def broken(self, place: TopicPartition, why: str) -> None: ...

    def unwritable(self, place: TopicPartition, why: str) -> bool: ...


def shard_unit(shard: int) -> TopicPartition:
    return TopicPartition(OFFSETS, shard)


class ReplicatedGroupLog(BrokerGroupLog):
    """`append` writes as the leader of the shard's unit; where this node does not lead it, it raises LogFailed.

    Followers hear of what is appended at once, beside the flush. A replay reads to the end of the log, whatever is
    committed of it (CL-G2).
    """

    def __init__(self, broker: Broker, side: GroupLogSide, shards: int, segment_bytes: int) -> None:
        """The topics are made by the cluster. segment_bytes: of one, which bounds a batch."""
        self._side = side
        super().__init__(broker, shards, segment_bytes)

    def _make_topics(self, partitions: int, segment_bytes: int) -> None:
        """The controller does (CL-C12)."""

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        place = shard_unit(shard)
        leader = self._side.replicas.leaders.get(place)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.may_append(ALL)
        if code is ErrorCode.NOT_ENOUGH_REPLICAS:
            raise LogFailed(f"{place}: {code.meaning}", no_room=True)
        if code is not ErrorCode.NONE:
            raise LogFailed(f"{place}: another node leads it")
        try:
            super().append(shard, groups, ledger, now_ms)
        finally:  # a part of it may have been written
            self._side.written(halves_of(place))

    def tail(self, topic: str, shard: int) -> StoredShardTail:
        """One half, to be read as it grows (CL-G8)."""
        return StoredShardTail(self._broker, topic, shard)

    def _append(self, topic: str, shard: int, records: Sequence[Entry], now_ms: int) -> None:
        try:
            super()._append(topic, shard, records, now_ms)
        except LogFailed as error:
            if self._broker.log(topic, shard).failure is not None:
                # It takes nothing more until the process starts anew: another copy is to lead.
                self._side.broken(TopicPartition(topic, shard), str(error))
            elif error.no_room and topic == OFFSETS and self._side.unwritable(TopicPartition(topic, shard), str(error)):
                raise LogFailed(str(error)) from error  # here it is over, be there room again or not
            raise

    def _fetch(self, topic: str, shard: int, offset: int) -> Fetched:
        return replica.fetch_as_replica(self._broker.log(topic, shard), offset, READ_BYTES)
