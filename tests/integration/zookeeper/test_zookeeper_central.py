"""Central groups beside a real ZooKeeper: what it shows of them, who is elected, and who takes over.

Each node has a log of its own, so a node that takes over brings no other node's groups back: members find it, and are
assigned afresh.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from muster.cli.main import main as cli
from muster.client import Admin, Consumer, Producer
from muster.client.errors import ClientError
from muster.coordinator.zookeeper import layout
from tests.support.client_stories import poll_until, read
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience
from tests.support.zookeeper.servers import running

pytestmark = pytest.mark.integration

PATIENCE_S = 45.0
TOPIC = GROUP = "orders"


@pytest.fixture
def tool(zookeeper: str) -> Iterator[KazooClient]:
    """What any tool of that era is to ZooKeeper."""
    client = KazooClient(hosts=zookeeper, timeout=10)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def settings(zookeeper: str, node_id: int) -> dict[str, str]:
    return {
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "2000",
        "node.id": str(node_id),
        "group.central.rebalance.backoff.ms": "100",
    }


def until(true: Callable[[], bool], what: str) -> None:
    patience = Patience(PATIENCE_S)
    while not true():
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def make_topic(node: NodeProcess, records: int = 0, value: bytes = b"") -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(TOPIC, 2)
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(records):
            producer.produce(TOPIC, value, partition=number % 2)
        producer.flush()


def member(*nodes: NodeProcess) -> Consumer:
    return Consumer(
        bootstrap_servers=",".join(node.address for node in nodes),
        group_id=GROUP,
        group_protocol="central",
        auto_offset_reset="earliest",
        session_timeout_ms=3_000,
    )


def owners(tool: KazooClient) -> dict[int, str]:
    """partition -> the owner's entry"""
    place = layout.topic_owners_path(GROUP, TOPIC)
    found = {}
    for number in tool.get_children(place) if tool.exists(place) else ():
        with suppress(NoNodeError):  # it changes hands right now
            found[int(number)] = tool.get(f"{place}/{number}")[0].decode()
    return found


def offsets(tool: KazooClient) -> list[int]:
    place = layout.topic_offsets_path(GROUP, TOPIC)
    if not tool.exists(place):
        return []
    return [int(tool.get(f"{place}/{number}")[0]) for number in sorted(tool.get_children(place))]


def elected(tool: KazooClient) -> int | None:
    try:
        stored, _ = tool.get(layout.CENTRAL_COORDINATOR)
    except NoNodeError:
        return None
    return layout.read_coordinator(layout.CENTRAL_COORDINATOR, stored)[0]


def takeover(node: NodeProcess) -> str:
    """What the node says of a take-over from it."""
    with Admin(bootstrap_servers=node.address) as admin:
        return "".join(each.sentence for each in admin.conditions() if each.name == "central-takeover")


def test_a_tool_sees_owners_and_offsets_and_they_go_with_the_group(
    tmp_path: Path, zookeeper: str, tool: KazooClient
) -> None:
    with running_node(tmp_path / "data", settings(zookeeper, 1)) as node:
        until(lambda: elected(tool) == 1, "the only node is elected")
        make_topic(node, 10)
        with member(node) as first:
            first.subscribe(TOPIC)
            read(first, 10)
            mine = f"{first.memberid()}-0"
            until(lambda: owners(tool) == {0: mine, 1: mine}, "both partitions are shown as the member's")
            poll_until(lambda: offsets(tool) == [5, 5], first, what="the committer has written both")
            with member(node) as second:
                second.subscribe(TOPIC)
                poll_until(lambda: len(second.assignment()) == 1, first, second, what="they share")
                until(lambda: set(owners(tool).values()) == {mine, f"{second.memberid()}-0"}, "the owners are two")
        until(lambda: owners(tool) == {}, "nobody owns anything")
        assert offsets(tool) == [5, 5]
        with Admin(bootstrap_servers=node.address) as admin:
            (listed,) = admin.list_groups()
            assert (listed.group_id, listed.group_type) == (GROUP, "central")
            admin.delete_groups([GROUP])
        until(lambda: not tool.exists(layout.group_path(GROUP)), "nothing of it is left")


