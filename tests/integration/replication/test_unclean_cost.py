"""CL-T7: somebody who may lack records is made a leader by hand, and what that cost is counted and told."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer, Producer
from muster.coordinator.observability.views.cluster import partition_row
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.node import MUSTER
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
TOPIC = "orders"
BEFORE, LOST, AFTER = 50, 13, 20
A_SETTING_OF_TWO = ("--replication-factor", "2", "--config", "min.insync.replicas=1")


class Story:
    def __init__(self, cluster: ClusterNodes) -> None:
        self._cluster = cluster
        self.bystander = 0

    def muster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        node = self._cluster.nodes[self.bystander or 1]
        command = [MUSTER, *arguments, "--bootstrap", node.address]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def row(self) -> Any:
        with Admin({"bootstrap.servers": self._cluster.nodes[self.bystander or 1].address}) as admin:
            [row] = admin.describe_cluster("all", [TOPIC]).partitions
        return partition_row(row)

    def until(self, condition: Callable[[Any], bool]) -> Any:
        patience = Patience(PATIENCE_S)
        while not condition(row := self.row()):
            assert patience.lasts(), (row, self._cluster.log_tail())
            time.sleep(0.1)
        return row

    def send(self, first: int, count: int) -> None:
        """Acknowledged by all that are in sync."""
        with Producer({"bootstrap.servers": self._cluster.address, "acks": "all"}) as producer:
            for number in range(first, first + count):
                producer.produce(TOPIC, str(number).encode(), partition=0)
            producer.flush()

    def read(self, count: int) -> list[int]:
        given = {"bootstrap.servers": self._cluster.address, "group.id": "reader", "auto.offset.reset": "earliest"}
        found: list[int] = []
        patience = Patience(PATIENCE_S)
        with Consumer(given) as consumer:
            consumer.subscribe(TOPIC)
            while len(found) < count:
                assert patience.lasts(), (found, self._cluster.log_tail())
                found += [int(message.value or b"") for message in consumer.consume(count, 0.2)]
        return found


@pytest.mark.parametrize("by", ["operator", "setting"])
def test_what_an_unclean_election_cost_is_counted_to_the_record(zookeeper: str, tmp_path: Path, by: str) -> None:
    allowed = ("--config", "unclean.leader.election.enable=true") if by == "setting" else ()
    with running_cluster(tmp_path, zookeeper) as cluster:
        story = Story(cluster)
        made = story.muster("topics", "create", TOPIC, *A_SETTING_OF_TWO, *allowed)
        assert made.returncode == 0, made.stderr
        row = story.until(lambda row: len(row["isr"]) == 2)
        leader = row["leader"]
        follower = next(each for each in row["replicas"] if each != leader)
        story.bystander = 6 - leader - follower
        story.send(0, BEFORE)

        cluster.nodes[follower].kill()
        story.until(lambda row: row["isr"] == [leader])
        story.send(BEFORE, LOST)
        cluster.nodes[leader].kill()
        story.until(lambda row: row["leader"] is None)
        cluster.nodes[follower].start()
        if by == "operator":
            story.until(lambda row: row["offline"] == [leader])
            assert story.row()["leader"] is None, "it is back, and lacks what was acknowledged without it"
            elected = story.muster("cluster", "elect", "--unclean", f"{TOPIC}:0")
            assert elected.returncode == 0, elected.stderr + cluster.log_tail()
        story.until(lambda row: row["leader"] == follower)
        story.send(BEFORE + LOST, AFTER)

        cluster.nodes[leader].start()
        story.until(lambda row: len(row["isr"]) == 2)
        patience = Patience(PATIENCE_S)
        while "gave up" not in (told := story.muster("cluster", "explain", "--topic", TOPIC)).stderr:
            assert patience.lasts(), (told, cluster.log_tail())
            time.sleep(0.1)
        assert f": node {leader} gave up {LOST} records ({BEFORE} to {BEFORE + LOST - 1}, " in told.stderr
        explained = json.loads(story.muster("cluster", "explain", "--topic", TOPIC, "-o", "json").stdout)
        [unclean] = [each for each in explained if each["clean"] == "unclean"]
        assert unclean["cause"] == f"unclean by {by}"
        assert [each["records"] for each in unclean["lost"]] == [LOST]

        left = [*range(BEFORE), *range(BEFORE + LOST, BEFORE + LOST + AFTER)]
        assert story.read(len(left)) == left, "no more is missing than was told"
