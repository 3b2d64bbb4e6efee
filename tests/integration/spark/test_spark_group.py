"""Streams whose drivers are members of a group: seen there with their lag, sharing, handing over, leaving."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from muster.client import Admin, Consumer
from muster.spark.offset_commits import OffsetCommitter
from tests.support.node import NodeProcess, running_node
from tests.support.spark.reading import Reading
from tests.support.topics import eventually, fill, make_topics

pytestmark = pytest.mark.integration

SHORT = {"session.timeout.ms": "1500", "heartbeat.interval.ms": "300", "offsetsRefreshMs": "20"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("group") / "data") as node:
        yield node


@pytest.fixture(scope="module")
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": node.address}) as admin:
        yield admin


def reading(spark: Any, node: NodeProcess, folder: Path, group: str, **options: str) -> Reading:
    return Reading(spark, node, folder, **{"subscribe": group, "group.id": group} | SHORT | options)


def more(node: NodeProcess, topic: str, count: int) -> None:
    fill(node.address, topic, [b"%d" % number for number in range(count)], [b"%d" % key for key in range(50)])


def committed(admin: Admin, group: str) -> int:
    return sum(at.offset for at in admin.group_offsets(group).values())


def lag(admin: Admin, group: str) -> int:
    return sum(part.lag for part in admin.group_lag(group))


@contextmanager
def running(*readings: Reading) -> Iterator[None]:
    try:
        yield
    finally:
        for each in readings:
            each.stop()


def test_a_driver_is_a_member_and_its_progress_is_the_group_s(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path
) -> None:
    make_topics(node.address, seen=3)
    more(node, "seen", 300)
    # A session that outlasts the test: whoever is gone has left.
    first = reading(spark, node, tmp_path, "seen", **{"session.timeout.ms": "600000"}).start()
    with running(first):
        first.until(300)
        (member,) = admin.describe_group("seen").members
        assert member.client_id == "spark"
        eventually(lambda: committed(admin, "seen") == 300, "a commit without another batch")
        assert lag(admin, "seen") == 0
    eventually(lambda: admin.describe_group("seen").members == (), "the member of a stopped query to leave")
    more(node, "seen", 60)
    assert lag(admin, "seen") == 60
    first.drain()
    assert first.exactly(seen=360)
    assert committed(admin, "seen") == 360, "the last batch, too"


def test_a_new_checkpoint_begins_where_the_group_stands(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path
) -> None:
    make_topics(node.address, resumed=2)
    more(node, "resumed", 100)
    reading(spark, node, tmp_path / "one", "resumed").drain()
    more(node, "resumed", 30)
    second = reading(spark, node, tmp_path / "two", "resumed", startingOffsets="earliest").drain()
    assert len(second.rows) == 30, "what is committed goes before what an option says"


def test_drivers_that_come_and_go_hand_over_exactly(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path
) -> None:
    """Two checkpoints, one group: what a driver has read is committed before the other one begins behind it."""
    make_topics(node.address, shared=4)
    first = reading(spark, node, tmp_path / "first", "shared", maxOffsetsPerTrigger="150").start()
    second = reading(spark, node, tmp_path / "second", "shared", maxOffsetsPerTrigger="150")
    with running(first, second):
        more(node, "shared", 500)
        first.until(1)
        second.start()
        eventually(lambda: owners(admin, "shared") == [2, 2], "both to have two partitions")
        more(node, "shared", 500)
        second.until(1)
        # A batch that a stop interrupts is read again; here nothing is under way.
        eventually(lambda: committed(admin, "shared") == 1000, "the commits of both")
        first.stop()
        more(node, "shared", 500)
        eventually(lambda: committed(admin, "shared") == 1500, "the other one to read on")
    times = Counter([*first.rows, *second.rows])
    assert len(times) == 1500
    assert set(times.values()) == {1}, "nothing lost, nothing doubled"


@pytest.mark.parametrize(
    ("topic", "option", "value"),
    [
        ("late", "startingOffsets", "latest"),
        ("fallback", "startingOffsetsFallback", "latest"),
        ("named", "startingOffsets", '{"named": {"0": 10}}'),
    ],
)
def test_partitions_that_come_later_are_read_from_their_beginning(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path, topic: str, option: str, value: str
) -> None:
    """Wherever the options begin: they are about the partitions there were. Records come before the group looks."""
    make_topics(node.address, **{topic: 1})
    more(node, topic, 10)
    grows = reading(spark, node, tmp_path, topic, **{option: value, "metadata.max.age.ms": "500"}).start()
    with running(grows):
        eventually(lambda: committed(admin, topic) == 10, "the group to begin at the end")
        admin.create_partitions(topic, 4)
        more(node, topic, 80)
        grows.until(80)
    assert len(grows.rows) == len(set(grows.rows)) == 80
    assert {partition for _, partition, _ in grows.rows} == {0, 1, 2, 3}


def test_partitions_that_came_while_nobody_read_are_new_to_the_group(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path
) -> None:
    make_topics(node.address, pause=1)
    more(node, "pause", 10)
    options = {"startingOffsets": "latest"}
    first = reading(spark, node, tmp_path / "first", "pause", **options).start()
    with running(first):
        eventually(lambda: committed(admin, "pause") == 10, "the group to begin at the end")
    admin.create_partitions("pause", 4)
    more(node, "pause", 80)
    second = reading(spark, node, tmp_path / "second", "pause", **options).drain()
    assert len(second.rows) == len(set(second.rows)) == 80


def test_a_driver_waits_as_long_as_the_group_does(spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path) -> None:
    """A member of an eager group that is busy holds the rebalance up for longer than an answer may take."""
    make_topics(node.address, busy=2)
    more(node, "busy", 40)
    properties = {"bootstrap.servers": node.address, "group.id": "busy"}
    reads = {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
    limits = {"partition.assignment.strategy": "range", "max.poll.interval.ms": "5000", "session.timeout.ms": "4000"}
    with Consumer(properties | reads | limits) as busy:
        busy.subscribe(["busy"])
        eventually(lambda: busy.poll(0.1) is not None, "the busy one to read")
        second = reading(spark, node, tmp_path, "busy", **limits | {"default.api.timeout.ms": "1000"}).start()
        with running(second):
            second.until(40)
            assert second.exactly(busy=40)


def kill_runners() -> None:
    """End the processes in which Spark runs the sources of streams; those of earlier queries may be zombies by now."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "python_streaming_source_runner" in " ".join(process.cmdline()):
                process.kill()


