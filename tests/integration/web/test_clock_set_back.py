"""A node whose machine's clock was set back by a day between two starts: no age is below zero, and no count shrinks.

Commits, ledger entries and records carry times that have yet to come.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.cli.main import main
from muster.cli.node_polling import gather_facts
from muster.client.aio import AsyncAdmin
from muster.coordinator.observability.doctor.model import DoctorFacts
from muster.coordinator.observability.doctor.table import examine_facts
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.driver import clock
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import commit, connected, create_topic, serving
from tests.support.stubs import GroupCoordinatorStub
from tests.unit.storage.logs import T0, batch

pytestmark = pytest.mark.integration

DAY_S = 86_400
SEEN = {
    "http_listeners": "127.0.0.1:0",
    "scaler_enable": "true",
    "observe_sample_ms": "100",
    "metrics_member_commit_age": "true",
    "group_consumer_assignment_interval_ms": "0",
}
UNKNOWN = -1
"""What lag and offset are where nothing is committed."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@asynccontextmanager
async def alive(data: Path) -> AsyncIterator[tuple[CoordinatorNode, GroupCoordinatorStub, grpc.aio.Channel]]:
    async with serving(data, **SEEN) as node, connected(node) as channel:
        yield node, GroupCoordinatorStub(channel), channel


async def joins(stub: GroupCoordinatorStub, member_id: str) -> int:
    """It subscribes to `t`; its epoch."""
    beat = pb.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=pb.SubscribedTopicNames(names=["t"]),
        topic_partitions=pb.ConsumerAssignment(),
    )
    answer = await stub.ConsumerGroupHeartbeat(beat)
    assert answer.error_code == 0, answer.error_message
    return int(answer.member_epoch)


async def commits(stub: GroupCoordinatorStub, member_id: str, epoch: int, offset: int) -> None:
    request = commit(offset, 0, group_id="g")
    request.member_id, request.generation_id_or_member_epoch = member_id, epoch
    answer = await stub.OffsetCommit(request)
    assert answer.error_code == 0, answer


async def is_sampled(stub: GroupCoordinatorStub, lag: int) -> None:
    progress = pb.GroupProgress()
    while not progress.sampled_ms or progress.lag != lag:
        progress = (await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["g"]))).groups[0].progress


async def scraped(node: CoordinatorNode) -> tuple[Samples, Samples]:
    """Everything, and what only grows."""
    assert node.http_bound is not None
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{node.http_bound.port}/metrics")
    everything: Samples = {}
    growing: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            everything[key] = sample.value
            if family.type in ("counter", "histogram"):
                growing[key] = sample.value
    return everything, growing


async def run(node: CoordinatorNode, *command: str) -> None:
    """A command that asks the node; 4 is for what is wrong with it."""
    code = await asyncio.to_thread(main, [*command, "--bootstrap", f"127.0.0.1:{node.bound.port}"])
    assert code in (0, 4), command


def test_no_age_is_below_zero_and_no_count_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def first_life() -> int:
        async with alive(tmp_path) as (node, stub, channel):
            await create_topic(channel, "t", 2)
            node.broker.append("t", 0, batch(*[b"x"] * 5), T0)
            node.broker.flush()
            epoch = await joins(stub, "m")
            await commits(stub, "m", epoch, 2)
            return epoch

    async def second_life(epoch: int) -> tuple[DoctorFacts, list[str]]:
        async with alive(tmp_path) as (node, stub, _):
            await is_sampled(stub, 3)
            before = await scraped(node)
            await joins(stub, "n")
            await commits(stub, "m", epoch, 2)  # partition 0 is its own until it lets go
            node.broker.append("t", 0, batch(b"y"), T0)
            node.broker.flush()
            await is_sampled(stub, 4)
            after = await scraped(node)
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{node.bound.port}") as admin:
                facts = await gather_facts(admin, (), 0.2, pytest.fail)
            capsys.readouterr()
            pages = []
            for command in (
                ("groups", "describe", "g", "--state"),
                ("groups", "explain", "g", "--entries", "-o", "json"),
                ("groups", "history", "g"),
                ("top", "--once"),
                ("doctor", "--over", "0"),
            ):
                await run(node, *command)
                pages.append(capsys.readouterr().out)
        for samples, _ in (before, after):
            assert {key: value for key, value in samples.items() if value < 0 and value != UNKNOWN} == {}
            assert all(key[0].startswith("kafka_") for key, value in samples.items() if value == UNKNOWN)
        shrunk = {key: (value, after[1].get(key)) for key, value in before[1].items() if after[1].get(key, -1) < value}
        assert shrunk == {}
        assert after[0]["muster_member_commit_age_seconds", (("group", "g"), ("member", "m"))] >= 0
        return facts, pages

    epoch = asyncio.run(first_life())
    set_back = SimpleNamespace(time=lambda: time.time() - DAY_S, monotonic=time.monotonic)
    monkeypatch.setattr(clock, "time", set_back)
    facts, pages = asyncio.run(second_life(epoch))

    (group,) = facts.groups
    now_ms = facts.now_ms
    assert abs(now_ms / 1000 - (time.time() - DAY_S)) < DAY_S / 2, "the node goes by the clock as it is now"
    numbers = [entry.number for entry in group.ledger]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == len(numbers) >= 2
    for entry in group.ledger:
        assert entry.ended_at_ms >= entry.started_at_ms
        assert all(phase.duration_ms >= 0 for phase in entry.phases)
        assert entry.unowned_partition_seconds >= 0
        assert all(move.unowned_ms >= -1 for move in entry.moves)
    for finding in examine_facts(facts):
        for sentence in (finding.what, *finding.evidence):
            assert not re.search(r"(?<![\w-])-\d", sentence), (finding.rule, sentence)
    assert json.loads(pages[1])
    for page in (pages[0], *pages[2:]):
        assert not re.search(r"(?<![\w-])-\d+(\.\d+)? ?(ms|s|m|h|d|min)\b", page), page
