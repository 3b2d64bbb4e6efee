"""`muster doctor` against a real node: a healthy group, and one that is really sick."""

import json
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread
from time import monotonic

import pytest

from muster.client import Admin, Consumer, Producer
from muster.client.errors import CommitFailed
from tests.integration.cli.test_cli_node import Prompt
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

FEW = {"enable.auto.commit": "false", "partition.assignment.strategy": "range", "auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("doctor") / "data") as running:
        yield running


@pytest.fixture
def muster(node: NodeProcess) -> Prompt:
    return Prompt(node.address)


def consumer(node: NodeProcess, group: str, client_id: str) -> Consumer:
    return Consumer({"bootstrap.servers": node.address, "group.id": group, "client.id": client_id} | FEW)


class Driver:
    """Members of a group in threads that poll; `doing` is what each does after a poll."""

    def __init__(self) -> None:
        self.stop = Event()
        self.threads: list[Thread] = []

    def drive(self, member: Consumer, doing: object = None) -> None:
        def run() -> None:
            while not self.stop.is_set():
                member.poll(0.05)
                if callable(doing):
                    doing()

        self.threads.append(Thread(target=run, daemon=True))
        self.threads[-1].start()

    def goes_on(self) -> bool:
        return all(thread.is_alive() for thread in self.threads)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


MOVED = "meanwhile its owner moved on in sick-0"


def test_a_healthy_node_is_told_so_in_one_line(muster: Prompt, node: NodeProcess) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("well", 2)
    with consumer(node, "well", "reader") as reader:
        reader.subscribe("well")
        while not reader.assignment():
            reader.poll(0.05)
        done = muster("doctor", "well", "--over", "0")
        told = json.loads(muster("doctor", "-o", "json").out)
    assert done.code == 0, done.out
    assert done.out == "Nothing is wrong. Looked at 1 group, 1 member, 2 partitions, and the node.\n"
    assert told["healthy"] is True
    assert told["findings"] == []


def test_a_group_that_is_not_there_is_an_error(muster: Prompt) -> None:
    done = muster("doctor", "nobody")
    assert done.code == 3
    assert "there is no group 'nobody'" in done.err


def test_a_sick_group_is_told_what_it_has(muster: Prompt, node: NodeProcess) -> None:
    """Skewed, stuck at a record, and with a member that comes and goes."""
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("sick", 4)
    with Producer(bootstrap_servers=node.address) as producer:
        for partition, records in enumerate((2_000, 30, 30, 30)):
            for number in range(records):
                producer.send("sick", str(number).encode(), partition=partition)
    driver = Driver()
    with consumer(node, "sick", "lagger") as lagger, consumer(node, "sick", "worker") as worker:
        lagger.subscribe("sick")
        worker.subscribe("sick")
        position, begun = {"of": 0}, monotonic()

        def commit() -> None:
            """The others go on at their pace, ten a second; partition 1 stays at its record 7."""
            if {("sick", 0), ("sick", 1)} == set(lagger.assignment()):
                position["of"] = min(round(10 * (monotonic() - begun)), 700)
                with suppress(CommitFailed):  # a rebalance has begun
                    lagger.commit(offsets={("sick", 0): position["of"], ("sick", 1): 7})

        driver.drive(lagger, commit)
        driver.drive(worker)
        try:
            for _ in range(4):
                with consumer(node, "sick", "flapper") as flapper:
                    flapper.subscribe("sick")
                    while not flapper.assignment():
                        flapper.poll(0.05)
            while not (position["of"] > 1 and len(worker.assignment()) == 2):
                assert driver.goes_on()
                driver.stop.wait(0.05)
            while True:  # A look sees what was committed while it lasts: on a busy machine nothing may have been.
                assert driver.goes_on()
                told = json.loads(muster("doctor", "sick", "--over", "0.7", "-o", "json").out)
                findings = {finding["rule"]: finding for finding in told["findings"]}
                if MOVED in findings.get("partition-stuck", {}).get("evidence", ()):
                    done = muster("doctor", "sick", "--over", "0")
                    break
        finally:
            driver.end()
    assert done.code == 4
    assert told["healthy"] is False
    assert findings["member-flaps"]["what"].startswith("crash loop: flapper restarted 3 times in ")
    assert findings["member-flaps"]["severity"] == "error"
    assert findings["partition-stuck"]["what"] == "sick-1 stands still at offset 7, with 23 records behind it"
    assert findings["skew-by-lag"]["what"].startswith("lagger at 127.0.0.1 has ")
    assert findings["member-flaps"]["evidence"][1] == "client id flapper, host 127.0.0.1: left 4 times"
    assert "rebalance-storm" not in findings, "it has one cause, which is told"
    assert findings["partition-stuck"]["todo"].startswith("Look at the record")
    for rule in ("member-flaps", "skew-by-lag"):
        assert rule in done.out
    assert "to do " in done.out
    assert "Looked at 1 group, 2 members, 4 partitions, and the node." in done.out
