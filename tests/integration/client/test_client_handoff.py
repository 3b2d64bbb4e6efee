"""A hand-over between two workers: the new owner prepares while the old one drains, and the old one hears of it."""

import threading

import pytest

from muster.client import RebalanceEvent, TopicPartition, Worker
from tests.support.client_stories import PATIENCE_S, until
from tests.support.node import NodeProcess
from tests.support.pace import pace

pytestmark = pytest.mark.integration


def worker(node: NodeProcess, group: str) -> Worker:
    return Worker({"bootstrap.servers": node.address, "group.id": group, "group.protocol": "consumer"})


def running(one: Worker, enough: threading.Event) -> threading.Thread:
    """Its callbacks run in a thread of their own, as in a process of its own."""

    def run() -> None:
        while not enough.is_set():
            one.poll(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_new_owner_prepares_and_the_old_one_waits_for_it(node: NodeProcess, topic: str) -> None:
    told: list[str] = []
    enough, prepared = threading.Event(), threading.Event()
    in_time: dict[int, bool] = {}

    def lose(_worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        if event.kind == "revoked" and not enough.is_set():
            assert prepared.wait(PATIENCE_S * pace())
            in_time[partition.partition] = event.wait_until_ready(PATIENCE_S * pace())
            told.append(f"lost {partition.partition}")

    def prepare(worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        assert (event.kind, event.coming) == ("prepare", (partition,))
        assert partition not in worker.owned()
        told.append(f"prepare {partition.partition}")
        if sum(word.startswith("prepare") for word in told) == 2:
            prepared.set()
        event.ready()

    def gain(_worker: Worker, partition: TopicPartition, _event: RebalanceEvent) -> None:
        told.append(f"gain {partition.partition}")

    one, two = worker(node, topic), worker(node, topic)
    one.join(topics=[topic], on_lose=lose)
    until(lambda: len(one.owned()) == 4, one, what="the first worker owns all")
    first = running(one, enough)
    two.join(topics=[topic], on_gain=gain, on_prepare=prepare)
    try:
        until(lambda: len(two.owned()) == 2, two, what="the second worker has its half")
    finally:
        enough.set()
        first.join()
    moved = sorted(partition.partition for partition in two.owned())
    assert in_time == dict.fromkeys(moved, True)
    assert sorted(told[:2]) == [f"prepare {number}" for number in moved]
    assert sorted(told[2:4]) == [f"lost {number}" for number in moved]
    assert sorted(told[4:]) == [f"gain {number}" for number in moved]
    two.close()
    one.close()


def test_whoever_does_not_ask_hears_nothing(node: NodeProcess, topic: str) -> None:
    """Callbacks of two and three arguments, and none, as before."""
    seen: list[tuple[str, float]] = []

    def lose(_worker: Worker, _partition: TopicPartition, event: RebalanceEvent) -> None:
        seen.append((event.kind, event.deadline - event.deadline_ms / 1000))

    one, two = worker(node, topic), worker(node, topic)
    one.join(topics=[topic], on_lose=lose)
    until(lambda: len(one.owned()) == 4, one, what="the first worker owns all")
    two.join(topics=[topic])
    until(lambda: len(two.owned()) == 2, one, two, what="the second worker has its half")
    assert seen == [("revoked", 0.0)] * 2
    one.close()
    two.close()
