"""What KEDA's scaler sees of this node's groups. Imported only with `scaler.enable`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from muster.assignors.api import TopicPartition
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.cluster_view import FORWARDED_HEADER, GRPC, ClusterView, OtherNodes
from muster.coordinator.errors import SubjectNotFound, TemporarilyUnknown
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.observability.scaler.replica_rules import NOTHING, GroupSample
from muster.coordinator.observability.scaler.scaler_service import ExternalScaler
from muster.coordinator.observability.scaler.trigger_metadata import ScalerTrigger, parse_metadata
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.monitoring.load_meter import PositionReader
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.long_work import LoopSlice

AT_REST = frozenset({"Empty", "Stable", "Dead"})
"""States in which a group does not rebalance, whatever its kind."""
MAX_PARTITIONS = 100_000
"""Of one group; a figure of more would hold the scaler up."""


class ScaledGroups:
    """`partitions` are the catalog's counts."""

    def __init__(
        self,
        looking: PositionReader,
        history: GroupHistory,
        clock_ms: Callable[[], int],
        partitions: Callable[[], Mapping[str, int]],
    ) -> None:
        self._looking = looking
        self._history = history
        self._clock_ms = clock_ms
        self._partitions = partitions

    async def plan_owners(self, trigger: ScalerTrigger) -> GroupSample:
        """The group of the trigger, and the partitions that count. Raises SubjectNotFound or TemporarilyUnknown."""
        shard = self._shard(trigger.group)
        places = self._places(trigger, shard)
        committed, positions, ends, breath = [], [], [], LoopSlice()
        async for piece in self._looking.pieces(trigger.group, breath, places):
            committed += [NOTHING if each is None else each.offset for each in piece.stored]
            positions += piece.positions
            ends += piece.ends
        if self._looking.of_group(trigger.group) is not shard or -1 in ends or -1 in positions:
            raise TemporarilyUnknown(self._why_not_now(trigger.group, places, ends))
        group, holds = shard.state.groups.get(trigger.group), shard.state.holds.get(trigger.group)
        return GroupSample(
            topics=tuple(topic for topic, _ in places),
            partitions=np.array([partition for _, partition in places], np.int64),
            committed=np.array(committed, np.int64),
            positions=np.array(positions, np.int64),
            ends=np.array(ends, np.int64),
            members=0 if group is None else len(group.members),
            rebalancing=group is not None and group.state.value not in AT_REST,
            produced=self._produced(trigger, places),
            deploying=holds is not None and holds.deploy is not None,
        )

    def _shard(self, group_id: str) -> Shard:
        shard, status = self._looking.of_group(group_id), self._looking.status(group_id)
        if shard is None:
            what = "is being loaded" if status is ShardStatus.LOADING else f"is {status.value}"
            raise TemporarilyUnknown(f"the shard of group {group_id!r} {what}, so its lag is not known; ask again")
        group = shard.state.groups.get(group_id)
        stored = shard.state.offsets.get(group_id)
        if group is not None and group.logged is not group and not stored:
            raise SubjectNotFound(
                f"group {group_id!r} keeps its positions in ZooKeeper, where the scaler does not look; "
                "move it to the coordinator with `muster groups migrate`"
            )
        if group is None and not stored:
            raise SubjectNotFound(
                f"there is no group {group_id!r} on this node; check consumerGroup, or start one consumer "
                "(minReplicaCount: 1) and let it commit"
            )
        return shard

    def _places(self, trigger: ScalerTrigger, shard: Shard) -> list[TopicPartition]:
        """The partitions of the topic, or of all topics in which the group has committed."""
        counts = self._partitions()
        if trigger.topic and trigger.topic not in counts:
            raise SubjectNotFound(
                f"there is no topic {trigger.topic!r} on this node; check the trigger's topic, or create it"
            )
        stored = shard.state.offsets.get(trigger.group, {})
        topics = [trigger.topic] if trigger.topic else sorted({topic for topic, _ in stored} & counts.keys())
        wanted = trigger.partitions
        if sum(counts[topic] for topic in topics) > MAX_PARTITIONS:
            raise SubjectNotFound(f"{', '.join(topics[:3])} have more than {MAX_PARTITIONS} partitions; name one topic")
        places = [
            (topic, number) for topic in topics for number in range(counts[topic]) if wanted is None or number in wanted
        ]
        if not places:
            what = f"of {trigger.topic!r} is named by partitionLimitation" if trigger.topic else "has a position"
            raise SubjectNotFound(
                f"no partition {what} for group {trigger.group!r}; name a topic and partitions that exist"
            )
        return places

    def _produced(self, trigger: ScalerTrigger, places: list[TopicPartition]) -> float | None:
        """Records a second, as measured of late; None while that is not known."""
        if not trigger.drain_target_s or not self._history.fresh(trigger.group, self._clock_ms()):
            return None
        rates = self._history.rates(trigger.group)
        if rates is None:
            return None
        wanted = set(places)
        counted = [place in wanted for place in rates.places]
        found = rates.produced[counted]
        known = found[~np.isnan(found)]
        return float(known.sum()) if len(known) else None

    def _why_not_now(self, group_id: str, places: list[TopicPartition], ends: list[int]) -> str:
        if -1 not in ends:
            return f"the shard of group {group_id!r} went away meanwhile; ask again"
        topic, partition = places[ends.index(-1)]
        return f"the log of {topic}-{partition} cannot be read, so the lag of group {group_id!r} is not known"


# In a cluster: the group's coordinator answers
# ---------------------------------------------

SERVICE: Final = "/externalscaler.ExternalScaler/"


class ClusterScaler(ExternalScaler):
    """As its base. What another node was asked comes back as it answers, its refusals as well; what comes from another
    node is answered here, or refused: two that do not agree on who coordinates do not send it to and fro."""

    def __init__(self, cluster: ClusterView, shards: int, *args: Any) -> None:
        super().__init__(*args)
        self._cluster = cluster
        self._shards = shards

    async def is_active(self, request: pb.ScaledObjectRef, call: RpcCall) -> pb.IsActiveResponse:  # type: ignore[override]
        if (there := self._elsewhere(request, call)) is None:
            return await super().is_active(request, call)
        elsewhere, node = there
        return await elsewhere.forwarded(node, f"{SERVICE}IsActive", request, pb.IsActiveResponse)

    async def get_metrics(self, request: pb.GetMetricsRequest, call: RpcCall) -> pb.GetMetricsResponse:  # type: ignore[override]
        if (there := self._elsewhere(request.scaledObjectRef, call)) is None:
            return await super().get_metrics(request, call)
        elsewhere, node = there
        return await elsewhere.forwarded(node, f"{SERVICE}GetMetrics", request, pb.GetMetricsResponse)

    def _elsewhere(self, request: pb.ScaledObjectRef, call: RpcCall) -> tuple[OtherNodes, int] | None:
        """Whom to ask in place of this node. Raises BadMetadata."""
        elsewhere = self._cluster.elsewhere
        shard = partition_for(parse_metadata(dict(request.scalerMetadata)).group, self._shards)
        node = self._cluster.coordinator(shard, GRPC)
        if elsewhere is None or node is None or node.node_id == self._cluster.me or FORWARDED_HEADER in call.metadata:
            return None
        return elsewhere, node.node_id
