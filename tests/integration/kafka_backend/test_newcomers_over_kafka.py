"""KB-M2 on a node over a real Kafka: clients that changed an address go on where they were."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from muster.client import Admin, Worker
from muster.client.errors import ClientError
from muster.client.types import OffsetAndMetadata
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import running_node
from tests.support.pace import until

pytestmark = pytest.mark.integration


def reader_of(kafka: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": kafka, "group.id": group, "client.id": "before", "enable.auto.commit": False})


def test_m2_a_group_is_adopted_once_when_it_is_first_asked_for(kafka: str, tmp_path: Path) -> None:
    make_topics(kafka, {"first": 2})
    before = reader_of(kafka, "first-of-all")
    before.commit(offsets=[TopicPartition("first", 0, 7), TopicPartition("first", 1, 8)], asynchronous=False)
    before.close()
    there = {("first", 0): OffsetAndMetadata(7), ("first", 1): OffsetAndMetadata(8)}
    with running_node(tmp_path, over(kafka, "newcomers")) as node:
        with Admin({"bootstrap.servers": node.address}) as here:
            assert here.group_offsets("nobody-knows-it") == {}
            assert here.group_offsets("first-of-all") == there
            here.alter_offsets("first-of-all", {("first", 0): 70})
            assert here.group_offsets("first-of-all")["first", 0].offset == 70, "what counts here, counts"
            here.delete_groups(["first-of-all"])
            assert here.group_offsets("first-of-all") == {}, "it was deleted, and that is that"
        node.kill()
        node.start()
        with Admin({"bootstrap.servers": node.address}) as here:
            assert here.group_offsets("first-of-all") == {}, "for whoever has its shard next, too"


def test_m2_while_somebody_reads_in_it_upstream_it_is_refused_here(kafka: str, tmp_path: Path) -> None:
    make_topics(kafka, {"second": 1})
    before = reader_of(kafka, "busy-still")
    there: list[object] = []
    before.subscribe(["second"], on_assign=lambda *_: there.append(_))
    until(lambda: before.poll(0.1) is None and bool(there), lambda: "nothing was assigned")
    before.commit(offsets=[TopicPartition("second", 0, 5)], asynchronous=False)
    with running_node(tmp_path, over(kafka, "refusing")) as node:
        with (
            Admin({"bootstrap.servers": node.address, "default.api.timeout.ms": "4000"}) as here,
            pytest.raises(ClientError, match=r"busy-still has members in the upstream itself: before at /127.0.0.1"),
        ):
            here.group_offsets("busy-still")
        before.close()
        with Admin({"bootstrap.servers": node.address}) as here:
            assert here.group_offsets("busy-still") == {("second", 0): OffsetAndMetadata(5)}


def test_t1_a_topic_that_was_made_just_now_is_known_as_soon_as_somebody_reads_it(kafka: str, tmp_path: Path) -> None:
    """Where the coordinator plans: who leads a classic group looks for topics itself."""
    name = "made-just-now"
    with running_node(tmp_path, over(kafka, name) | {"engine.kafka.metadata.refresh.ms": "86400000"}) as node:
        make_topics(kafka, {name: 2})
        worker = Worker(bootstrap_servers=node.address, group_id=name, group_protocol="consumer")
        worker.join(topics=[name])
        try:

            def owned() -> int:
                worker.poll(0.05)
                return len(worker.owned())

            until(lambda: owned() == 2, lambda: f"it owns {worker.owned()}")
        finally:
            worker.close()
