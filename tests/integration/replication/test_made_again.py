"""A topic of three real nodes is deleted and made again at once: the new one is served, and the disk is given back."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster_nodes import running_cluster
from tests.support.numbered_records import PATIENCE_S
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROUNDS, RECORDS = 3, 60


def test_a_topic_deleted_and_made_again_is_led_and_its_former_files_go(zookeeper: str, tmp_path: Path) -> None:
    """CL-A3. The nodes took the files that wait to be removed for another topic's of the name: no copy could be made,
    and nobody led it until they were started again."""
    with running_cluster(tmp_path, zookeeper) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
        producer = Producer({"bootstrap.servers": cluster.kafka_address, "message.timeout.ms": 20_000, "log_level": 0})
        told: list[KafkaError | None] = []

        def answered(error: KafkaError | None, message: Message) -> None:
            told.append(error)

        for number in range(ROUNDS):
            admin.create_topics([NewTopic("again", 3)])["again"].result(PATIENCE_S)
            for record in range(RECORDS):
                producer.produce("again", b"%d" % record, partition=record % 3, on_delivery=answered)
            assert producer.flush(PATIENCE_S) == 0
            assert told == [None] * RECORDS * (number + 1)
            admin.delete_topics(["again"])["again"].result(PATIENCE_S)
        until(lambda: not list(tmp_path.glob("node*/again-*")), cluster.log_tail)
