"""A connection that is full says so, and answers that nobody reads are bounded without harm to those who read."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc import load_limits as burden_module
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.records.batch import encode_batch, read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from tests.support.grpc_node import connected, create_topic, serving
from tests.support.kafka.memory_node import until
from tests.support.slow_reader import SlowReader
from tests.support.stubs import BrokerStub, GroupCoordinatorStub

pytestmark = pytest.mark.integration

Run = Callable[[Callable[[], Any]], None]

FETCH = "/storage.rpc.v1.Broker/Fetch"
RECORD = 1 << 18
RECORDS = 16
LIMIT = 1 << 21
REFUSED = b"\x0bgrpc-status\x018"
"""RESOURCE_EXHAUSTED, as HPACK has it without compression."""


def fetch(offset: int = 0) -> storage_pb.FetchRequest:
    request = storage_pb.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=RECORD * RECORDS * 2)
    request.topics.add(topic="t").partitions.add(partition=0, fetch_offset=offset)
    return request


async def fetched(broker: BrokerStub, offset: int = 0) -> int:
    """How many batches one fetch brings."""
    answer = await broker.Fetch(fetch(offset))
    return sum(1 for _ in read_batches(answer.responses[0].partitions[0].records))


@asynccontextmanager
async def full_topic(data: Path) -> AsyncIterator[tuple[CoordinatorNode, BrokerStub]]:
    async with serving(data, grpc_max_unsent_bytes=str(LIMIT)) as node, connected(node) as channel:
        await create_topic(channel, "t", 1)
        broker = BrokerStub(channel)
        for _ in range(RECORDS):
            produce = storage_pb.ProduceRequest(acks=-1, timeout_ms=30_000)
            records = encode_batch([(1, None, bytes(RECORD), ())])
            produce.topic_data.add(name="t").partition_data.add(index=0, records=records)
            assert (await broker.Produce(produce)).responses[0].partition_responses[0].error_code == 0
        yield node, broker


def test_who_reads_goes_on_beside_those_who_do_not(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with full_topic(tmp_path / "d") as (node, broker), AsyncExitStack() as stack:
            burden = node.methods.burden
            slow = [await stack.enter_async_context(SlowReader(node.bound.port)) for _ in range(6)]
            for reader in slow:
                before = burden.unsent
                reader.ask(FETCH, fetch().SerializeToString())
                await until(lambda before=before: burden.unsent > before)
            assert LIMIT < burden.unsent <= 2 * LIMIT
            read = 0
            while read < RECORDS:
                assert await fetched(broker, read) == 1, "a batch at a time"
                read += 1
            refused = slow[0].ask(FETCH, fetch().SerializeToString())
            await until(lambda: refused in slow[0].statuses)
            assert REFUSED in slow[0].statuses[refused]
            await stack.aclose()
            await until(lambda: burden.unsent == 0)
            assert await fetched(broker) > 1

    run(story)


def test_an_answer_counts_until_its_client_makes_room_for_it(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with full_topic(tmp_path / "d") as (node, _), SlowReader(node.bound.port) as reader:
            stream = reader.ask(FETCH, fetch().SerializeToString())
            await until(lambda: node.methods.burden.unsent > RECORD)
            assert stream not in reader.statuses
            reader.make_room(stream, LIMIT)
            await until(lambda: stream in reader.statuses)
            assert REFUSED not in reader.statuses[stream]
            await until(lambda: node.methods.burden.unsent == 0)

    run(story)


def test_however_many_do_not_read_the_node_keeps_so_much(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with full_topic(tmp_path / "d") as (node, broker), AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(SlowReader(node.bound.port)) for _ in range(40)]
            for reader in slow:
                reader.ask(FETCH, fetch().SerializeToString())
            await until(lambda: sum(len(reader.statuses) for reader in slow) >= 40 - 2 * LIMIT // RECORD)
            assert node.methods.burden.unsent <= 2 * LIMIT
            await stack.aclose()
            await until(lambda: node.methods.burden.unsent == 0)
            assert await fetched(broker) > 1

    run(story)


def test_the_slowest_are_cut_off_for_those_who_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burden_module, "PATIENCE_S", 0.0)

    async def story() -> None:
        async with full_topic(tmp_path / "d") as (node, broker), AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(SlowReader(node.bound.port)) for _ in range(40)]
            for reader in slow:
                reader.ask(FETCH, fetch().SerializeToString())
            await until(lambda: any(reader.gone for reader in slow))
            read = 0
            while read < RECORDS:
                try:
                    read += await fetched(broker, read)
                except grpc.aio.AioRpcError as refused:
                    if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
            await until(lambda: node.methods.burden.unsent <= LIMIT)

    run(story)


def test_a_stream_too_many_is_refused_and_the_connection_goes_on(run: Run, tmp_path: Path) -> None:
    """HTTP/2 alone would have the client's library keep it to itself, and every call after it, for ever."""

    async def story() -> None:
        async with (
            serving(tmp_path / "d", grpc_max_streams_per_connection="8") as node,
            connected(node) as channel,
            connected(node, apart=True) as other,
        ):
            stub = GroupCoordinatorStub(channel)
            watches = [stub.WatchGroup(pb.WatchGroupRequest(group_id="g")) for _ in range(6)]
            assert all([await watch.read() for watch in watches])
            for lasting in (watch(stub), watch(stub)):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await lasting
                assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                said = "6 calls under way that last .*grpc.max.streams.per.connection.* Open another connection"
                assert refusal.match(said)
            assert (await stub.ListGroups(pb.ListGroupsRequest())).error_code == 0
            await watch(GroupCoordinatorStub(other))
            watches.pop().cancel()
            await until(lambda: node.methods.in_flight == 5)
            await watch(stub)
            for each in watches:
                each.cancel()

    run(story)


async def watch(stub: GroupCoordinatorStub) -> None:
    """Look at a group once."""
    call = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
    await call.read()
    call.cancel()
