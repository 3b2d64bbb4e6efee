"""`group.protocol=central` against a real node: sharing, leaving, offsets by pings and stops, patterns, the views."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer, Producer, Worker, aio
from muster.client.errors import ConfigError, Refused
from muster.coordinator.core.model.types import Cause
from tests.integration.conftest import Run
from tests.support.client_stories import Told, poll_until, read
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
names = count()
QUICK = {"group.central.rebalance.backoff.ms": "100"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("central") / "data"), QUICK) as running:
        yield running


@pytest.fixture
def topic(node: NodeProcess) -> str:
    """A topic of four partitions that no other test uses; its name serves as group id too."""
    name = f"topic-{next(names)}"
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(name, 4)
    return name


def member(node: NodeProcess, group: str, **more: Any) -> Consumer:
    properties: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "group_protocol": "central",
        "session_timeout_ms": 3_000,
    }
    return Consumer(bootstrap_servers=node.address, group_id=group, **(properties | more))


def shared(*consumers: Consumer) -> bool:
    shares = [consumer.assignment() for consumer in consumers]
    return all(len(share) == 4 // len(consumers) for share in shares) and len(set().union(*shares)) == 4


def fill(node: NodeProcess, topic: str, records: int) -> None:
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(records):
            producer.produce(topic, str(number).encode(), partition=number % 4)
        producer.flush()


def test_members_share_hand_over_and_take_over(node: NodeProcess, topic: str) -> None:
    told = Told()
    with member(node, topic) as first:
        first.subscribe(topic, **told.callbacks())
        poll_until(lambda: shared(first), first, what="the first owns everything")
        with member(node, topic) as second:
            second.subscribe(topic)
            poll_until(lambda: shared(first, second), first, second, what="both own two")
            gone, event = told.revoked[-1]
            assert (len(gone), event.protocol, event.cause) == (4, "eager", Cause.MEMBER_JOINED)
            assert told.lost == []
        poll_until(lambda: shared(first), first, what="the first owns everything again")
        assert told.assigned[-1][1].generation == first.consumer_group_metadata().generation == 3


def test_the_coordinator_commits_what_members_have_done(node: NodeProcess, topic: str) -> None:
    """With pings and with the last word; a commit of one's own counts as well. Nobody reads anything twice."""
    fill(node, topic, 40)
    with member(node, topic) as first:
        first.subscribe(topic)
        read(first, 40)
        poll_until(lambda: committed(node, topic) == 40, first, what="a ping has brought the offsets")
        fill(node, topic, 20)
        more = len(read(first, 9))
    assert committed(node, topic) == 40 + more
    with member(node, topic, enable_auto_commit=False) as second:
        second.subscribe(topic)
        assert len(read(second, 11)) == 11
        assert committed(node, topic) == 49
        second.commit()
    assert committed(node, topic) == 60


def test_the_views_show_a_central_group(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 8)
    with member(node, topic) as consumer, Admin(bootstrap_servers=node.address) as admin:
        consumer.subscribe(topic)
        read(consumer, 8)
        listed = next(group for group in admin.list_groups(types=["central"]) if group.group_id == topic)
        assert (listed.group_type, listed.protocol_type, listed.state) == ("central", "consumer", "Stable")
        described = admin.describe_group(topic)
        assert (described.assignor, described.generation) == ("range", 1)
        (only,) = described.members
        assert (only.member_id, only.topics, len(only.assignment)) == (consumer.memberid(), (topic,), 4)
        assert {lag.owner for lag in admin.group_lag(topic)} == {consumer.memberid()}
        (entry,) = admin.explain(topic)
        assert [phase.name for phase in entry.phases] == ["plan", "stop", "start"]
        assert (entry.cause, entry.culprit, entry.snapshot_source) == (Cause.MEMBER_JOINED, only.member_id, "central")


def test_a_new_topic_that_matches_a_pattern_is_read(node: NodeProcess, topic: str) -> None:
    told = Told()
    with member(node, topic) as consumer, Admin(bootstrap_servers=node.address) as admin:
        consumer.subscribe([f"^{topic}(-more)?$"], **told.callbacks())
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="the first topic is read")
        admin.create_topic(f"{topic}-more", 2)
        poll_until(lambda: len(consumer.assignment()) == 6, consumer, what="the second one, too")
        assert told.assigned[-1][1].cause is Cause.SUBSCRIPTION_CHANGED


def test_a_changed_subscription_is_said_on_the_open_stream(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as consumer, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(f"{topic}-other", 1)
        consumer.subscribe(topic)
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="the topic is read")
        consumer.subscribe(f"{topic}-other")
        poll_until(lambda: len(consumer.assignment()) == 1, consumer, what="the other one is")
        admin.create_partitions(f"{topic}-other", 3)
        poll_until(lambda: len(consumer.assignment()) == 3, consumer, what="what it grew by, too")


