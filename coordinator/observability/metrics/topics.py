"""The series of one topic, as kafka_exporter has them. A node on its own has the only replica of each partition;
of a cluster each partition is told of by its leader."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from muster.coordinator.observability.metrics.cluster import ClusterFiguresSource, LedPartitionFigures
from muster.coordinator.observability.metrics.sight import SLICE, SeriesSource
from muster.coordinator.observability.metrics.table import EXPORTER, OF_PARTITION, Level
from muster.coordinator.observability.metrics.writing import END, ExpositionSheet, start, start_of_many

Look: TypeAlias = Callable[[str, range], list[int]]

OF_ONE_REPLICA: Final = {
    "kafka_topic_partition_leader_is_preferred": 1,
    "kafka_topic_partition_replicas": 1,
    "kafka_topic_partition_in_sync_replica": 1,
    "kafka_topic_partition_under_replicated_partition": 0,
}
SERIES: Final = sum(family.labels == OF_PARTITION for family in EXPORTER)
"""Of each partition."""


class TopicLines:
    """How its lines begin; those that never change are kept whole."""

    def __init__(self, topic: str, node_id: int, cluster: ClusterFiguresSource | None = None) -> None:
        self._topic = topic
        self._node_id = node_id
        self._cluster = cluster
        self._count = start("kafka_topic_partitions", {"topic": topic})
        self._bytes = start("muster_log_bytes", {"topic": topic})
        self._ends: list[str] = []
        self._starts: list[str] = []
        self._fixed: dict[str, list[str]] = {name: [] for name in (*OF_ONE_REPLICA, "kafka_topic_partition_leader")}

    def write(
        self, count: int, sight: SeriesSource, sheet: ExpositionSheet, levels: frozenset[Level]
    ) -> Iterator[None]:
        """Write its lines, a slice for each step."""
        if Level.TOPIC not in levels:
            return
        sheet.add("kafka_topic_partitions", [f"{self._count}{count}\n"])
        size = 0
        for first in range(0, count, SLICE):
            partitions = range(first, min(first + SLICE, count))
            size += sight.sizes(self._topic, partitions)
            if Level.PARTITION in levels:
                self._write_partitions(partitions, sight, sheet)
            yield
        sheet.add("muster_log_bytes", [f"{self._bytes}{size}\n"])

    def _write_partitions(self, partitions: range, sight: SeriesSource, sheet: ExpositionSheet) -> None:
        self._grow(partitions.stop)
        self._offsets("kafka_topic_partition_current_offset", self._ends, sight.ends, partitions, sheet)
        self._offsets("kafka_topic_partition_oldest_offset", self._starts, sight.starts, partitions, sheet)
        if self._cluster is not None:
            self._write_led(partitions, self._cluster.led(self._topic, partitions), sheet)
            return
        for name, lines in self._fixed.items():
            sheet.add(name, lines[partitions.start : partitions.stop])

    def _write_led(
        self, partitions: range, known: Sequence[LedPartitionFigures | None], sheet: ExpositionSheet
    ) -> None:
        for name in self._fixed:
            begin = start_of_many(name, {"topic": self._topic}, "partition")
            led = ((number, each) for number, each in zip(partitions, known, strict=True) if each is not None)
            sheet.add(name, [f"{begin}{number}{END}{self._value(name, each)}\n" for number, each in led])

    def _value(self, name: str, led: LedPartitionFigures) -> int:
        match name.removeprefix("kafka_topic_partition_"):
            case "leader":
                return self._node_id
            case "leader_is_preferred":
                return int(led.is_preferred)
            case "replicas":
                return led.replicas
            case "in_sync_replica":
                return led.in_sync
        return int(led.in_sync < led.replicas)

    def _offsets(self, name: str, begins: list[str], look: Look, partitions: range, sheet: ExpositionSheet) -> None:
        known = zip(begins[partitions.start : partitions.stop], look(self._topic, partitions), strict=True)
        sheet.add(name, [f"{begin}{offset}\n" for begin, offset in known if offset >= 0])

    def _grow(self, count: int) -> None:
        missing = range(len(self._ends), count)
        if not missing:
            return

        def begins(name: str, value: str = "") -> list[str]:
            begin = start_of_many(name, {"topic": self._topic}, "partition")
            return [f"{begin}{partition}{END}{value}" for partition in missing]

        self._ends += begins("kafka_topic_partition_current_offset")
        self._starts += begins("kafka_topic_partition_oldest_offset")
        for name, lines in self._fixed.items():
            lines += begins(name, f"{OF_ONE_REPLICA.get(name, self._node_id)}\n")
