"""A node's cluster for whoever looks at the node's metrics."""

from collections.abc import Callable, Sequence

from muster.coordinator.observability.metrics.cluster import ClusterFigures, LedPartitionFigures
from muster.coordinator.replication.io.ledger import ElectionCounts
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition, unit_of
from muster.coordinator.replication.protocol.image import NO_VERSION, ClusterImage, ImageChanges, ImageVersion
from muster.coordinator.replication.protocol.replicas import NodeReplicas
from muster.coordinator.server.cluster_backend.described import count_deficient_partitions


class ClusterMetricsSource:
    """See `ClusterSight`. min_isr: of topics that say nothing themselves."""

    def __init__(
        self,
        image: ClusterImage,
        replicas: NodeReplicas,
        counted: ElectionCounts,
        is_controller: Callable[[], bool],
        min_isr: int,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._counted = counted
        self._is_controller = is_controller
        self._min_isr = min_isr
        self._shrinks = self._expands = 0
        self._seen: tuple[ImageVersion, tuple[int, int, int]] = NO_VERSION, (0, 0, 0)

    def learned(self, changes: ImageChanges) -> None:
        """The image has changed: as Kafka, a shrink or an expansion is counted by the partition's leader."""
        me = self._replicas.me
        for _, before, after in changes.partitions:
            if before is None or after.leader != me or before.leader_epoch != after.leader_epoch:
                continue
            self._shrinks += bool(set(before.isr) - set(after.isr))
            self._expands += bool(set(after.isr) - set(before.isr))

    def figures(self) -> ClusterFigures:
        under_replicated, under_min_isr, offline = self._wanting()
        counted, controller = self._counted, self._is_controller()
        return ClusterFigures(
            under_replicated=under_replicated,
            under_min_isr=under_min_isr,
            offline=offline if controller else 0,
            controllers=int(controller),
            elections=counted.elections,
            elections_s=counted.took_ms / 1000,
            unclean=counted.unclean,
            isr_shrinks=self._shrinks,
            isr_expands=self._expands,
            max_lag=max((copy.follower.lag for copy in self._replicas.copies.values()), default=0),
            undone=counted.undone,
        )

    def led(self, topic: str, partitions: range) -> Sequence[LedPartitionFigures | None]:
        return [self._led(TopicPartition(topic, number)) for number in partitions]

    def _led(self, place: TopicPartition) -> LedPartitionFigures | None:
        view = self._image.partition(place)
        if view is None or unit_of(place) not in self._replicas.leaders:
            return None
        return LedPartitionFigures(
            view.leader == next(iter(view.replicas), NO_NODE_ID), len(view.replicas), len(view.isr)
        )

    def _wanting(self) -> tuple[int, int, int]:
        """Counted anew only where the image has changed."""
        known = self._image.known
        if self._seen[0] != known or known == NO_VERSION:
            self._seen = known, count_deficient_partitions(self._image, self._replicas.me, self._min_isr)
        return self._seen[1]
