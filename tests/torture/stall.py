"""Members of every kind while their node stands still: nobody may be expelled for what the node could not hear.

    python -m tests.torture.stall                        40 members of each kind, one group each, every scenario
    python -m tests.torture.stall --only freeze --members 10

A member heartbeats at a fifth of its session (10 s), waits patiently for answers, and says what it was told. What a
stranger does meanwhile: the node is frozen for 15 s (SIGSTOP); a topic of 10,000 partitions is made and deleted; a gzip
bomb is sent to a compacted topic; one request names 12 M partitions.
"""

import argparse
import asyncio
import gzip
import os
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc
from crc32c import crc32c

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.rpc.v1 import broker_service_pb2
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import join
from tests.support.node import NodeProcess, running_node
from tests.support.stubs import BrokerStub, GroupCoordinatorStub

PATIENCE_S = 120
TOPIC = "t"


@dataclass(frozen=True)
class Times:
    """Of every member: how long its session is, and how often it is heard of, in milliseconds."""

    session_ms: int = 10_000
    beat_ms: int = 2_000


Beat: TypeAlias = Callable[[], Awaitable[int]]
"""Heartbeats once and waits for the answer; gives its error code."""


class Member:
    """Heartbeats until it is stopped, or told that it is out. `told` is the error code that ended it."""

    def __init__(self, kind: str, beat: Beat, times: Times) -> None:
        self.kind = kind
        self.told = 0
        self.beats = 0
        self._beat = beat
        self._every_s = times.beat_ms / 1000
        self._answered = asyncio.Condition()

    async def live(self) -> None:
        while not self.told:
            self.told = await self._beat()
            self.beats += 1
            async with self._answered:
                self._answered.notify_all()
            await asyncio.sleep(self._every_s)

    async def heard(self, more: int) -> None:
        """Return once it has heartbeated so many times more, or is out."""
        wanted = self.beats + more
        async with self._answered:
            await self._answered.wait_for(lambda: self.told or self.beats >= wanted)


