"""What an operator sees of a group of the ZooKeeper era: real consumers, a real node, the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from muster.client import Consumer
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill, plain, wait_for
from tests.support.zookeeper.servers import running

MUSTER = str(Path(sys.executable).with_name("muster"))


def ran(node: NodeProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [MUSTER, *words, "--bootstrap", node.address]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def muster(node: NodeProcess, *words: str) -> str:
    done = ran(node, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def groups(node: NodeProcess, *words: str) -> Any:
    return json.loads(muster(node, "groups", *words, "-o", "json"))


def test_two_consumers_as_the_command_line_shows_them(zookeeper: str, tmp_path: Path) -> None:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=4)
        fill(node, "t", 4, 20)
        with Consumer(era_properties(zookeeper)) as first:
            first.subscribe(["t"])
            wait_for(lambda: first.poll(0.05) and len(first.assignment()) == 4, "the first has all")
            with Consumer(era_properties(zookeeper)) as second:
                second.subscribe(["t"])

                def both_have_two() -> bool:
                    first.poll(0.02), second.poll(0.02)
                    return len(first.assignment()) == len(second.assignment()) == 2

                wait_for(both_have_two, "each has two")
                wait_for(lambda: len(groups(node, "explain", "--entries", "g")) == 2, "the second rebalance is told")

                assert [(g["group"], g["type"], g["state"]) for g in groups(node, "list")] == [
                    ("g", "zookeeper", "Stable")
                ]
                first.commit(asynchronous=False)
                second.commit(asynchronous=False)
                described = groups(node, "describe", "g")
                assert [row["partition"] for row in described] == [0, 1, 2, 3]
                assert len({row["consumer_id"] for row in described}) == 2
                assert all(row["log_end_offset"] == 5 for row in described)
                assert sum(row["lag"] for row in described) == sum(
                    row["log_end_offset"] - (row["current_offset"] or 0) for row in described
                )
                members = groups(node, "members", "g")
                assert sorted(row["partitions"] for row in members) == [2, 2]

                joined = groups(node, "explain", "--entries", "g")[-1]
                assert (joined["cause"], joined["outcome"], joined["herd"]) == ("MEMBER_JOINED", "COMPLETED", 2)
                assert len(joined["moves"]) == 2
                told = muster(node, "groups", "explain", "--entries", "g")
                assert "member joined   by " in told
                assert "2 notifications, 2 members claimed anew" in told
                assert len(groups(node, "history", "g")) == 2


def test_while_zookeeper_is_away_groups_are_shown_as_last_seen_and_that_is_said(tmp_path: Path) -> None:
    member = "g_vm-1795234284913-80155f1f"
    with running(1) as ensemble, era_node(tmp_path, ensemble.connect) as node:
        create(node, t=1)
        fill(node, "t", 1, 5)
        with plain(ensemble.connect) as zk:
            entry = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1795234284913"}
            zk.create(f"/consumers/g/ids/{member}", json.dumps(entry).encode(), ephemeral=True, makepath=True)
            zk.create("/consumers/g/owners/t/0", f"{member}-0".encode(), ephemeral=True, makepath=True)
            zk.create("/consumers/g/offsets/t/0", b"3", makepath=True)
            wait_for(lambda: [group["state"] for group in groups(node, "list")] == ["Stable"], "it is seen")
            assert [row["current_offset"] for row in groups(node, "describe", "g")] == [3]
            ensemble.kill(1)
            wait_for(lambda: ran(node, "health", "--service", "zookeeper").returncode == 4, "the node misses it")

            # Whoever waited for ZooKeeper would run out of this time.
            patience = ("--set", "default.api.timeout.ms=4000", "-o", "json")
            described = ran(node, "groups", "describe", "g", *patience)
            assert described.returncode == 0, described.stderr
            assert "Consumer group 'g' is shown as it was last seen; its positions are unknown." in described.stderr
            row = json.loads(described.stdout)[0]
            assert (row["consumer_id"], row["log_end_offset"]) == (member, 5)
            assert (row["current_offset"], row["lag"]) == (None, None)
            for words in (("describe", "--state", "g"), ("members", "g"), ("list",)):
                shown = ran(node, "groups", *words, *patience)
                assert "ZooKeeper is out of the node's reach" in shown.stderr
                assert len(json.loads(shown.stdout)) == 1


def test_two_generations_alive_under_one_name_are_both_shown(zookeeper: str, tmp_path: Path) -> None:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=2)
        classic = {"bootstrap.servers": node.address, "group.id": "g"}
        with Consumer(era_properties(zookeeper)) as old, Consumer(classic) as new:
            for consumer in (old, new):
                consumer.subscribe("t")

            def both_read() -> bool:
                old.poll(0.02), new.poll(0.02)
                return len(old.assignment()) == len(new.assignment()) == 2

            wait_for(both_read, "each reads everything")
            wait_for(lambda: len(groups(node, "list")) == 2, "the node sees both")
            assert {(g["group"], g["type"]) for g in groups(node, "list")} == {("g", "zookeeper"), ("g", "classic")}
            warning = "Consumer group 'g' has members that meet in ZooKeeper, and others"
            for words in (["list"], ["members", "g"], ["describe", "g"], ["describe", "--state", "g"]):
                assert ran(node, "groups", *words).stderr.count(warning) == 1, words


def test_what_cannot_be_read_is_told_and_can_be_reset(zookeeper: str, tmp_path: Path) -> None:
    with era_node(tmp_path, zookeeper) as node, plain(zookeeper) as client:
        create(node, t=2)
        fill(node, "t", 2, 8)
        client.create("/consumers/g/offsets/t/0", b"three", makepath=True)
        client.create("/consumers/g/offsets/t/1", b"3", makepath=True)
        wait_for(lambda: groups(node, "list"), "the node sees the group")
        assert [row["current_offset"] for row in groups(node, "describe", "g")] == [3]
        moved = ran(node, "groups", "migrate-offsets", "g", "--to", "kafka", "--zookeeper", zookeeper, "--dry-run")
        assert "/consumers/g/offsets/t/0 holds b'three'; expected an offset in decimal" in moved.stderr
        muster(node, "groups", "reset-offsets", "g", "--topic", "t", "--to", "start", "--execute")
        assert client.get("/consumers/g/offsets/t/0")[0] == b"0"
        assert [row["current_offset"] for row in groups(node, "describe", "g")] == [0, 0]

        client.create("/consumers/g/ids/g_odd", b"no JSON", makepath=True, ephemeral=True)
        wait_for(lambda: "no topic is known of g_odd" in ran(node, "groups", "members", "g").stderr, "it is told")
