"""Load by Kafka's protocol: a lean connection, classic members, steady heartbeats, and messages through librdkafka.

A connection sends requests one at a time, or one and the same request as fast as it goes. Steady members heartbeat
at a fixed pace whatever the node does; their tail latency shows what else goes on. The case of messages sends 1 KB
records in batches of 16 KB through one confluent-kafka client into a node and into librdkafka's mock cluster. The
node writes to disk and flushes before it answers; the mock keeps the last few megabytes of each partition in memory,
so a round must fit into those.
"""

import asyncio
import math
import os
import ssl
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import Frame, decode, decode_frame, encode, is_flexible, struct
from muster.coordinator.kafka.connections.received_requests import FrameBuffer
from muster.coordinator.kafka.protocol import APIS, TRANSACTION_APIS
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_server
from muster.workshop.bench.report import BenchRow

# A connection
# ------------

Answer = TypeVar("Answer")

KEYS = {api.name: api.key for api in (*APIS, *TRANSACTION_APIS)}
LARGEST = 1 << 28
CALL_S = 120.0


class LoadConnection(asyncio.Protocol):
    """Answers come in order, so whoever waits longest gets the next one."""

    client_id = "bench"

    def __init__(self) -> None:
        self._frames = FrameBuffer(LARGEST)
        self._waiting: deque[Callable[[Frame], None]] = deque()
        self._correlation = 0
        self._asked: set[asyncio.Future[Any]] = set()
        """Of those who wait, whoever wants to hear of it when the connection is lost."""
        self._lost: ConnectionError | None = None

    @classmethod
    async def to(cls, address: str, tls: ssl.SSLContext | None = None) -> "LoadConnection":
        host, _, port = address.rpartition(":")
        _, line = await asyncio.get_running_loop().create_connection(cls, host, int(port), ssl=tls)
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._waiting.popleft()(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = ConnectionResetError(f"the server closed the connection{f' ({exc})' if exc else ''}")
        for future in self._asked:
            if not future.done():
                future.set_exception(self._lost)

    def close(self) -> None:
        self._transport.close()

    @property
    def unsent(self) -> int:
        """Bytes of requests that the other side has not taken."""
        return self._transport.get_write_buffer_size()

    async def send_request(self, name: str, version: int, message: object) -> Any:
        """One request and its answer."""
        return self.read(name, version, await self.pass_on(self.request(name, version, message)))

    async def pass_on(self, request: bytes) -> Frame:
        """A request that is bytes already, and the bytes of its answer. Raises OSError, which says why not."""
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.send(request, lambda frame: None if answer.done() else answer.set_result(frame))
        try:
            async with asyncio.timeout(CALL_S):
                return await self._answered(answer)
        except TimeoutError:
            raise TimeoutError(f"no answer within {CALL_S:.0f} s") from None

    async def _answered(self, answer: "asyncio.Future[Answer]") -> Answer:
        """Raises ConnectionError when the connection is lost before."""
        if self._lost is not None:
            raise self._lost
        self._asked.add(answer)
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    def read(self, name: str, version: int, frame: Frame) -> Any:
        tagged = is_flexible(f"{name}Response", version)
        _, begin = decode("ResponseHeader", int(tagged), frame)
        return decode_frame(f"{name}Response", version, frame, begin)

    def send(self, request: bytes, answered: Callable[[Frame], None]) -> None:
        """One request; whoever waits before it hears its own answer first."""
        self._waiting.append(answered)
        self._transport.write(request)

    async def repeat(self, request: bytes, depth: int, go_on: Callable[[], bool]) -> int:
        """Keep `depth` copies of one request in flight while `go_on`; how many were answered.

        The first answer stands for all: the rest is not even looked at, so that the load costs less than the server.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        counted = 0

        def answered(frame: Frame) -> None:
            nonlocal counted
            counted += 1
            if go_on():
                self._waiting.append(answered)
                self._transport.write(request)
            elif not self._waiting:
                done.set_result(counted)

        self._waiting.extend([answered] * depth)
        self._transport.write(request * depth)
        return await self._answered(done)

    def request(self, name: str, version: int, message: object) -> bytes:
        """The bytes of a request, with header and length."""
        self._correlation += 1
        header = struct("RequestHeader")(
            request_api_key=KEYS[name],
            request_api_version=version,
            correlation_id=self._correlation,
            client_id=self.client_id,
        )
        head = b"".join(encode("RequestHeader", 1 + is_flexible(f"{name}Request", version), header))
        body = b"".join(encode(f"{name}Request", version, message))
        return (len(head) + len(body)).to_bytes(4, "big") + head + body


# Classic members
# ---------------

JOIN, SYNC, BEAT, LEAVE, COMMIT = 5, 3, 3, 1, 7
"""Versions that librdkafka uses, and that its mock cluster knows."""

PROTOCOL: Final = "range"
SESSION_MS, REBALANCE_MS = 600_000, 60_000
SUBSCRIPTION: Final = b"\x00\x03" + bytes(46)
SHARE: Final = bytes(40)
"""As long as those of a consumer of one topic; no coordinator looks into them."""

AGAIN = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})


@dataclass(slots=True)
class KafkaMember:
    """One member on a connection of its own."""

    line: LoadConnection
    group_id: str
    member_id: str = ""
    generation: int = -1

    async def join(self) -> None:
        """Join and sync until it has its share; a leader gives everybody one."""
        while True:
            request = join_request(self.group_id, self.member_id, SUBSCRIPTION, SESSION_MS, REBALANCE_MS)
            joined = await self.line.send_request("JoinGroup", JOIN, request)
            self.member_id = joined.member_id or self.member_id
            if not must_rejoin("JoinGroup", joined) and not must_rejoin("SyncGroup", await self._sync(joined)):
                self.generation = joined.generation_id
                return

    async def leave(self) -> None:
        request = struct("LeaveGroupRequest")(group_id=self.group_id, member_id=self.member_id)
        must_rejoin("LeaveGroup", await self.line.send_request("LeaveGroup", LEAVE, request))

    async def called(self) -> None:
        """Beat until the group calls its members back."""
        while await self.answered() != ErrorCode.REBALANCE_IN_PROGRESS:
            pass

    async def answered(self) -> int:
        """The code that a heartbeat is answered with."""
        return int((await self.line.send_request("Heartbeat", BEAT, self._heartbeat())).error_code)

    def beat(self) -> bytes:
        """The bytes of its heartbeat."""
        return self.line.request("Heartbeat", BEAT, self._heartbeat())

    def _heartbeat(self) -> Any:
        return heartbeat_request(self.group_id, self.member_id, self.generation)

    def commit(self, topic: str, partitions: int) -> bytes:
        """The bytes of a commit of so many partitions."""
        return self.line.request("OffsetCommit", COMMIT, self._commit(topic, partitions))

    async def committed(self, topic: str, partitions: int) -> None:
        """Commit them once, and see to it that all were taken."""
        answer = await self.line.send_request("OffsetCommit", COMMIT, self._commit(topic, partitions))
        codes = [row.error_code for each in answer.topics for row in each.partitions]
        if codes != [ErrorCode.NONE] * partitions:
            raise BenchFailed(f"a commit of {partitions} partitions was answered {codes}; no healthy group does that")

    def _commit(self, topic: str, partitions: int) -> Any:
        row = struct("OffsetCommitRequest.topics.partitions")
        rows = [
            row(partition_index=number, committed_offset=1_000, committed_metadata="") for number in range(partitions)
        ]
        return struct("OffsetCommitRequest")(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[struct("OffsetCommitRequest.topics")(name=topic, partitions=rows)],
        )

    async def _sync(self, joined: Any) -> Any:
        shares = {one.member_id: SHARE for one in joined.members}
        request = sync_request(self.group_id, self.member_id, joined.generation_id, shares)
        return await self.line.send_request("SyncGroup", SYNC, request)


def join_request(group_id: str, member_id: str, subscription: bytes, session_ms: int, rebalance_ms: int) -> Any:
    protocol = struct("JoinGroupRequest.protocols")(name=PROTOCOL, metadata=subscription)
    return struct("JoinGroupRequest")(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_request(group_id: str, member_id: str, generation: int, shares: Mapping[str, bytes]) -> Any:
    given = struct("SyncGroupRequest.assignments")
    return struct("SyncGroupRequest")(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        assignments=[given(member_id=who, assignment=blob) for who, blob in shares.items()],
    )


def heartbeat_request(group_id: str, member_id: str, generation: int) -> Any:
    return struct("HeartbeatRequest")(group_id=group_id, generation_id=generation, member_id=member_id)


def must_rejoin(what: str, answer: Any) -> bool:
    """Whether the member has to begin anew; raises BenchFailed for what no healthy group answers."""
    if answer.error_code in AGAIN:
        return True
    if answer.error_code:
        raise BenchFailed(f"{what} was answered {ErrorCode(answer.error_code).name}; no healthy group does that")
    return False


async def join_together(address: str, group_ids: list[str]) -> list[KafkaMember]:
    """One member for each id of the list; those of one group join together."""
    members = [KafkaMember(await LoadConnection.to(address), group_id) for group_id in group_ids]
    await asyncio.gather(*(member.join() for member in members))
    return members


# Members at a steady pace
# ------------------------

MEMBERS = 40
EVERY_S = 0.02


class SteadyMembers:
    """Each beats every EVERY_S, whether or not it was answered: a second in which the node answers nobody is then as
    many late answers as a second has heartbeats, and no single one.
    """

    def __init__(self, members: list[KafkaMember]) -> None:
        self._members = members
        self._taken: list[float] = []

    @classmethod
    async def of(cls, address: str, count: int = MEMBERS) -> "SteadyMembers":
        return cls(await join_together(address, [f"others-{number}" for number in range(count)]))

    async def during(self, work: Awaitable[object]) -> list[float]:
        """How long their heartbeats took while `work` went on, in ms."""
        self._taken = []
        going = asyncio.ensure_future(work)
        beating = [asyncio.create_task(self._beat(one, going)) for one in self._members]
        try:
            await going
        finally:
            await asyncio.gather(*beating)
        return self._taken

    async def _beat(self, member: KafkaMember, going: "asyncio.Future[object]") -> None:
        request, loop = member.beat(), asyncio.get_running_loop()
        due_s = loop.time() + EVERY_S * self._members.index(member) / len(self._members)
        unanswered: set[asyncio.Future[None]] = set()
        while not going.done():
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            answered = loop.create_future()
            unanswered.add(answered)
            answered.add_done_callback(unanswered.discard)
            member.line.send(request, _LatencyHandler(time.perf_counter(), self._taken, answered))
            due_s += EVERY_S
        if unanswered:
            await asyncio.wait(unanswered)


@dataclass(slots=True)
class _LatencyHandler:
    """Hears of one answer."""

    sent_s: float
    taken: list[float]
    answered: "asyncio.Future[None]"

    def __call__(self, frame: Frame) -> None:
        self.taken.append((time.perf_counter() - self.sent_s) * 1e3)
        self.answered.set_result(None)


def latency_tail(taken: list[float]) -> float:
    """The 99.9th percentile.

    >>> latency_tail([float(each) for each in range(1, 2_001)])
    1998.0
    """
    return sorted(taken)[math.ceil(len(taken) * 0.999) - 1]


# Messages, against the mock cluster
# ----------------------------------

ROUNDS = 8
TOPICS, PARTITIONS = 4, 4
PER_PARTITION = 4_000
MESSAGE_BYTES, BATCH_BYTES = 1 << 10, 16 << 10
GOAL = 0.7
PATIENCE_S = 60.0

PEER = "librdkafka's mock cluster"


def measure_messages(name: str, home: str) -> Iterator[BenchRow]:
    """Both servers take turns, and who begins changes; both are on one core, and the client on the other."""
    node = ["-m", "muster.cli", "serve", "--announce", "--until-eof", "--data", f"{home}/data"]
    node += ["--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0", "--http", ""]
    node += ["--set", f"num.partitions={PARTITIONS}"]
    ours: dict[str, list[float]] = {"produce": [], "fetch": []}
    theirs: dict[str, list[float]] = {"produce": [], "fetch": []}
    with (
        run_server(node) as muster,
        run_server(["-m", "muster.workshop.bench.mock_cluster"]) as mock,
        pinned(LOAD_CORE),
    ):
        for turn in range(ROUNDS):
            both = ((theirs, mock.address), (ours, kafka_address(muster)))
            for rates, address in both if turn % 2 else reversed(both):
                places = [(f"records-{turn}-{topic}", p) for topic in range(TOPICS) for p in range(PARTITIONS)]
                rates["produce"].append(produce_messages(address, places))
                rates["fetch"].append(fetch_messages(address, places))
    for what in ours:
        yield message_row(f"{name}: {what} 1 KB messages", ours[what], theirs[what])


def kafka_address(node: ServerProcess) -> str:
    return f"{node.said['kafka_host']}:{node.said['kafka_port']}"


def message_row(case: str, ours: list[float], theirs: list[float]) -> BenchRow:
    """The ratio is the median over the rounds, each of which had the machine as it was just then for both."""
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    value, peer_value = round(statistics.median(ours)), round(statistics.median(theirs))
    return BenchRow("wire", case, value, "messages/s", PEER, peer_value, round(ratio, 3), GOAL, ratio >= GOAL)


def produce_messages(address: str, places: list[tuple[str, int]]) -> float:
    """Messages per second, from the first one handed over to the last one acknowledged."""
    from confluent_kafka import Producer

    told = {"batch.size": BATCH_BYTES, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **told})
    value = os.urandom(MESSAGE_BYTES)
    for topic, partition in places:  # topics, connections and caches are there when the clock starts
        producer.produce(topic, value, partition=partition)
    producer.flush(PATIENCE_S)
    started = time.perf_counter()
    for topic, partition in places:
        for _ in range(PER_PARTITION):
            producer.produce(topic, value, partition=partition)
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if left:
        raise BenchFailed(f"{left} messages were not delivered within {PATIENCE_S:.0f} s by {address}")
    return len(places) * PER_PARTITION / (time.perf_counter() - started)


def fetch_messages(address: str, places: list[tuple[str, int]]) -> float:
    """Messages per second, from the first to the last of what `produce_messages` has sent."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    wanted, found, first = len(places) * (PER_PARTITION + 1), 0, 0
    started = time.perf_counter()
    while found < wanted:
        messages = consumer.consume(5_000, 1.0)
        if messages and not first:
            first, started = len(messages), time.perf_counter()
        found += len(messages)
        if time.perf_counter() - started > PATIENCE_S:
            raise BenchFailed(f"{found} of {wanted} messages came within {PATIENCE_S:.0f} s from {address}")
    took = time.perf_counter() - started
    consumer.close()
    return (wanted - first) / took
