"""`muster groups describe` against a node that samples its groups, and one that does not."""

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from muster.cli.main import main
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import commit, connected, create_topic, serving
from tests.support.stubs import GroupCoordinatorStub
from tests.unit.storage.logs import T0, batch


async def behind(node: CoordinatorNode, *, sampled: bool) -> None:
    """The group `s` has read one of three records, and the node has seen that, if it looks."""
    async with connected(node) as channel:
        await create_topic(channel, "t", 1)
        node.broker.append("t", 0, batch(b"a", b"b", b"c"), T0)
        node.broker.flush()
        stub = GroupCoordinatorStub(channel)
        await stub.OffsetCommit(commit(1, 0))
        described = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["s"]))
        while sampled and not described.groups[0].HasField("progress"):
            described = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["s"]))
        assert described.groups[0].HasField("progress") == sampled


async def describe(node: CoordinatorNode, *more: str) -> None:
    command = ["groups", "describe", "s", "--bootstrap", f"127.0.0.1:{node.bound.port}", *more]
    assert await asyncio.to_thread(main, command) == 0


def test_a_node_that_samples_says_where_it_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with serving(tmp_path, scaler_enable="true", observe_sample_ms="100") as node:
            await behind(node, sampled=True)
            capsys.readouterr()
            await describe(node)
            said = capsys.readouterr().err
            assert re.search(r"Consumer group 's': idle since \d\d:\d\d UTC, 2 behind\.", said)
            assert "not well" not in said
            await describe(node, "--state", "-o", "json")
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["lag"], row["eta_s"]) == (2, None)
            assert (row["health"], row["trend"], row["trend_window_s"]) == ("IDLE", None, None)
            assert row["health_reason"].startswith("idle since ")
            assert row["idle_since"].endswith("Z")

    asyncio.run(run())


def test_a_node_that_does_not_says_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with serving(tmp_path) as node:
            await behind(node, sampled=False)
            capsys.readouterr()
            await describe(node)
            assert "behind" not in capsys.readouterr().err
            await describe(node, "--state", "-o", "json")
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["lag"], row["health"], row["health_reason"]) == (None, None, None)

    asyncio.run(run())


def test_the_list_has_each_group_s_health_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with serving(tmp_path, scaler_enable="true", observe_sample_ms="100") as node:
            await behind(node, sampled=True)
            command = ["groups", "list", "--bootstrap", f"127.0.0.1:{node.bound.port}", "-o"]
            capsys.readouterr()
            assert await asyncio.to_thread(main, [*command, "json"]) == 0
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["group"], row["lag"]) == ("s", 2)
            assert row["health"] == "IDLE"
            assert row["health_reason"].startswith("idle since ")
            assert await asyncio.to_thread(main, [*command, "table"]) == 0
            head, line = capsys.readouterr().out.splitlines()
            assert head.split() == ["GROUP", "TYPE", "STATE", "HEALTH"]
            assert line.split()[-1] == "IDLE"
            assert await asyncio.to_thread(main, [*command, "json", "--with-members"]) == 0
            assert json.loads(capsys.readouterr().out) == []

    asyncio.run(run())


def test_the_list_of_a_node_that_does_not_sample_says_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with serving(tmp_path) as node:
            await behind(node, sampled=False)
            capsys.readouterr()
            assert await asyncio.to_thread(main, ["groups", "list", "--bootstrap", f"127.0.0.1:{node.bound.port}"]) == 0
            assert capsys.readouterr().out.splitlines()[1].split()[-1] == "-"

    asyncio.run(run())


def test_a_watch_tells_how_a_group_gets_on_and_when_that_is_different(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, scaler_enable="true", observe_sample_ms="100") as node:
            await behind(node, sampled=True)
            async with connected(node) as channel:
                watch = GroupCoordinatorStub(channel).WatchGroup(pb.WatchGroupRequest(group_id="s"))
                told = [await watch.read()]
                assert (told[0].group_state, told[0].progress.lag) == ("Empty", 2)
                node.broker.append("t", 0, batch(b"d"), T0)
                node.broker.flush()
                while told[-1].progress.lag != 3:
                    told.append(await watch.read())
                watch.cancel()
            said = [response.progress for response in told]
            for one in said:
                one.sampled_ms = 0
            assert all(one != another for one, another in pairwise(said)), "nothing is told twice"
            assert {response.group_state for response in told} == {"Empty"}

    asyncio.run(run())
