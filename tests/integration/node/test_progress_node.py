"""`muster groups describe` against a node that samples its groups, and one that does not."""

import asyncio
import json
from pathlib import Path

import pytest

from muster.coordinator.cli.main import main
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1.coordinator_service_pb2_grpc import GroupCoordinatorStub
from muster.coordinator.server.node.app import Node
from tests.support.grpc_node import commit, connected, create_topic, serving
from tests.unit.storage.logs import T0, batch


async def behind(node: Node, *, sampled: bool) -> None:
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


async def describe(node: Node, *more: str) -> None:
    command = ["groups", "describe", "s", "--bootstrap", f"127.0.0.1:{node.bound.port}", *more]
    assert await asyncio.to_thread(main, command) == 0


def test_a_node_that_samples_says_where_it_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with serving(tmp_path, scaler_enable="true", observe_sample_ms="100") as node:
            await behind(node, sampled=True)
            capsys.readouterr()
            await describe(node)
            assert "Consumer group 's': 2 records behind" in capsys.readouterr().err
            await describe(node, "--state", "-o", "json")
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["lag"], row["eta_s"]) == (2, None)
            assert row["health"] in ("OK", "WARN", "ERR")
            assert row["health_reason"]

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
