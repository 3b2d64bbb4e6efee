"""A real node's rebalances as a collector of OTLP gets them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from muster.coordinator.config import SettingsError, load_settings
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.collector import Collector, attributes, collecting
from tests.support.grpc_node import groups, join_request, lone_member, parked_join
from tests.support.pace import pace
from tests.support.stubs import GroupCoordinatorStub

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
PATIENCE_S = 20.0


async def rebalanced(stub: GroupCoordinatorStub, traceparent: str) -> str:
    """A member joins and has its share; its requests are part of a trace of its own."""
    metadata = (("traceparent", traceparent),) if traceparent else ()
    member_id = (await stub.JoinGroup(join_request(), metadata=metadata)).member_id
    joined = await stub.JoinGroup(join_request(member_id), metadata=metadata)
    share = pb.SyncGroupAssignment(member_id=member_id, assignment=b"")
    sync = pb.SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=member_id, assignments=[share]
    )
    assert (await stub.SyncGroup(sync)).error_code == 0
    return str(member_id)


def test_a_rebalance_is_a_trace_that_is_linked_to_the_request_that_set_it_off(tmp_path: Path) -> None:
    with collecting() as collector:

        async def run() -> str:
            async with groups(tmp_path, otel_exporter="otlp", otel_endpoint=f"http://{collector.address}") as (_, stub):
                return await rebalanced(stub, TRACEPARENT)

        member_id = asyncio.run(run())
        spans = collector.trace(PATIENCE_S * pace())
        assert collector.spans.empty()
    *children, root = spans
    told = attributes(root)
    assert root.name == "rebalance g"
    assert told["messaging.consumer.group.name"] == "g"
    assert told["muster.rebalance.cause"] == "member_joined"
    assert told["muster.rebalance.culprit"] == member_id
    assert told["muster.rebalance.generation"] == 1
    assert told["muster.rebalance.assignor"] == "range"
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in root.links] == [(TRACE, SPAN)]
    assert root.trace_id.hex() != TRACE
    assert {child.trace_id for child in children} == {root.trace_id}
    assert {child.parent_span_id for child in children} == {root.span_id}
    assert [child.name for child in children] == ["phase initial delay", "phase plan", "phase settle", "member c"]
    assert attributes(children[-1])["muster.member"] == member_id
    assert [event.name for event in children[-1].events] == ["joined", "synced"]
    assert children[-1].end_time_unix_nano == children[-1].events[-1].time_unix_nano
    for child in children:
        assert root.start_time_unix_nano <= child.start_time_unix_nano
        assert child.start_time_unix_nano <= child.end_time_unix_nano <= root.end_time_unix_nano
    assert collector.resource["service.name"] == "muster"


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", TRACEPARENT * 9])
def test_without_a_trace_of_the_request_s_there_is_no_link(tmp_path: Path, traceparent: str) -> None:
    with collecting() as collector:

        async def run() -> None:
            async with groups(tmp_path, otel_exporter="otlp", otel_endpoint=f"http://{collector.address}") as (_, stub):
                await rebalanced(stub, traceparent)

        asyncio.run(run())
        assert list(collector.trace(PATIENCE_S * pace())[-1].links) == []


def links(root: Span) -> list[tuple[str, str]]:
    return [(link.trace_id.hex(), link.span_id.hex()) for link in root.links]


class Member:
    """A lone KIP-848 member on a stream of its own, which may be part of a trace."""

    def __init__(self, stub: GroupCoordinatorStub, traceparent: str = "") -> None:
        self._call = stub.Session(metadata=(("traceparent", traceparent),) if traceparent else ())
        self._epoch = 0

    async def comes(self) -> None:
        await self._call.write(pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")))
        await self.says("t")

    async def says(self, *topics: str) -> None:
        """It subscribes to these, and has read the answer."""
        number = 1 + self._epoch
        beat = pb.ConsumerGroupHeartbeatRequest(
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=pb.SubscribedTopicNames(names=topics),
            topic_partitions=pb.ConsumerAssignment(),
        )
        await self._call.write(pb.SessionRequest(request_number=number, consumer_group_heartbeat=beat))
        heard = await self._call.read()
        while heard.request_number != number:
            heard = await self._call.read()
        assert heard.consumer_group_heartbeat.error_code == 0, heard
        self._epoch = heard.consumer_group_heartbeat.member_epoch

    def goes(self) -> None:
        self._call.cancel()


@asynccontextmanager
async def told_to(collector: Collector, data: Path) -> AsyncIterator[GroupCoordinatorStub]:
    more = {"group_consumer_assignment_interval_ms": "0", "otel_exporter": "otlp"}
    async with groups(data, otel_endpoint=f"http://{collector.address}", **more) as (_, stub):
        yield stub


async def next_root(collector: Collector) -> Span:
    return (await asyncio.to_thread(collector.trace, PATIENCE_S * pace()))[-1]


def test_a_member_that_leaves_before_it_had_its_share_is_linked_to_what_that_set_off(tmp_path: Path) -> None:
    """Its going ends the rebalance that its coming began, and begins the next: a trace each, and each its own link."""

    async def run(collector: Collector) -> list[Span]:
        async with told_to(collector, tmp_path) as stub:
            first = await lone_member(stub)
            joining = await parked_join(stub)
            again = await stub.JoinGroup(join_request(first))
            second = (await joining).member_id
            share = [pb.SyncGroupAssignment(member_id=name, assignment=b"") for name in (first, second)]
            sync = pb.SyncGroupRequest(group_id="g", generation_id=again.generation_id, member_id=first)
            sync.assignments.extend(share)
            assert (await stub.SyncGroup(sync)).error_code == 0
            leave = pb.LeaveGroupRequest(group_id="g", members=[pb.MemberIdentity(member_id=second)])
            await stub.LeaveGroup(leave, metadata=(("traceparent", TRACEPARENT),))
            sync.generation_id = (await stub.JoinGroup(join_request(first))).generation_id
            assert (await stub.SyncGroup(sync)).error_code == 0
            return [await next_root(collector) for _ in range(3)]

    with collecting() as collector:
        roots = asyncio.run(run(collector))
    causes = [attributes(root)["muster.rebalance.cause"] for root in roots]
    assert causes == ["member_joined", "member_joined", "member_left"]
    assert [links(root) for root in roots] == [[], [], [(TRACE, SPAN)]]


def test_what_an_operator_sets_off_is_linked_to_his_own_trace(tmp_path: Path) -> None:
    change = pb.AlterGroupSettingsRequest(group_id="g", reason="a larger machine")
    change.set["assignor.options"] = '{"member.capacity": {"m": 2.0}}'

    async def run(collector: Collector) -> tuple[Span, Span]:
        async with told_to(collector, tmp_path) as stub:
            member = Member(stub)
            await member.comes()
            before = await next_root(collector)
            changed = await stub.AlterGroupSettings(change, metadata=(("traceparent", TRACEPARENT),))
            assert changed.error_code == 0, changed.error_message
            after = await next_root(collector)
            member.goes()
            return before, after

    with collecting() as collector:
        before, after = asyncio.run(run(collector))
    assert links(before) == []
    assert attributes(after)["muster.rebalance.cause"] == "operator"
    assert links(after) == [(TRACE, SPAN)]


def test_what_a_member_says_on_its_stream_is_linked_to_the_trace_in_which_it_was_opened(tmp_path: Path) -> None:
    async def run(collector: Collector) -> tuple[Span, Span]:
        async with told_to(collector, tmp_path) as stub:
            member = Member(stub, TRACEPARENT)
            await member.comes()
            joined = await next_root(collector)
            await member.says("t", "u")
            changed = await next_root(collector)
            member.goes()
            return joined, changed

    with collecting() as collector:
        roots = asyncio.run(run(collector))
    causes = [attributes(root)["muster.rebalance.cause"] for root in roots]
    assert causes == ["member_joined", "subscription_changed"]
    assert [links(root) for root in roots] == [[(TRACE, SPAN)], [(TRACE, SPAN)]]


def test_a_collector_that_is_not_there_holds_up_nobody_and_no_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path, otel_exporter="otlp", otel_endpoint="http://127.0.0.1:1") as (_, stub):
            for _ in range(3):
                member_id = await rebalanced(stub, "")
                leave = pb.LeaveGroupRequest(group_id="g", members=[pb.MemberIdentity(member_id=member_id)])
                assert (await stub.LeaveGroup(leave)).error_code == 0

    asyncio.run(run())


def test_a_node_without_the_setting_imports_nothing_of_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from tests.support.grpc_node import serving\n"
        "async def run():\n"
        "    async with serving(pathlib.Path(sys.argv[1])): pass\n"
        "asyncio.run(run())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "grpc://a:1", "http://a", "http://a:b"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match=r"otel\.endpoint.*expected http://HOST:PORT"):
        load_settings(None, {"otel.exporter": "otlp", "otel.endpoint": endpoint})
    assert load_settings(None, {"otel.endpoint": endpoint}).otel_exporter == "none"