def owners(admin: Admin, group: str) -> list[int]:
    """How many partitions each member has."""
    members = admin.describe_group(group).members
    return sorted(len(member.assignment) for member in members)


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path
) -> None:
    make_topics(node.address, killed=3)
    more(node, "killed", 200)
    first = reading(spark, node, tmp_path, "killed").start()
    with running(first):
        first.until(200)
        kill_runners()
        more(node, "killed", 100)
        eventually(lambda: first.query.exception() is not None, "Spark to notice")
    first.drain()
    assert first.exactly(killed=300)
    eventually(lambda: committed(admin, "killed") == 300, "the commit")


def test_the_coordinator_may_assign(spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path) -> None:
    """KIP-848: its settings, not the driver's, say how long a session lasts."""
    make_topics(node.address, assigned=3)
    more(node, "assigned", 100)
    options = {"bootstrap.servers": node.address, "subscribe": "assigned", "group.id": "assigned"}
    first = Reading(spark, node, tmp_path, **options | {"group.protocol": "consumer"}).drain()
    assert first.exactly(assigned=100)
    assert committed(admin, "assigned") == 100


def test_a_listener_commits_the_last_batch(spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path) -> None:
    """With Trigger.Once Spark asks the source nothing more after its only batch."""
    make_topics(node.address, once=2)
    more(node, "once", 80)
    committer = OffsetCommitter(spark)
    try:
        query = reading(spark, node, tmp_path, "once").start(once=True)
        query.query.awaitTermination()
        committer.flush(query.query)
        assert committed(admin, "once") == 80
    finally:
        committer.close()


def test_commits_can_be_left_to_somebody_else(spark: Any, node: NodeProcess, admin: Admin, tmp_path: Path) -> None:
    make_topics(node.address, quiet=1)
    more(node, "quiet", 20)
    first = reading(spark, node, tmp_path, "quiet", commitOffsets="false").drain()
    assert first.exactly(quiet=20)
    assert committed(admin, "quiet") == 0