class Kinds:
    """Makes members of each kind, in groups of their own."""

    def __init__(self, node: NodeProcess, stub: GroupCoordinatorStub, times: Times) -> None:
        self.node = node
        self.stub = stub
        self.times = times
        self._clients: list[KafkaClient] = []

    async def polled(self, group: str) -> Beat:
        member_id, generation = await self._joined(group)
        request = pb.HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation)

        async def beat() -> int:
            return int((await self.stub.Heartbeat(request, timeout=PATIENCE_S)).error_code)

        return beat

    async def pushed(self, group: str) -> Beat:
        member_id, generation = await self._joined(group)
        call = self.stub.Session()
        await call.write(pb.SessionRequest(hello=pb.SessionHello(group_id=group, member_id=member_id)))
        await call.read()
        number = 0

        async def beat() -> int:
            nonlocal number
            number += 1
            heartbeat = pb.HeartbeatRequest(generation_id=generation)
            await call.write(pb.SessionRequest(request_number=number, heartbeat=heartbeat))
            answer = await call.read()
            return int(answer.fenced.error_code or answer.heartbeat.error_code)

        return beat

    async def consumer(self, group: str) -> Beat:
        names = pb.SubscribedTopicNames(names=[TOPIC])
        first = pb.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"m-{group}",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=pb.ConsumerAssignment(),
        )
        entered = await self.stub.ConsumerGroupHeartbeat(first, timeout=PATIENCE_S)
        assert not entered.error_code, entered
        request = pb.ConsumerGroupHeartbeatRequest(group_id=group, member_id=f"m-{group}")
        request.member_epoch, request.rebalance_timeout_ms = entered.member_epoch, -1

        async def beat() -> int:
            answer = await self.stub.ConsumerGroupHeartbeat(request, timeout=PATIENCE_S)
            request.member_epoch = answer.member_epoch or request.member_epoch
            return int(answer.error_code)

        return beat

    async def central(self, group: str) -> Beat:
        call = self.stub.Session()
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        registration = pb.RegisterConsumer(
            group_id=group, member_id="m", session_timeout_ms=self.times.session_ms, topics=[TOPIC], assignor="range"
        )
        await call.write(pb.SessionRequest(register_consumer=registration))
        assert not (await call.read()).registered.error_code

        async def obey() -> None:
            while isinstance(said := await call.read(), pb.SessionResponse):
                if said.WhichOneof("event") == "fenced":
                    told.set_result(int(said.fenced.error_code))
                    return
                order = said.order
                if order.WhichOneof("order") == "ping":
                    await call.write(pb.SessionRequest(ping_answered=pb.PingAnswered(number=order.number)))
                elif order.WhichOneof("order") == "start_fetcher":
                    await call.write(pb.SessionRequest(fetcher_started=pb.FetcherStarted(number=order.number)))
            told.set_result(int(ErrorCode.NOT_COORDINATOR))

        obeying = asyncio.create_task(obey())

        async def beat() -> int:
            assert told.done() or not obeying.done()
            return told.result() if told.done() else 0

        return beat

    async def kafka(self, group: str) -> Beat:
        host, _, port = self.node.kafka_address.rpartition(":")
        client = await KafkaClient(host, int(port)).__aenter__()
        self._clients.append(client)
        joined = await join(client, group_id=group, session_timeout_ms=self.times.session_ms)
        who = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        synced = await client.ask("SyncGroup", 3, **who, assignments=[])
        assert not synced.error_code

        async def beat() -> int:
            return int((await client.ask("Heartbeat", 3, **who)).error_code)

        return beat

    async def close(self) -> None:
        for client in self._clients:
            await client.__aexit__()

    async def _joined(self, group: str) -> tuple[str, int]:
        request = pb.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self.times.session_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[pb.JoinGroupProtocol(name="range", metadata=b"")],
        )
        joined = await self.stub.JoinGroup(request, timeout=PATIENCE_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await self.stub.JoinGroup(request, timeout=PATIENCE_S)
        assert not joined.error_code, joined
        share = pb.SyncGroupAssignment(member_id=joined.member_id, assignment=b"")
        sync = pb.SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[share]
        )
        assert not (await self.stub.SyncGroup(sync, timeout=PATIENCE_S)).error_code
        return joined.member_id, joined.generation_id


SCENARIOS = ("freeze", "topic", "bomb", "names")
KINDS = ("polled", "pushed", "consumer", "central", "kafka")


async def frozen(node: NodeProcess, for_s: float) -> None:
    """The node's process is stopped, and goes on."""
    os.kill(node.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(for_s)
    finally:
        os.kill(node.pid, signal.SIGCONT)


async def names_twelve_million(channel: grpc.aio.Channel) -> None:
    """A stranger names 12 M partitions in one request; it is refused."""
    wanted = pb.OffsetFetchTopic(name=TOPIC, partition_indexes=range(12_000_000))
    try:
        await GroupCoordinatorStub(channel).OffsetFetch(
            pb.OffsetFetchRequest(group_id="stranger", topics=[wanted]), timeout=PATIENCE_S
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return
        raise
    raise AssertionError("a request that names 12 M partitions was served")


def bomb(unpacked: int) -> bytes:
    """A batch of one record, as its header says, that unpacks to so many zeros."""
    packed = gzip.compress(bytes(unpacked), 9)
    body = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1) + packed
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body


async def sends_a_bomb(channel: grpc.aio.Channel) -> None:
    """A stranger sends less than a megabyte that unpacks to 900 to a compacted topic; it is refused."""
    wanted = broker_service_pb2.NewTopic(name="compacted", num_partitions=1, configs={"cleanup.policy": "compact"})
    request = broker_service_pb2.CreateTopicsRequest(topics=[wanted])
    await BrokerStub(channel).CreateTopics(request, timeout=PATIENCE_S)
    part = broker_service_pb2.ProducePartition(index=0, records=await asyncio.to_thread(bomb, 900_000_000))
    topic = broker_service_pb2.ProduceTopic(name="compacted", partition_data=[part])
    produce = broker_service_pb2.ProduceRequest(acks=-1, topic_data=[topic])
    answer = await BrokerStub(channel).Produce(produce, timeout=PATIENCE_S)
    assert answer.responses[0].partition_responses[0].error_code, "a bomb was taken"


async def large_topic(channel: grpc.aio.Channel, partitions: int) -> None:
    """A stranger makes a topic of so many partitions and deletes it."""
    stub = BrokerStub(channel)
    wanted = broker_service_pb2.NewTopic(name="large", num_partitions=partitions)
    await stub.CreateTopics(broker_service_pb2.CreateTopicsRequest(topics=[wanted]), timeout=PATIENCE_S)
    await stub.DeleteTopics(broker_service_pb2.DeleteTopicsRequest(topic_names=["large"]), timeout=PATIENCE_S)


@asynccontextmanager
async def lively(node: NodeProcess, kinds: tuple[str, ...], count: int, times: Times) -> AsyncIterator[list[Member]]:
    """So many members of each kind, heartbeating."""
    channel = grpc.aio.insecure_channel(node.address)
    makes = Kinds(node, GroupCoordinatorStub(channel), times)
    members = [
        Member(kind, await getattr(makes, kind)(f"{kind}-{number}"), times) for kind in kinds for number in range(count)
    ]
    tasks = [asyncio.create_task(member.live()) for member in members]
    try:
        yield members
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await makes.close()
        await channel.close(None)


async def all_heard(members: list[Member], more: int) -> None:
    """Return once each member has heartbeated so many times more, or is out."""
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(member.heard(more) for member in members))


