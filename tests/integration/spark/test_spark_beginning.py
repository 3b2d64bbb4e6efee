"""Where streams begin with `latest`: at one place for each partition, and nothing that came after that is skipped.

The driver's side of a query is asked as Spark asks it, without Spark.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from muster.client import Admin, Consumer
from muster.spark.options import check_read_options
from muster.spark.stream_driver import StreamDriver
from muster.spark.stream_offsets import default_limit, parse_offset
from tests.support.node import NodeProcess, running_node
from tests.support.topics import eventually, fill, make_topics

pytestmark = pytest.mark.integration

KEYS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # Long enough for drivers that come at once to be in the group's first generation together.
    settings = {
        "group.initial.rebalance.delay.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with running_node(tmp_path_factory.mktemp("beginning") / "data", settings) as node:
        yield node


class Query:
    """One streaming query as its source sees it: offsets that Spark has written down, and what batches read."""

    def __init__(self, node: NodeProcess, topic: str, start: dict[str, Any] | None = None, **options: str) -> None:
        given = {"bootstrap.servers": node.address, "offsetsRefreshMs": "10"} | options
        if "assign" not in options:
            given["subscribe"] = topic
        known = check_read_options(given, streaming=True)
        self.driver = StreamDriver(known)
        self.limit = default_limit(known)
        self.start = start or self.driver.initial()
        self.batches = 0
        self.read: list[tuple[int, int]] = []
        """Partition and offset."""

    def turn(self) -> "Query":
        """Spark's question for a batch; what it reads is done at once."""
        end = self.driver.latest(self.start, self.limit)
        if end != self.start:
            self.batches += 1
            for _, partition, first, after in parse_offset(end).ranges():
                self.read += [(partition, offset) for offset in range(first, after)]
            self.start = end
        return self

    def until(self, count: int) -> None:
        eventually(lambda: len(self.turn().read) >= count, f"{count} records")


def more(node: NodeProcess, topic: str, count: int) -> None:
    fill(node.address, topic, [b"%d" % number for number in range(count)], KEYS)


def ends(node: NodeProcess, topic: str) -> dict[int, int]:
    with Admin({"bootstrap.servers": node.address}) as admin:
        partitions = {(topic, number): -1 for number in range(admin.list_topics()[topic])}
        return {tp.partition: at.offset for tp, at in admin.list_offsets(partitions).items()}


