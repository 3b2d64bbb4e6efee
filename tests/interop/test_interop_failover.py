"""Six client libraries at three nodes that are killed: what was acknowledged is there, and no member joins again."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.peers import java, java_command, kafkajs, kcat_command, node_command
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.group_coordinators import coordinator_of, standing
from tests.support.kafka.stage import NODE, PATIENCE_S, Stage, stage
from tests.support.pace import Patience, until
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]

pytestmark = pytest.mark.timeout(300)

SESSION_MS = 20_000
PARTITIONS = 6
PRODUCER = Path(__file__).parents[1] / "support" / "kafka" / "state_log_io.py"


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterNodes]:
    monkeypatch.setenv("SESSION_MS", str(SESSION_MS))
    session = {"group.consumer.session.timeout.ms": str(SESSION_MS)}
    with running_cluster(tmp_path, zookeeper, settings=NODE | session) as running:
        yield running


def whole(cluster: ClusterNodes, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
    return all(len(each.isrs) == len(cluster.nodes) and each.leader >= 0 for each in partitions)


def leader_of(cluster: ClusterNodes, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
    leader: int = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[partition].leader
    return leader


def kill_and_restart(cluster: ClusterNodes, play: Stage, victim: int) -> None:
    cluster.nodes[victim].kill()
    play.send(50)
    play.until_all_read()
    cluster.nodes[victim].start()
    until(lambda: whole(cluster, play.topic), cluster.log_tail)


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        pytest.param("range", ("java", "kcat", "confluent", "kafka-python", "aiokafka"), id="eager"),
        pytest.param("cooperative-sticky", ("java", "kcat", "kafka-python"), id="cooperative"),
        pytest.param("consumer", ("java", "confluent"), id="kip-848"),
    ],
)
def test_a_group_outlives_its_coordinator_and_a_leader(
    cluster: ClusterNodes, assignor: str, libraries: Sequence[str]
) -> None:
    with stage(cluster, assignor) as play:
        started = {
            "java": lambda: java(play),
            "kcat": lambda: play.start_kcat(kcat_command(), SESSION_MS),
        }
        for library in libraries:
            started[library]() if library in started else play.start(library, session_ms=str(SESSION_MS))
        play.until_shared(*play.workers)
        play.send(50)
        play.until_all_read()
        before, owned = standing(cluster, play.group), [worker.assigned for worker in play.workers]
        kill_and_restart(cluster, play, coordinator_of(cluster, play.group))
        assert standing(cluster, play.group) == before
        kill_and_restart(cluster, play, leader_of(cluster, play.topic))
        assert standing(cluster, play.group) == before
        assert [worker.assigned for worker in play.workers] == owned
        play.until_committed()


def test_kafkajs_begins_anew_at_the_next_coordinator(cluster: ClusterNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer of kafkajs whose coordinator's connection breaks starts again as another member, at any broker: it is
    not undisturbed, but skips nothing. Its former membership ends with its session."""
    monkeypatch.setenv("SESSION_MS", "6000")
    with stage(cluster, "range") as play:
        members = [kafkajs(play, "range"), kafkajs(play, "range")]
        play.until_shared(*members)
        play.send(50)
        play.until_all_read()
        kill_and_restart(cluster, play, coordinator_of(cluster, play.group))
        play.until_shared(*members)
        kill_and_restart(cluster, play, leader_of(cluster, play.topic))
        play.until_committed()


class Producing:
    """A producer's process, which is given numbers and says which were acknowledged."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.acked: dict[tuple[int, int], int] = {}
        self.sent = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):
                number, partition, offset = json.loads(line)
                self.acked[partition, offset] = number

    def send(self, count: int) -> None:
        assert self._process.stdin is not None
        for number in range(self.sent, self.sent + count):
            self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        self.sent += count

    def end(self) -> str:
        """What it said on standard error."""
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        said = self._process.stderr.read()
        assert self._process.wait(PATIENCE_S) == 0, said
        self._reader.join()
        return said

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def producer(library: str, address: str, topic: str) -> Producing:
    told = (address, topic, str(PARTITIONS))
    match library:
        case "java":
            return Producing(java_command("ProduceWorker", *told))
        case "kafkajs":
            return Producing(node_command("produce_worker", *told))
        case "kcat":
            settings = {"enable.idempotence": "true", "socket.timeout.ms": "5000", "request.timeout.ms": "4500"}
            words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
            return Producing([kcat_command(), "-P", "-E", "-b", address, "-t", topic, "-X", "acks=all", *words])
        case _:
            return Producing([sys.executable, str(PRODUCER), library, *told])


def read(cluster: ClusterNodes, topic: str, wanted: int) -> dict[tuple[int, int], int]:
    """All there is, once so many numbers are among them."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka_address, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    patience = Patience(PATIENCE_S)
    while len(set(found.values())) < wanted and patience.lasts():
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found[message.partition(), message.offset()] = int(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("library", ["java", "kafkajs", "kcat", "confluent", "kafka-python", "aiokafka"])
def test_what_a_producer_was_told_is_kept_is_there_whoever_dies(cluster: ClusterNodes, library: str) -> None:
    """acks=all: every leader is killed once, the next when all copies are in sync again."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
    topic = f"of-{library}"
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(PATIENCE_S)
    made = producer(library, cluster.kafka_address, topic)
    try:
        made.send(120)
        if library != "kcat":  # which says nothing
            until(lambda: len(made.acked) == 120, cluster.log_tail)
        for _ in range(2):
            victim = leader_of(cluster, topic)
            cluster.nodes[victim].kill()
            made.send(120)
            if library != "kcat":
                until(lambda: len(made.acked) == made.sent, cluster.log_tail)
            cluster.nodes[victim].start()
            until(lambda: whole(cluster, topic), cluster.log_tail)
        said = made.end()
    finally:
        made.kill()
    found = read(cluster, topic, made.sent)
    assert {place: number for place, number in made.acked.items() if found.get(place) != number} == {}
    assert set(found.values()) == set(range(made.sent)), said
    if library != "kafka-python":  # which numbers nothing unless it is told to
        assert len(found) == made.sent, "something was written twice"