def test_a_group_that_consumers_have_themselves_is_not_touched(
    tmp_path: Path, zookeeper: str, tool: KazooClient
) -> None:
    tool.create(layout.owner_path(GROUP, TOPIC, 0), b"somebody-0", makepath=True)
    with running_node(tmp_path / "data", settings(zookeeper, 1)) as node:
        make_topic(node)
        with member(node) as consumer:
            consumer.subscribe(TOPIC)
            poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="it owns everything here")
            until(lambda: "is not published" in node.log_tail(), "the node says that it does not publish the group")
            assert owners(tool) == {0: "somebody-0"}


def test_another_node_is_elected_when_the_coordinator_dies(tmp_path: Path, zookeeper: str, tool: KazooClient) -> None:
    with ExitStack() as nodes:
        one = nodes.enter_context(running_node(tmp_path / "one", settings(zookeeper, 1)))
        until(lambda: elected(tool) == 1, "the first is elected")
        two = nodes.enter_context(running_node(tmp_path / "two", settings(zookeeper, 2)))
        make_topic(one)
        make_topic(two)
        # Whichever node is asked, members end up at the one that is elected.
        with member(two) as consumer:
            consumer.subscribe(TOPIC)
            poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="it owns everything")
            assert members(one) == [consumer.memberid()]
            assert members(two) == []
            # What the other one would not have is said before it takes over.
            until(lambda: "if this node fails, node 2 takes over" in takeover(one), "the node says what would be lost")
            assert f"its central groups: {GROUP} ({TOPIC})" in takeover(one)
            assert "other nodes on this ensemble share no log with this one" in one.log_tail()
            assert "other nodes on this ensemble share no log with this one" in two.log_tail()
            assert takeover(two) == ""
            assert cli(["health", "--bootstrap", one.address]) == 0, "nothing is lost yet"
            one.kill()
            until(lambda: elected(tool) == 2, "the second is elected when the first one's session is over")
            poll_until(
                lambda: members(two) == [consumer.memberid()] and len(consumer.assignment()) == 2,
                consumer,
                what="it has found the new coordinator, and owns everything",
            )
            until(lambda: set(owners(tool).values()) == {f"{consumer.memberid()}-0"}, "the owners are shown again")
            until(lambda: takeover(two) == "", "no node is left that could take over")


def test_members_read_the_log_of_the_node_that_coordinates_them(
    tmp_path: Path, zookeeper: str, tool: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever node they ask first: what another one has under the same name are other records, at other offsets."""
    with ExitStack() as nodes:
        one = nodes.enter_context(running_node(tmp_path / "one", settings(zookeeper, 1)))
        until(lambda: elected(tool) == 1, "the first is elected")
        two = nodes.enter_context(running_node(tmp_path / "two", settings(zookeeper, 2)))
        make_topic(one, 4, b"one")
        make_topic(two, 10, b"two")
        with member(two) as consumer:
            consumer.subscribe(TOPIC)
            assert [message.value for message in read(consumer, 4)] == [b"one"] * 4
            poll_until(lambda: offsets(tool) == [2, 2], consumer, what="its positions are of that log")
        with Admin(bootstrap_servers=one.address) as admin:
            assert {lag.lag for lag in admin.group_lag(GROUP)} == {0}
    assert caplog.text.count(f"coordinated by the node at {one.address}, which bootstrap.servers does not name") == 1


def test_members_are_told_that_zookeeper_is_away_and_go_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        running(1) as ensemble,
        running_node(tmp_path / "data", settings(ensemble.connect, 1)) as node,
        member(node) as consumer,
    ):
        make_topic(node)
        consumer.subscribe(TOPIC)
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="it owns everything")
        ensemble.kill(1)
        reason = f"no coordinator is elected: ZooKeeper at {ensemble.connect} cannot be reached from this node"
        poll_until(lambda: reason in caplog.text, consumer, what="the member says why it stands still")
        poll_until(lambda: not consumer.assignment(), consumer, what="its lease is over")
        assert cli(["health", "--bootstrap", node.address]) == 0
        out, err = capsys.readouterr()
        assert out == "SERVING\n"
        assert "it coordinates no central groups until it is" in err
        ensemble.start()
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="it owns everything again")


def members(node: NodeProcess) -> list[str]:
    try:
        with Admin(bootstrap_servers=node.address, default_api_timeout_ms=2_000) as admin:
            return [member.member_id for member in admin.describe_group(GROUP).members]
    except ClientError:
        return []