async def scenario(node: NodeProcess, name: str, count: int, freeze_s: float, times: Times) -> Counter[str]:
    """Expelled members by kind."""
    async with lively(node, KINDS, count, times) as members, grpc.aio.insecure_channel(node.address) as channel:
        await all_heard(members, 1)
        match name:
            case "freeze":
                await frozen(node, freeze_s)
            case "topic":
                await large_topic(channel, 10_000)
            case "bomb":
                await sends_a_bomb(channel)
            case "names":
                await names_twelve_million(channel)
        await all_heard(members, 2)
        return Counter(member.kind for member in members if member.told)


async def told_of_stalls(node: NodeProcess, group: str) -> list[int]:
    """How long the node stood still, each time, as the ledger of this group has it."""
    async with grpc.aio.insecure_channel(node.address) as channel:
        told = await GroupCoordinatorStub(channel).ExplainGroup(pb.ExplainGroupRequest(group_id=group), timeout=60)
        return [stall.stalled_ms for stall in told.stalls]


def settings(times: Times) -> dict[str, str]:
    return {
        "kafka.listeners": "127.0.0.1:0",
        "group.consumer.min.session.timeout.ms": str(times.session_ms),
        "group.consumer.min.heartbeat.interval.ms": str(times.beat_ms),
        "group.consumer.session.timeout.ms": str(times.session_ms),
        "group.consumer.heartbeat.interval.ms": str(times.beat_ms),
    }


async def topic(node: NodeProcess) -> None:
    async with grpc.aio.insecure_channel(node.address) as channel:
        wanted = broker_service_pb2.NewTopic(name=TOPIC, num_partitions=1)
        request = broker_service_pb2.CreateTopicsRequest(topics=[wanted])
        await BrokerStub(channel).CreateTopics(request, timeout=60)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.stall", description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, help="this scenario; all of them when left out")
    parser.add_argument("--members", type=int, default=40, metavar="N", help="of each kind (default 40)")
    parser.add_argument("--freeze", type=float, default=15.0, metavar="S", help="seconds (default 15)")
    options = parser.parse_args()
    expelled = 0
    for name in (options.only,) if options.only else SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            times = Times()
            with running_node(Path(folder) / "data", settings(times)) as node:
                asyncio.run(topic(node))
                found = asyncio.run(scenario(node, name, options.members, options.freeze, times))
                stalls = asyncio.run(told_of_stalls(node, "polled-0"))
                expelled += found.total()
                told = ", ".join(f"{kind} {found[kind]} of {options.members}" for kind in KINDS)
                print(f"{name}: expelled {told}; stalls in the ledger (ms): {stalls}", flush=True)
    return 1 if expelled else 0


if __name__ == "__main__":
    sys.exit(main())
