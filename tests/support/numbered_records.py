"""Numbered records that Kafka's clients write to a cluster, and whether all that was acknowledged is there."""

from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.support.cluster_nodes import ClusterNodes
from tests.support.cluster_reading import read_all
from tests.support.pace import Patience, until

TOPIC = "orders"
PARTITIONS = 6
PATIENCE_S = 60.0


class Numbered:
    """A producer of numbered records, acks=all, and what was acknowledged to it."""

    def __init__(self, cluster: ClusterNodes, replicas: tuple[int, ...] = ()) -> None:
        """replicas: of every partition, its leader first; where the cluster would have them, if none are named."""
        self._cluster = cluster
        # It asks whom it asked last, as long as the connection stands: one that is frozen is let go of by this.
        given = {"bootstrap.servers": cluster.kafka_address, "socket.timeout.ms": 3_000, "log_level": 0}
        self.admin = AdminClient(given)
        placed = {"replica_assignment": [list(replicas)] * PARTITIONS} if replicas else {}
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, **placed)])[TOPIC].result(PATIENCE_S)
        self._producer = Producer(
            {"bootstrap.servers": cluster.kafka_address, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
            # A leader that stands still answers nothing: it asks who leads once this is over.
            | {"socket.timeout.ms": 3_000, "request.timeout.ms": 2_500}
        )
        self._next = 0
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []

    def send(self, count: int) -> None:
        """So many; returns once all are acknowledged, or have failed."""
        self.begin(count)
        self.finish()

    def begin(self, count: int) -> None:
        for number in range(self._next, self._next + count):
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._answered)
            self._producer.poll(0)
        self._next += count

    def finish(self) -> None:
        """Returns once all that was begun is acknowledged, or has failed."""
        assert self._producer.flush(PATIENCE_S) == 0

    def acknowledged(self) -> int:
        """How many are by now."""
        self._producer.poll(0)
        return len(self.acked)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acked[partition, offset] = value

    def leader_of(self, partition: int) -> int:
        leader: int = self._partitions()[partition].leader
        return leader

    def _partitions(self) -> dict[int, PartitionMetadata]:
        """Asked again after a while: the first one asked may be a node that is frozen."""
        patience = Patience(PATIENCE_S)
        while True:
            try:
                found: dict[int, PartitionMetadata] = self.admin.list_topics(TOPIC, timeout=3).topics[TOPIC].partitions
            except KafkaException:
                assert patience.lasts(), self._cluster.log_tail()
            else:
                return found

    def leaders(self) -> set[int]:
        return {each.leader for each in self._partitions().values()}

    def until_in_sync(self, replicas: int = 3) -> None:
        def whole() -> bool:
            return all(len(each.isrs) == replicas and each.leader >= 0 for each in self._partitions().values())

        until(whole, self._cluster.log_tail)

    def read(self, wanted: Collection[tuple[int, int]] | None = None) -> dict[tuple[int, int], bytes]:
        """All records there are, until those that are wanted have come, or all that were acknowledged, by a consumer
        (see `read_all`)."""
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.kafka_address, "group.id": "reader", "log_level": 0}
            | {"auto.offset.reset": "earliest", "enable.auto.commit": False, "socket.timeout.ms": 3_000}
        )
        try:
            return read_all(consumer, TOPIC, PARTITIONS, self.acked if wanted is None else wanted)
        finally:
            consumer.close()

    def check(self) -> None:
        """Nothing failed, all that was acknowledged is there, and nothing twice."""
        assert self.failed == []
        assert len(self.acked) == self._next
        found = self.read()
        assert {place: value for place, value in self.acked.items() if found.get(place) != value} == {}
        assert len(set(found.values())) == len(found)