def committed(node: NodeProcess, group: str) -> dict[int, int]:
    with Admin({"bootstrap.servers": node.address}) as admin:
        return {tp.partition: at.offset for tp, at in admin.group_offsets(group).items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_drivers_that_begin_a_group_together_begin_at_one_place(node: NodeProcess, protocol: str) -> None:
    topic = f"together-{protocol}"
    make_topics(node.address, **{topic: 3})
    more(node, topic, 60)
    before = ends(node, topic)
    options = {"group.id": topic, "startingOffsets": "latest", "group.protocol": protocol}
    queries = [Query(node, topic, **options) for _ in range(3)]
    with ExitStack() as stack:
        for query in queries:
            stack.callback(query.driver.close)
        threads = [threading.Thread(target=query.turn) for query in queries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # A share may come in a later generation than the first.
        eventually(lambda: all(query.turn() for query in queries) and len(committed(node, topic)) == 3, "all begun")
        assert committed(node, topic) == before
        more(node, topic, 60)
        eventually(lambda: sum(len(query.turn().read) for query in queries) >= 60, "what came since")
    after = ends(node, topic)
    wanted = [(number, offset) for number in range(3) for offset in range(before[number], after[number])]
    assert sorted(one for query in queries for one in query.read) == wanted


def test_a_driver_that_comes_while_others_begin_takes_their_beginning(node: NodeProcess) -> None:
    """Some had settled where they begin when their group changed, some had not: no partition is new for that."""
    make_topics(node.address, halfway=3)
    more(node, "halfway", 60)
    before = ends(node, "halfway")
    options = {"group.id": "halfway", "startingOffsets": "latest"}
    first = Query(node, "halfway", **options)
    try:
        first.turn()
        assert committed(node, "halfway") == before
    finally:
        first.driver.close()
    with Admin({"bootstrap.servers": node.address}) as admin:
        admin.delete_offsets("halfway", [("halfway", 1), ("halfway", 2)])
    assert committed(node, "halfway") == {0: before[0]}
    second = Query(node, "halfway", **options)
    try:
        second.turn()
        assert committed(node, "halfway") == before
        assert second.read == []
    finally:
        second.driver.close()


@pytest.mark.parametrize("commits", ["group", "assign", "none", "nobody"])
def test_a_stream_that_is_started_again_before_its_first_record_skips_nothing(node: NodeProcess, commits: str) -> None:
    topic = f"again-{commits}"
    make_topics(node.address, **{topic: 2})
    more(node, topic, 20)
    options = {"startingOffsets": "latest"}
    if commits == "group":
        options |= {"group.id": topic}
    elif commits == "none":
        options |= {"group.id": topic, "commitOffsets": "false"}
    elif commits == "assign":
        options |= {"group.id": topic, "assign": f'{{"{topic}": [0, 1]}}'}
    first = Query(node, topic, **options)
    try:
        first.turn()
        # A checkpoint that has no batch yet forgets where it was to begin.
        left = first.start if first.batches else None
    finally:
        first.driver.close()
    more(node, topic, 20)
    second = Query(node, topic, left, **options)
    try:
        second.until(20)
    finally:
        second.driver.close()
    assert len(set(second.read)) == len(second.read) == 20


def test_a_rebalance_of_those_who_commit_nothing_skips_nothing(node: NodeProcess) -> None:
    make_topics(node.address, uncommitted=2)
    more(node, "uncommitted", 20)
    shared = {"group.id": "uncommitted", "partition.assignment.strategy": "range"}
    query = Query(node, "uncommitted", startingOffsets="latest", commitOffsets="false", **shared)
    properties = {"bootstrap.servers": node.address, "enable.auto.commit": "false", "auto.offset.reset": "latest"}
    try:
        query.turn()
        with Consumer(properties | shared) as other:
            other.subscribe(["uncommitted"])

            def halved() -> bool:
                query.turn()
                other.poll(0.05)
                return len(other.assignment()) == 1

            eventually(halved, "the other one to have a share")
            more(node, "uncommitted", 20)
        query.until(20)
    finally:
        query.driver.close()
    assert len(query.read) == 20, "what the other one had a share of, too"


def test_what_was_read_before_a_rebalance_is_not_read_again_though_nobody_commits(node: NodeProcess) -> None:
    """The group takes everything back between a batch and the question for the next one."""
    make_topics(node.address, once=2)
    shared = {"group.id": "once", "partition.assignment.strategy": "range"}
    query = Query(node, "once", startingOffsets="latest", commitOffsets="false", **shared)
    over = threading.Event()
    other = threading.Thread(target=polling, args=(node, "once", shared, over))
    try:
        query.turn()
        more(node, "once", 20)
        query.until(20)
        other.start()
        with Admin({"bootstrap.servers": node.address}) as admin:
            eventually(lambda: admin.describe_group("once").state == "PreparingRebalance", "the other one to join")
        query.turn()
        over.set()
        other.join()
        more(node, "once", 20)
        query.until(40)
    finally:
        over.set()
        query.driver.close()
    assert len(set(query.read)) == len(query.read) == 40


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_batch_has_read_is_not_read_again_though_the_membership_ended_meanwhile(
    node: NodeProcess, protocol: str
) -> None:
    """A batch that takes longer than the session: its commit is refused, and nobody else has read on."""
    topic = f"ended-{protocol}"
    make_topics(node.address, **{topic: 2})
    more(node, topic, 40)
    options = {"group.id": topic, "group.protocol": protocol, "maxOffsetsPerTrigger": "20"}
    query = Query(node, topic, startingOffsets="earliest", **options)
    try:
        query.until(20)
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.remove_members(topic)
            eventually(lambda: not admin.describe_group(topic).members, "the member to be gone")
            query.until(40)
        assert len(set(query.read)) == len(query.read) == 40
        query.turn()
        assert sum(committed(node, topic).values()) == 40
    finally:
        query.driver.close()


def test_a_rebalance_is_not_the_end_of_what_is_there(node: NodeProcess) -> None:
    """Trigger.AvailableNow ends with the first answer that has nothing new; an eager group takes all shares away."""
    make_topics(node.address, drained=2)
    more(node, "drained", 200)
    shared = {"group.id": "drained", "partition.assignment.strategy": "range"}
    query = Query(node, "drained", startingOffsets="earliest", maxOffsetsPerTrigger="10", **shared)
    query.driver.drain()
    over = threading.Event()
    try:
        query.turn()
        other = threading.Thread(target=polling, args=(node, "drained", shared, over))
        other.start()
        with Admin({"bootstrap.servers": node.address}) as admin:
            eventually(lambda: admin.describe_group("drained").state == "PreparingRebalance", "the other one to join")
        before = None
        while query.start != before:
            before = query.start
            query.turn()
    finally:
        over.set()
        other.join()
        query.driver.close()
    left = {number: progress.end for (_, number), progress in parse_offset(query.start).partitions.items()}
    assert len(left) == 1, "a share of two"
    assert left.items() <= ends(node, "drained").items()


def polling(node: NodeProcess, topic: str, shared: dict[str, str], over: threading.Event) -> None:
    """A member that reads and commits nothing."""
    properties = {"bootstrap.servers": node.address, "enable.auto.commit": "false", "auto.offset.reset": "latest"}
    with Consumer(properties | shared) as other:
        other.subscribe([topic])
        while not over.is_set():
            other.poll(0.05)
