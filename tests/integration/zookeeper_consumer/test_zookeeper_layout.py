"""What consumers of that era leave in ZooKeeper, read back path by path with plain kazoo."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.client import Admin, Consumer
from muster.coordinator.core.model.types import Cause
from tests.support.client_stories import Told, poll_until, read
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill, plain

GROUP = "/consumers/g"


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=4)
        yield node


def tree(client: KazooClient, path: str) -> dict[str, tuple[str, bool]]:
    """Path -> (what it holds, whether it is ephemeral), of everything below."""
    data, stat = client.get(path)
    found = {path: (data.decode(), stat.ephemeralOwner != 0)}
    for name in client.get_children(path):
        found |= tree(client, f"{path}/{name}")
    return found


def test_a_group_lies_where_every_tool_of_that_era_looks(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 4, 8)
    first, second = Consumer(era_properties(zookeeper)), Consumer(era_properties(zookeeper))
    with first, second, plain(zookeeper) as client:
        for consumer in (first, second):
            consumer.subscribe("t")
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second, what="two each")
        ids = sorted([first.memberid(), second.memberid()])
        owners = {0: ids[0], 1: ids[0], 2: ids[1], 3: ids[1]}
        first.commit(offsets=dict.fromkeys(first.assignment(), 2))
        second.commit(offsets=dict.fromkeys(second.assignment(), 1))

        found = tree(client, GROUP)
        assert sorted(found) == sorted(
            [GROUP, f"{GROUP}/ids", f"{GROUP}/owners", f"{GROUP}/offsets", f"{GROUP}/owners/t", f"{GROUP}/offsets/t"]
            + [f"{GROUP}/ids/{consumer_id}" for consumer_id in ids]
            + [f"{GROUP}/owners/t/{number}" for number in range(4)]
            + [f"{GROUP}/offsets/t/{number}" for number in range(4)]
        )
        for consumer_id in ids:
            # [group]_[hostname]-[millis]-[8 hex digits of a uuid]
            assert re.fullmatch(r"g_.+-\d{13}-[0-9a-f]{8}", consumer_id)
            text, ephemeral = found[f"{GROUP}/ids/{consumer_id}"]
            body = json.loads(text)
            assert ephemeral
            assert (body["version"], body["subscription"], body["pattern"]) == (1, {"t": 1}, "static")
            assert body["timestamp"] == consumer_id.split("-")[-2]
        for number, consumer_id in owners.items():
            assert found[f"{GROUP}/owners/t/{number}"] == (f"{consumer_id}-0", True)
            expected = "2" if consumer_id == first.memberid() else "1"
            assert found[f"{GROUP}/offsets/t/{number}"] == (expected, False)
        first.close()
        second.close()
        left = tree(client, GROUP)
        assert not [path for path in left if re.search("/(ids|owners/t)/", path)], "ephemerals of those who left"
        assert sorted(path for path in left if "/offsets/t/" in path) == [f"{GROUP}/offsets/t/{n}" for n in range(4)]


def test_a_consumer_of_three_streams_has_three_shares_and_reads_them_all(node: NodeProcess, zookeeper: str) -> None:
    broad, narrow = Consumer(era_properties(zookeeper) | {"num.streams": 3}), Consumer(era_properties(zookeeper))
    with broad, narrow, plain(zookeeper) as client:
        for consumer in (broad, narrow):
            consumer.subscribe("t")
        poll_until(lambda: (len(broad.assignment()), len(narrow.assignment())) == (3, 1), broad, narrow, what="3 and 1")
        registered = json.loads(client.get(f"{GROUP}/ids/{broad.memberid()}")[0])
        assert registered["subscription"] == {"t": 3}
        claims = {client.get(f"{GROUP}/owners/t/{number}")[0].decode() for number in range(4)}
        assert claims == {f"{broad.memberid()}-{stream}" for stream in range(3)} | {f"{narrow.memberid()}-0"}


def test_patterns_are_registered_as_lists_and_follow_new_topics(node: NodeProcess, zookeeper: str) -> None:
    create(node, orders=2, other=1)
    white, black = Told(), Told()
    reader, rest = Consumer(era_properties(zookeeper, "w")), Consumer(era_properties(zookeeper, "b"))
    with reader, rest, plain(zookeeper) as client:
        reader.subscribe("^or", **white.callbacks())
        rest.subscribe(["^or", "^t$"], black_list=True, **black.callbacks())
        poll_until(lambda: bool(white.assigned and black.assigned), reader, rest, what="both assigned")
        assert reader.assignment() == {("orders", 0), ("orders", 1)}
        assert rest.assignment() == {("other", 0)}
        bodies = [
            json.loads(client.get(f"/consumers/{group}/ids/{consumer.memberid()}")[0])
            for group, consumer in (("w", reader), ("b", rest))
        ]
        assert [(body["pattern"], body["subscription"]) for body in bodies] == [
            ("white_list", {"(?:^or).*": 1}),
            ("black_list", {"(?:^or).*|(?:^t$).*": 1}),
        ]
        create(node, ore=1)
        poll_until(lambda: ("ore", 0) in reader.assignment(), reader, rest, what="a new topic that matches")
        event = white.assigned[-1][1]
        assert (event.cause, event.detail) == (Cause.PARTITIONS_CHANGED, "ore 0 -> 1")
        assert len(black.assigned) == 1, "what it does not read does not stop it"


def test_a_topic_that_grows_is_shared_anew(node: NodeProcess, zookeeper: str) -> None:
    told = Told()
    with Consumer(era_properties(zookeeper)) as consumer:
        consumer.subscribe("t", **told.callbacks())
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="four partitions")
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.create_partitions("t", 6)
        poll_until(lambda: len(consumer.assignment()) == 6, consumer, what="six partitions")
    assert (told.revoked[0][1].cause, told.revoked[0][1].detail) == (Cause.PARTITIONS_CHANGED, "t 4 -> 6")


def test_offsets_that_a_tool_wrote_are_where_a_consumer_begins(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 4, 40)
    with plain(zookeeper) as client:
        for number in range(4):
            client.create(f"{GROUP}/offsets/t/{number}", b"7", makepath=True)
        with Consumer(era_properties(zookeeper)) as consumer:
            consumer.subscribe("t")
            messages = read(consumer, 12)
    assert sorted({message.offset for message in messages}) == [7, 8, 9]
    assert len(messages) == 12


def test_round_robin_deals_by_javas_hash(node: NodeProcess, zookeeper: str) -> None:
    create(node, u=3)
    properties = era_properties(zookeeper, partition_assignment_strategy="roundrobin")
    one, two = Consumer({**properties, "consumer.id": "a"}), Consumer({**properties, "consumer.id": "b"})
    with one, two:
        for consumer in (one, two):
            consumer.subscribe(["t", "u"])
        poll_until(lambda: len(one.assignment()) == 4 and len(two.assignment()) == 3, one, two, what="all seven")
        assert (one.memberid(), two.memberid()) == ("g_a", "g_b")
        # "t-0" to "t-3" and "u-0" to "u-2" hash upwards in this order.
        assert one.assignment() == {("t", 0), ("t", 2), ("u", 0), ("u", 2)}
        assert two.assignment() == {("t", 1), ("t", 3), ("u", 1)}


def test_a_consumer_beyond_the_partitions_idles_until_one_goes(node: NodeProcess, zookeeper: str) -> None:
    create(node, single=1)
    properties = era_properties(zookeeper)
    consumers = [Consumer({**properties, "consumer.id": name}) for name in "ab"]
    for consumer in consumers:
        consumer.subscribe("single")
    poll_until(lambda: consumers[0].assignment() == {("single", 0)}, *consumers, what="the first reads")
    assert consumers[1].assignment() == set()
    consumers[0].close()
    poll_until(lambda: consumers[1].assignment() == {("single", 0)}, consumers[1], what="the second takes over")
    consumers[1].close()
