"""`muster groups migrate-offsets`: what it copies, what it leaves alone, and when it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.client import Admin, Consumer
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill, plain

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=3)
        fill(node, "t", 3, 30)
        yield node


def migrate(node: NodeProcess, zookeeper: str, to: str, *more: str) -> int:
    arguments = ["groups", "migrate-offsets", "g", "--to", to, "--zookeeper", zookeeper, "--bootstrap", node.address]
    return main([*arguments, *more])


def test_positions_move_to_the_coordinator_and_back(node: NodeProcess, zookeeper: str, capsys: Capture) -> None:
    with plain(zookeeper) as client, Admin({"bootstrap.servers": node.address}) as admin:
        for partition, offset in ((0, b"4"), (1, b"5")):
            client.create(f"/consumers/g/offsets/t/{partition}", offset, makepath=True)

        assert migrate(node, zookeeper, "kafka", "--dry-run", "-o", "json") == Exit.OK
        out, err = capsys.readouterr()
        assert [(row["partition"], row["new_offset"], row["current_offset"]) for row in json.loads(out)] == [
            (0, 4, None),
            (1, 5, None),
        ]
        assert "Nothing was changed" in err

        assert migrate(node, zookeeper, "kafka") == Exit.OK
        assert "2 positions copied to kafka." in capsys.readouterr().err
        client.delete("/consumers", recursive=True)
        assert {tp: at.offset for tp, at in admin.group_offsets("g").items()} == {("t", 0): 4, ("t", 1): 5}

        # What is further on stays, what is behind is brought up.
        client.create("/consumers/g/offsets/t/0", b"9", makepath=True)
        assert migrate(node, zookeeper, "zookeeper") == Exit.OK
        assert client.get("/consumers/g/offsets/t/0")[0] == b"9"
        assert client.get("/consumers/g/offsets/t/1")[0] == b"5"
        assert "1 position copied" in capsys.readouterr().err

    # And that is where a consumer of the next generation goes on.
    with Consumer({"bootstrap.servers": node.address, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe("t")
        poll_until(lambda: len(consumer.assignment()) == 3, consumer, what="joined")
        assert consumer.position(("t", 1)) >= 5


def test_an_active_group_is_refused_unless_it_commits_to_both(
    node: NodeProcess, zookeeper: str, capsys: Capture
) -> None:
    with Consumer(era_properties(zookeeper)) as consumer:
        consumer.subscribe("t")
        poll_until(lambda: bool(consumer.assignment()), consumer, what="joined")
        consumer.commit(offsets={("t", 0): 3})
        assert migrate(node, zookeeper, "kafka") == Exit.CONFLICT
        err = capsys.readouterr().err
        assert "group 'g' is active" in err
        assert f"{consumer.memberid()} does not commit to kafka" in err
        assert "dual.commit.enabled=true" in err
        server = zookeeper.partition("/")[0]
        assert migrate(node, server, "kafka") == Exit.CONFLICT
        assert (
            f"meet in ZooKeeper, {consumer.memberid()} among them, but not under {server};" in capsys.readouterr().err
        )
    both = {"offsets.storage": "kafka", "dual.commit.enabled": True}
    with Consumer(era_properties(zookeeper) | both) as consumer:
        consumer.subscribe("t")
        poll_until(lambda: bool(consumer.assignment()), consumer, what="joined")
        assert migrate(node, zookeeper, "kafka") == Exit.OK


def test_members_that_speak_to_the_coordinator_are_in_the_way(
    node: NodeProcess, zookeeper: str, capsys: Capture
) -> None:
    with Consumer({"bootstrap.servers": node.address, "group.id": "g"}) as consumer:
        consumer.subscribe("t")
        poll_until(lambda: bool(consumer.assignment()), consumer, what="joined")
        assert migrate(node, zookeeper, "zookeeper") == Exit.CONFLICT
        assert "1 member(s) speak to the coordinator" in capsys.readouterr().err


def test_nothing_to_copy_and_nobody_there_are_told(node: NodeProcess, zookeeper: str, capsys: Capture) -> None:
    assert migrate(node, zookeeper, "kafka") == Exit.NOT_FOUND
    assert "ZooKeeper has no positions of group 'g'" in capsys.readouterr().err
    patience = ["--set", "default.api.timeout.ms=300"]
    assert migrate(node, "127.0.0.1:1", "kafka", *patience) == Exit.UNHEALTHY
    assert "no ZooKeeper answered at 127.0.0.1:1" in capsys.readouterr().err
    typo = f"{zookeeper.partition('/')[0]}/typo-of-migrate"
    assert migrate(node, typo, "kafka", "--dry-run") != Exit.OK
    assert "there is no /typo-of-migrate in ZooKeeper at" in capsys.readouterr().err
    with plain(zookeeper.partition("/")[0]) as client:
        assert not client.exists("/typo-of-migrate"), "a tool leaves nothing behind"
    assert migrate(node, "127.0.0.1:nowhere", "kafka") == Exit.USAGE
    assert "expected HOST:PORT" in capsys.readouterr().err
