"""How consumers of that era find their nodes, name themselves, and read by hand; and the same from the command line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Consumer
from muster.client.errors import ZookeeperRefused
from tests.support.client_stories import poll_until, read
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import Process, create, era_node, era_properties, fill, plain


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=2)
        yield node


def test_a_node_that_comes_back_elsewhere_is_found_by_its_registration(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 2, 4)
    before = node.address
    with Consumer(era_properties(zookeeper, offsets_storage="kafka")) as consumer:
        consumer.subscribe("t")
        assert len(read(consumer, 4)) == 4
        node.stop()
        node.address = "127.0.0.1:0"
        node.start()
        assert node.address != before
        fill(node, "t", 2, 4, first=4)
        assert sorted(int(message.value) for message in read(consumer, 4)) == [4, 5, 6, 7]
        consumer.commit()


def test_a_consumer_id_belongs_to_one_living_consumer(node: NodeProcess, zookeeper: str) -> None:
    properties = era_properties(zookeeper, consumer_id="me", zookeeper_session_timeout_ms=600)
    with Consumer(properties) as first, Consumer(properties) as second:
        first.subscribe("t")
        poll_until(lambda: bool(first.assignment()), first, what="assigned")
        second.subscribe("t")
        with pytest.raises(ZookeeperRefused, match=r"g_me is registered in group 'g' by another session"):
            poll_until(lambda: bool(second.assignment()), first, second, what="never")
        assert len(first.assignment()) == 2


def test_who_died_and_comes_back_under_its_name_waits_for_its_old_session(node: NodeProcess, zookeeper: str) -> None:
    properties = era_properties(zookeeper, consumer_id="me", zookeeper_session_timeout_ms=1_500)
    doomed = Process(properties, "t")
    try:
        with plain(zookeeper) as client, Consumer(properties) as heir:
            poll_until(lambda: bool(doomed.told("assigned")), what="the first one owns everything")
            (before,) = {client.get(f"/consumers/g/ids/{each}")[1].ephemeralOwner for each in ["g_me"]}
            doomed.kill()
            heir.subscribe("t")
            poll_until(lambda: len(heir.assignment()) == 2, heir, what="the second one does")
            assert heir.memberid() == "g_me"
            assert client.get("/consumers/g/ids/g_me")[1].ephemeralOwner != before
    finally:
        doomed.kill()


def test_a_topic_of_somebody_that_no_znode_can_be_called_stops_nobody(node: NodeProcess, zookeeper: str) -> None:
    body = b'{"version":1,"subscription":{"..":1},"pattern":"static","timestamp":"1"}'
    with plain(zookeeper) as client, Consumer(era_properties(zookeeper)) as consumer:
        client.create("/consumers/g/ids/g_odd", body, ephemeral=True, makepath=True)
        consumer.subscribe("t")
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="assigned")


def test_reading_by_hand_keeps_positions_in_zookeeper_too(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 2, 8)
    with Consumer(era_properties(zookeeper)) as consumer, plain(zookeeper) as client:
        consumer.assign([("t", 1)])
        assert [message.partition for message in read(consumer, 4)] == [1, 1, 1, 1]
        consumer.commit()
        assert client.get("/consumers/g/offsets/t/1")[0] == b"4"
        assert consumer.committed([("t", 0), ("t", 1)])[("t", 0)] is None
        assert client.get_children("/consumers/g/ids") == []


def consume(zookeeper: str, *words: str) -> "subprocess.CompletedProcess[str]":
    settings = ["group.protocol=zookeeper", f"zookeeper.connect={zookeeper}"]
    command = [str(Path(sys.executable).with_name("muster")), "consume", "--group", "g", *words]
    command += ["--from-beginning", *(word for each in settings for word in ("--set", each))]
    environment = {name: value for name, value in os.environ.items() if name != "MUSTER_BOOTSTRAP"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_muster_consume_reads_as_such_a_consumer(node: NodeProcess, zookeeper: str) -> None:
    fill(node, "t", 2, 6)
    done = consume(zookeeper, "--topic", "t", "--max-messages", "6")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [str(number) for number in range(6)]
    assert "is near zookeeper.session.timeout.ms=6000" in done.stderr
    with plain(zookeeper) as client:
        assert [client.get(f"/consumers/g/offsets/t/{number}")[0] for number in range(2)] == [b"3", b"3"]


def test_muster_consume_leaves_a_black_list_out(node: NodeProcess, zookeeper: str) -> None:
    create(node, tmp=1, tmp2=1)
    fill(node, "tmp2", 1, 3)
    fill(node, "t", 2, 6, first=10)
    done = consume(zookeeper, "--topic", "^tm", "--black-list", "--max-messages", "6")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [str(number) for number in range(10, 16)]
    refused = consume(zookeeper, "--topic", "t", "--black-list")
    assert refused.returncode == 2
    assert "--black-list needs a pattern" in refused.stderr
    for name in (".", ".."):
        strange = consume(zookeeper, "--topic", name)
        assert strange.returncode != 0
        assert strange.stderr.startswith("error: a topic is a znode in ZooKeeper")
