"""What is wrong with a node is told in the same words by its log, gRPC's health service and `muster health`."""

import asyncio
import os
import sys
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.node_status import GROUPS, LOG
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.errors import LogFenced
from muster.storage.records.batch import encode_batch
from tests.support.grpc_node import connected, serving
from tests.support.kafka.memory_node import until
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def status_of(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def asked(
    node: CoordinatorNode, *arguments: str, command: tuple[str, ...] = ("health",)
) -> tuple[int, str, list[str]]:
    """The exit code of `muster health`, what it says, and the lines of its complaint."""
    words = [*command, "--bootstrap", f"127.0.0.1:{node.bound.port}", *arguments]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({words!r}))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", run, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode().strip(), err.decode().splitlines()


def test_health_says_no_with_the_reason_and_yes_again_once_it_is_over(tmp_path: Path) -> None:
    asyncio.run(health_of(tmp_path))


async def health_of(data: Path) -> None:
    async with serving(data) as node, connected(node) as channel:
        assert await asked(node) == (0, "SERVING", [])
        with capture_logs() as lines:
            for _ in range(3):
                node.condition_reporter.conditions.report("disk-full", "no room in /data; free some", impairs=LOG)
            node.condition_reporter.conditions.report("loop-late", "the loop stood still for 2.0 s", lasting_ms=60_000)
        told = [(line["event"], line["name"], line["why"]) for line in lines]
        assert told == [
            ("condition", "disk-full", "no room in /data; free some"),
            ("condition", "loop-late", "the loop stood still for 2.0 s"),
        ]

        code, out, complaint = await asked(node)
        assert (code, out, len(complaint)) == (4, "SERVING", 2)
        assert complaint[0].startswith("error: disk-full: no room in /data; free some (since 20")
        assert complaint[0].endswith("Z, 3 times)")
        assert complaint[1].startswith("error: loop-late: the loop stood still for 2.0 s (since 20")
        code, out, complaint = await asked(node, "--service", LOG)
        assert (code, out, len(complaint)) == (4, "NOT_SERVING", 1)
        assert await asked(node, "--service", GROUPS) == (0, "SERVING", [])

        # What would be lost later is told with it, and does not count by itself.
        node.condition_reporter.conditions.report("central-takeover", "node 2 would take over", warning=True)
        code, out, complaint = await asked(node)
        assert (code, out, len(complaint)) == (4, "SERVING", 3)
        assert complaint[0].startswith("central-takeover: node 2 would take over (since 20")

        # A probe restarts a node for the empty name's sake: what still works must not go down with the rest.
        assert [await status_of(channel, name) for name in ("", GROUPS, LOG)] == [SERVING, SERVING, NOT_SERVING]
        node.condition_reporter.conditions.clear("disk-full")
        node.condition_reporter.conditions.clear("loop-late")
        assert await status_of(channel, LOG) == SERVING
        code, out, complaint = await asked(node)
        assert (code, out, len(complaint)) == (0, "SERVING", 1)
        assert complaint[0].startswith("central-takeover: node 2 would take over (since 20")
        node.condition_reporter.conditions.clear("central-takeover")
        assert await asked(node) == (0, "SERVING", [])


def test_health_says_so_where_it_may_not_tell_what_is_wrong(tmp_path: Path) -> None:
    """Probes need no login; who gives none must not take `SERVING` for `nothing is wrong`."""

    async def story() -> None:
        async with serving(tmp_path, authorizer="acl", super_users="User:admin") as node:
            node.condition_reporter.conditions.report("disk-full", "no room in /data; free some", impairs=LOG)
            code, out, complaint = await asked(node)
        assert (code, out) == (0, "SERVING")
        [line] = complaint
        assert "does not tell this caller what is wrong with it" in line
        assert "--command-config" in line

    asyncio.run(story())


def test_groups_that_cannot_be_loaded_are_missed_aloud_in_the_list(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as node:
            listed = await asked(node, command=("groups", "list"))
            assert (listed[0], listed[2]) == (0, [])
            node.condition_reporter.conditions.report(
                "shard-failed:3", "the groups of shard 3 are not served: it is a test"
            )
            code, out, complaint = await asked(node, command=("groups", "list"))
            assert (code, "GROUP" in out) == (4, True)
            assert complaint == [
                "error: groups are missing in this list: the groups of shard 3 are not served: it is a test"
            ]

    asyncio.run(story())


def test_health_says_no_before_the_disk_is_full(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **{"log.dirs.free.warn.bytes": str(1 << 62)}) as node:
            await until(lambda: bool(node.condition_reporter.conditions.current()))
            code, out, complaint = await asked(node)
            assert (code, out, len(complaint)) == (4, "SERVING", 1)
            assert complaint[0].startswith("error: disk-nearly-full: ")
            assert f"are free where {tmp_path} lies, less than log.dirs.free.warn.bytes (4194304.0 TiB)" in complaint[0]

    asyncio.run(story())


def test_a_group_of_a_failed_shard_is_refused_in_healths_words(tmp_path: Path) -> None:
    asyncio.run(group_of_a_failed_shard(tmp_path))


async def group_of_a_failed_shard(data: Path) -> None:
    async with serving(data) as node, connected(node) as channel:
        groups = GroupCoordinatorStub(channel)  # type: ignore[no-untyped-call]
        node.broker.create_topic("t", 1)
        shard = partition_for("g", node.engine.shards)
        for segment in node.broker.log(GROUPS_TOPIC, shard).segments:
            os.unlink(segment.path())
        place = pb.OffsetCommitPartition(partition_index=0, committed_offset=5)
        commit = pb.OffsetCommitRequest(group_id="g", topics=[pb.OffsetCommitTopic(name="t", partitions=[place])])
        await groups.OffsetCommit(commit)  # its flush finds that the file is gone
        await until(lambda: node.engine.status(shard) is ShardStatus.FAILED)
        sentence = node.condition_reporter.conditions.sentence(f"shard-failed:{shard}")
        described = (await groups.DescribeGroups(pb.DescribeGroupsRequest(groups=["g"]))).groups[0]
        assert described.error_message == sentence
        assert "has been removed or replaced" in described.error_message
        assert described.error_message.startswith(f"the groups of shard {shard} are not served: its log cannot be ")
        patience = ("--set", "default.api.timeout.ms=300")
        code, _, complaint = await asked(node, *patience, command=("groups", "describe", "g"))
        assert code != 0
        assert node.condition_reporter.conditions.sentence(f"shard-failed:{shard}") in complaint[0]


def test_a_log_whose_file_is_taken_away_says_so_to_its_producer_and_in_health(tmp_path: Path) -> None:
    asyncio.run(file_taken_away(tmp_path))


async def file_taken_away(data: Path) -> None:
    async with serving(data) as node:
        node.broker.create_topic("t", 1)
        (taken,) = [segment.path() for segment in node.broker.log("t", 0).segments]
        os.unlink(taken)
        now_ms = time.time_ns() // 1_000_000
        node.broker.append("t", 0, encode_batch([(now_ms, None, b"v", ())]), now_ms)
        with pytest.raises(LogFenced) as refusal:
            await asyncio.to_thread(node.broker.flush, [("t", 0)])
        await until(lambda: bool(node.condition_reporter.conditions.current()))
        code, _, complaint = await asked(node)
        assert code == 4
        (fenced,) = [line for line in complaint if "log-fenced" in line]  # a busy machine is told of as well
        assert f"log-fenced:t-0: {refusal.value} (since 20" in fenced
        assert f"{taken} has been removed or replaced" in fenced
