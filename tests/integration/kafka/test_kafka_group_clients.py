"""Groups of real clients, each member a process of its own: they join, die, leave, return, and outlive the node."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient

from tests.support.kafka.stage import NODE, PATIENCE_S, generations, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        # Each library stays, is killed, joins and leaves in one of them. A member by gRPC is in every group.
        pytest.param("range", ("confluent", "kafka-python", "aiokafka"), id="eager"),
        pytest.param("range", ("kafka-python", "aiokafka", "confluent"), id="eager-other-parts"),
        pytest.param("cooperative-sticky", ("confluent", "kafka-python", "kafka-python"), id="cooperative"),
        pytest.param("consumer", ("confluent", "confluent", "confluent"), id="kip-848"),
    ],
)
def test_a_group_of_real_clients_loses_nothing(node: NodeProcess, assignor: str, libraries: Sequence[str]) -> None:
    """10,000 messages: one member stays, one is killed, one joins and leaves, and the node dies in the middle."""
    with stage(node, assignor) as play:
        ours, first, second = play.start("grpc"), play.start(libraries[0]), play.start(libraries[1])
        play.until_shared(ours, first, second)
        play.send(600)
        third = play.start(libraries[2])
        play.until_shared(ours, first, second, third)
        play.send(600)
        second.kill()
        play.until_shared(ours, first, third)
        # Whatever was acknowledged survives, and clients find their way back by themselves.
        node.kill()
        node.start()
        play.send(460)
        play.until_all_read()
        third.leave()
        play.until_shared(ours, first)
        assert third.ended == "left"
        play.send(10)
        play.until_all_read()
        play.until_committed()


@pytest.mark.parametrize(
    ("assignor", "libraries"), [("cooperative-sticky", ("kafka-python", "confluent")), ("range", ("aiokafka", "grpc"))]
)
def test_a_group_moves_to_kip_848_and_back_under_its_clients(
    node: NodeProcess, assignor: str, libraries: Sequence[str]
) -> None:
    with stage(node, assignor) as play:
        first, second = play.start(libraries[0]), play.start(libraries[1])
        play.until_shared(first, second)
        play.send(50)
        modern, ours = play.start("confluent", assignor="consumer"), play.start("grpc", assignor="consumer")
        play.until_shared(first, second, modern, ours)
        assert group_type(node, play.group) == "consumer"
        play.send(50)
        second.leave()
        play.until_shared(first, modern, ours)
        ours.leave()
        modern.leave()
        play.until_shared(first)
        assert group_type(node, play.group) == "classic"
        play.send(50)
        play.until_all_read()
        play.until_committed()


def group_type(node: NodeProcess, group: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=node.kafka_address)
    found = {one["group_id"]: one["group_type"] for one in admin.list_groups()}
    admin.close()
    return str(found[group])


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
def test_a_static_member_returns_to_its_partitions_and_fences_its_double(node: NodeProcess, library: str) -> None:
    with stage(node, "range") as play:
        steady, restarted = play.start(library, instance="a"), play.start(library, instance="b")
        play.until_shared(steady, restarted)
        had, before = restarted.assigned, generations(node, play.group)
        restarted.kill()
        again = play.start(library, instance="b")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        assert generations(node, play.group) == before, "nobody else noticed"
        double = play.start(library, instance="b")
        until(lambda: bool(double.assigned), lambda: "the double takes over")
        play.send(50)
        play.until_all_read()
        if library == "confluent":  # kafka-python tells its application when that commits, and keeps what it had
            # It hears of it by whichever comes first, a heartbeat or a commit.
            until(
                lambda: again.assigned == [] or again.ended == "FENCED_INSTANCE_ID",
                lambda: f"the old holder is fenced, but keeps {again.assigned} {again.ended}",
            )
            assert double.assigned == had


def test_a_pattern_follows_topics_that_grow_and_go(node: NodeProcess) -> None:
    """KIP-848: the coordinator resolves the pattern, with the assignor that the members ask for."""
    admin = AdminClient({"bootstrap.servers": node.kafka_address, "log_level": 0})
    settings = {"bootstrap.servers": node.kafka_address, "group.id": "pattern", "log_level": 0}
    settings |= {"group.protocol": "consumer", "group.remote.assignor": "range"}
    both = [Consumer(settings | {"group.instance.id": "a"}), Consumer(settings)]

    def shared(*wanted: tuple[str, int]) -> bool:
        for consumer in both:
            consumer.poll(0.05)
        owned = [(place.topic, place.partition) for consumer in both for place in consumer.assignment()]
        return sorted(owned) == sorted(wanted) and all(consumer.assignment() for consumer in both)

    wanted = [NewTopic("logs-a", 2, 1), NewTopic("logs-b", 1, 1), NewTopic("other", 2, 1)]
    for made in admin.create_topics(wanted).values():
        made.result(PATIENCE_S)
    for consumer in both:
        consumer.subscribe(["^logs-.*"])
    first = [("logs-a", 0), ("logs-a", 1)]
    until(lambda: shared(*first, ("logs-b", 0)), lambda: f"{[consumer.assignment() for consumer in both]}")
    admin.create_partitions([NewPartitions("logs-b", 2)])["logs-b"].result(PATIENCE_S)
    until(lambda: shared(*first, ("logs-b", 0), ("logs-b", 1)), lambda: "a topic grew")
    admin.delete_topics(["logs-b"])["logs-b"].result(PATIENCE_S)
    until(lambda: shared(*first), lambda: "a topic went")
    for consumer in both:
        consumer.close()