@pytest.mark.parametrize(
    ("properties", "code", "words"),
    [
        ({"partition_assignment_strategy": "roundrobin"}, 23, "assign by 'range', this one by 'roundrobin'"),
        ({"session_timeout_ms": 100}, 26, "session timeout 100 ms is not between"),
        ({"partition_assignment_strategy": "os:getcwd"}, 112, "'os:getcwd' is not an assignor"),
    ],
)
def test_whoever_cannot_be_taken_in_is_told_why(
    node: NodeProcess, topic: str, properties: dict[str, object], code: int, words: str
) -> None:
    with member(node, topic) as first:
        first.subscribe(topic)
        poll_until(lambda: shared(first), first, what="the first owns everything")
        with member(node, topic, **properties) as second:
            second.subscribe(topic)
            with pytest.raises(Refused, match=words) as refused:
                poll_until(lambda: False, second, what="it is refused")
            assert refused.value.code == code


def test_a_group_of_another_kind_makes_room_once_nobody_is_in_it(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as central:
        central.subscribe(topic)
        poll_until(lambda: shared(central), central, what="the central member owns everything")
        with member(node, topic, group_protocol="classic", session_timeout_ms=6_000) as classic:
            classic.subscribe(topic)
            with pytest.raises(Refused, match="is a central group with 1 members"):
                poll_until(lambda: False, classic, what="it is refused")
    for protocol in ("classic", "central", "consumer", "central"):
        properties: dict[str, Any] = {"session_timeout_ms": 3_000} if protocol == "central" else {}
        with Consumer(
            bootstrap_servers=node.address, group_id=topic, group_protocol=protocol, **properties
        ) as consumer:
            consumer.subscribe(topic)
            poll_until(lambda: shared(consumer), consumer, what=f"a {protocol} member owns everything")
    found = generations(node, topic)
    assert found == sorted(set(found), reverse=True)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_is_of_another_kind_ends_with_a_conflict(node: NodeProcess, topic: str, protocol: str) -> None:
    with member(node, topic) as central:
        central.subscribe(topic)
        poll_until(lambda: shared(central), central, what="the central member owns everything")
        command = [
            sys.executable,
            "-m",
            "muster.cli",
            "consume",
            "--bootstrap",
            node.address,
            "--topic",
            topic,
        ]
        told = subprocess.run(
            [*command, "--group", topic, "--set", f"group.protocol={protocol}"], capture_output=True, timeout=60
        )
    assert "is a central group with 1 members" in told.stderr.decode()
    assert told.returncode == 5


def test_an_operator_removes_a_member_and_it_comes_back_as_a_newcomer(node: NodeProcess, topic: str) -> None:
    told = Told()
    with member(node, topic) as consumer, Admin(bootstrap_servers=node.address) as admin:
        consumer.subscribe(topic, **told.callbacks())
        poll_until(lambda: shared(consumer), consumer, what="it owns everything")
        assert admin.remove_members(topic) == [consumer.memberid()]
        poll_until(lambda: bool(told.lost) and shared(consumer), consumer, what="lost and given again")


def committed(node: NodeProcess, group: str) -> int:
    with Admin(bootstrap_servers=node.address) as admin:
        return sum(position.offset for position in admin.group_offsets(group).values())


def generations(node: NodeProcess, group: str) -> list[int]:
    with Admin(bootstrap_servers=node.address) as admin:
        return [entry.generation for entry in admin.explain(group)]


def test_the_asyncio_consumer_shares_as_well(node: NodeProcess, topic: str, run: Run) -> None:
    async def story() -> None:
        properties = {
            "bootstrap.servers": node.address,
            "group.id": topic,
            "group.protocol": "central",
            "session.timeout.ms": 3_000,
        }
        async with aio.AsyncConsumer(properties) as one, aio.AsyncConsumer(properties) as two:
            await one.subscribe(topic)
            await two.subscribe(topic)
            while (len(one.assignment()), len(two.assignment())) != (2, 2):
                await one.poll(0.02)
                await two.poll(0.02)

    run(story)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"group_instance_id": "x"}, "group.instance.id cannot be set with group.protocol=central"),
        ({"heartbeat_interval_ms": 100}, "heartbeat.interval.ms cannot be set with group.protocol=central"),
        ({"auto_commit_interval_ms": 100}, "auto.commit.interval.ms cannot be set with group.protocol=central"),
        ({"group_id": None}, "group.protocol=central needs a group.id"),
    ],
)
def test_properties_that_mean_nothing_here_are_refused(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Consumer(**({"group_id": "g", "group_protocol": "central"} | properties))


def test_a_worker_is_told_which_protocols_there_are_for_it() -> None:
    with pytest.raises(ConfigError, match="use classic or consumer"):
        Worker(group_id="g", group_protocol="central")
