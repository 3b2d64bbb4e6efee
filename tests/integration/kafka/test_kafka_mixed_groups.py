"""A group of confluent-kafka's moves to KIP-848 and back, member by member, while it reads: every record once."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.stage import NODE, PATIENCE_S
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 6
MEMBERS = 3
EACH_S = 0.002
"""Pause of the producer between two records."""

SETTINGS = NODE | {
    # Nobody is to be expelled because the machine is busy.
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.max.session.timeout.ms": "60000",
}
HOW = {
    "consumer": {"group.protocol": "consumer"},
    **{
        strategy: {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 300,
        }
        for strategy in ("range", "cooperative-sticky")
    },
}


class Journal:
    """What all members of the group have read, and what they were told that nobody should be told."""

    def __init__(self) -> None:
        self.read: Counter[tuple[int, int]] = Counter()
        self.lost: list[str] = []
        self.failed: list[str] = []


class Member:
    """A consumer in a thread of its own, which commits what it has read every 20 records and before it lets go."""

    def __init__(self, node: NodeProcess, name: str, how: str, journal: Journal) -> None:
        self.name, self.assigned = name, set[int]()
        self._journal, self._stop = journal, threading.Event()
        self._consumer = Consumer(
            HOW[how]
            | {
                "bootstrap.servers": node.kafka_address,
                "group.id": "g",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Commit, leave the group, and end."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        positions: dict[int, int] = {}

        def commit(consumer: Consumer) -> None:
            if positions:
                rows = [TopicPartition("t", partition, position) for partition, position in positions.items()]
                failed = [each.error for each in consumer.commit(offsets=rows, asynchronous=False) if each.error]
                if failed:
                    raise KafkaException(failed[0])
                positions.clear()

        def gained(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.assigned |= {each.partition for each in partitions}

        def let_go(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                commit(consumer)
            except KafkaException as refusal:
                self._journal.failed.append(f"{self.name} lets {partitions} go: {refusal}")
            self.assigned -= {each.partition for each in partitions}

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._journal.lost.append(f"{self.name}: {[each.partition for each in partitions]}")
            self.assigned -= {each.partition for each in partitions}

        try:
            self._consumer.subscribe(["t"], on_assign=gained, on_revoke=let_go, on_lost=lost)
            while not self._stop.is_set():
                message = self._consumer.poll(0.1)
                record = message is not None and not message.error()  # An error is news, such as of a connection.
                if record:
                    positions[message.partition()] = message.offset() + 1
                    self._journal.read[message.partition(), message.offset()] += 1
                if not record or message.offset() % 20 == 0:
                    # While the group moves on this may be refused; whoever lets partitions go has to be heard.
                    with suppress(KafkaException):
                        commit(self._consumer)
            commit(self._consumer)
        except Exception as error:
            self._journal.failed.append(f"{self.name}: {error!r}")
        finally:
            self._consumer.close()


@contextmanager
def load(node: NodeProcess) -> Iterator[Callable[[], list[int]]]:
    """Records to all partitions in turn, without an end; what is yielded ends it and tells how many each has."""
    producer = Producer({"bootstrap.servers": node.kafka_address, "linger.ms": 5})
    sent, stop = [0] * PARTITIONS, threading.Event()

    def send() -> None:
        number = 0
        while not stop.wait(EACH_S):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
            sent[number % PARTITIONS] += 1
            number += 1
            producer.poll(0)

    def end() -> list[int]:
        stop.set()
        thread.join()
        assert producer.flush(PATIENCE_S) == 0
        return sent

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield end
    finally:
        stop.set()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_every_record_is_read_once_on_the_way_up_and_down(tmp_path: Path, strategy: str) -> None:
    journal = Journal()
    with running_node(tmp_path / "data", SETTINGS) as node, ExitStack() as ended:
        admin = AdminClient({"bootstrap.servers": node.kafka_address})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(PATIENCE_S)

        def join(name: str, how: str) -> Member:
            member = Member(node, name, how, journal)
            ended.callback(member.leave)
            return member

        def until_shared(group: list[Member]) -> None:
            def shared() -> bool:
                owned = sorted(number for member in group for number in member.assigned)
                return owned == list(range(PARTITIONS)) and all(member.assigned for member in group)

            until(
                shared, lambda: f"{[(each.name, each.assigned) for each in group]} {journal.failed}\n{node.log_tail()}"
            )

        group = [join(f"classic-{number}", strategy) for number in range(MEMBERS)]
        until_shared(group)
        with load(node) as end:
            for way, how in (("up", "consumer"), ("down", strategy)):
                for number in range(MEMBERS):
                    before = len(journal.read)
                    group.pop(0).leave()
                    group.append(join(f"{way}-{number}", how))
                    until_shared(group)
                    until(lambda least=before + 100: len(journal.read) > least, lambda: "nobody reads")  # type: ignore[misc]
            sent = end()
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(sent[partition])}
        until(lambda: journal.read.keys() >= wanted, lambda: f"unread: {sorted(wanted - journal.read.keys())[:20]}")
        ended.close()
        with committed_by(node) as consumer:
            found = consumer.committed([TopicPartition("t", number) for number in range(PARTITIONS)], PATIENCE_S)
    assert journal.lost == []
    assert journal.failed == []
    assert {place: times for place, times in journal.read.items() if times > 1} == {}
    assert [each.offset for each in found] == sent


@contextmanager
def committed_by(node: NodeProcess) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": "g"})
    try:
        yield consumer
    finally:
        consumer.close()
