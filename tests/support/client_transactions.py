"""A client's transaction in a shard, over a model of Kafka: what stories of it say again and again."""

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient
from tests.support.owning import Kafka, OwningNode

APP = TransactionalClient("app", ProducerEpoch(50, 0))


def served(kafka: Kafka, node: int = 1, **given: int) -> OwningNode:
    owner = OwningNode(kafka, node, limits=AppendLimits(**given))
    owner.assign_shards()
    assert owner.serves
    return owner


def adds(kafka: Kafka, client: TransactionalClient = APP) -> None:
    """AddOffsetsToTxn."""
    kafka.partitions[0].added.add(client.producer.id)


def marks(kafka: Kafka, client: TransactionalClient = APP, *, commits: bool = True) -> None:
    kafka.partitions[0].mark(client.producer, kafka.now_ms, commits=commits)
    kafka.partitions[0].commit()


def after_a_transaction() -> Kafka:
    """An owner has written a position, and its marker is there; the client is in its next transaction."""
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.commits(APP, b"a", b"1")
    marks(kafka)
    first.passes(500)
    adds(kafka)
    return kafka


def outcomes(node: OwningNode) -> list[tuple[int, int]]:
    return [(each.token, each.code) for each in node.of(fx.ClientWriteOutcome)]


def sequences(node: OwningNode) -> list[int]:
    return [each.batch.sequence for each in node.of(fx.WriteClientBatch)]


def ends(node: OwningNode) -> list[tuple[int, bool, list[bytes | None]]]:
    return [(each.producer.id, each.committed, [r.key for r in each.records]) for each in node.of(fx.TransactionEnded)]


def is_there_and_answered(kafka: Kafka, node: OwningNode, code: int) -> None:
    """A commit of a=1 comes into the log, and that is what is heard of it."""
    adds(kafka)
    node.hold = {fx.WriteClientBatch}
    node.commits(APP, b"a", b"1")
    [written] = node.held
    pairs = [(key, value) for key, value, _ in written.batch.records]
    kafka.partitions[0].append(APP.producer, written.batch.sequence, pairs, kafka.now_ms, transactional=True)
    node.held, node.hold = [], set()
    node.tell(ev.ClientBatchAnswered(0, written.request, code, -1))
