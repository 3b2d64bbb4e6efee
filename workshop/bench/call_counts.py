"""Calls of Python functions that a node makes for a request: the case "calls" of `muster bench wire`.

A node runs in this process, and `sys.setprofile` counts on the thread of its event loop only. The clients are blocking
sockets on another thread. The loop stands still while they write, so it finds the requests of a round together: what is
counted depends on no clock. What the node does by its clock besides (`BY_CLOCK`) is left out with all that it calls. On
a busy machine a request may still come in two turns, or upkeep end within a round: the least count stands, and rounds
go on until two agree on it. It depends on the version of Python: comprehensions are calls before 3.12.

`CALL_BUDGETS` says how many calls there may be; a test compares. Lower a budget when a count has come down.
"""

import asyncio
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import CodeType, FrameType
from typing import Any, Final

from muster.coordinator.config import load_settings
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.server.backend.upkeep import NodeUpkeep
from muster.coordinator.server.driver.clock import LoopMonitor
from muster.coordinator.server.monitoring.group_sampling import GroupSampler
from muster.coordinator.server.node.main import loop_factory
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.node_events import RebalanceLines
from muster.coordinator.server.node_log import configure_logs
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.kafka_load import (
    BEAT,
    COMMIT,
    JOIN,
    REBALANCE_MS,
    SESSION_MS,
    SHARE,
    SUBSCRIPTION,
    SYNC,
    KafkaMember,
    LoadConnection,
    join_request,
    sync_request,
)
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.report import BenchRow, less_is_better

CALL_BUDGETS: Final[Mapping[str, int]] = {
    "JoinGroup, one member": 178,
    "SyncGroup, one member": 250,
    "JoinGroup, 500 members": 79,
    "SyncGroup, 500 members": 56,
    "OffsetCommit of ten, the first": 151,
    "OffsetCommit of ten, the second of a shape": 161,
    "OffsetCommit of ten, later ones": 126,
    "Heartbeat": 18,
    "Produce": 81,
    "Fetch": 67,
    "Transaction, one producer": 595,
    "Transaction, 32 producers": 452,
}
"""By request: the most calls on the loop's thread for each."""

MEMBERS: Final = 500
CALL_ROUNDS: Final = 5
MOST_ROUNDS: Final = 25
TOPIC, PARTITIONS = "bench", 10
PRODUCERS = 32
DELAY_MS = 300
PRODUCE, FETCH, CREATE = 9, 12, 4
FIND, INIT, PRODUCE_FIRST, END = 4, 4, 12, 5
PATIENCE_S = 60.0
SETTINGS: Final = {
    "listeners": "127.0.0.1:0",
    "kafka.listeners": "127.0.0.1:0",
    "http.listeners": "",
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "add.partitions.to.txn.retry.backoff.max.ms": "10000",
    "logging.level": "error",
}

Calls = Counter[CodeType]
"""How often each function was called."""

BY_CLOCK: Final = frozenset(
    each.__code__ for each in (LoopMonitor._beat, NodeUpkeep._tick, GroupSampler._run, RebalanceLines._write)
)
"""What a node does by its clock, with or without requests: the loop's beat, upkeep, lines of its log."""


def measure_calls(name: str, home: str) -> Iterator[BenchRow]:
    for case, calls in count_calls(home).items():
        budget = CALL_BUDGETS[case]
        row = less_is_better(f"{name}: {case}", calls, "calls/request", "budget", budget, 1.0)
        yield row._replace(bench="wire")


def count_calls(home: str, members: int = MEMBERS, settings: Mapping[str, str] | None = None) -> dict[str, float]:
    """By request: the calls for each, of a node with these settings besides."""
    with counted_node(home, settings or {}) as (address, counter):
        counts = dict(count_single_requests(address, counter))
        for request, calls in count_rounds(address, counter, members, f"of-{members}"):
            counts[f"{request}, {MEMBERS} members"] = calls
        counts["Transaction, one producer"] = count_transactions(address, counter, 1)
        counts[f"Transaction, {PRODUCERS} producers"] = count_transactions(address, counter, PRODUCERS)
    return {case: counts[case] for case in CALL_BUDGETS}


# The node and what counts
# ------------------------


class CallCounter:
    """Counts on the thread of one event loop, while requests are answered that were sent from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.calls: Calls = Counter()
        """Of the last round."""
        self._depth_by_clock = 0
        """How deep the loop is within something of `BY_CLOCK`."""

    def count(self, send: Callable[[], object], receive: Callable[[], object]) -> int:
        """The calls from when all that `send` writes can be read until all that `receive` waits for has been sent."""
        standing, sent = threading.Event(), threading.Event()

        def stand() -> None:
            standing.set()
            sent.wait(PATIENCE_S)
            self.calls, self._depth_by_clock = Counter(), 0
            sys.setprofile(self._note)

        self._loop.call_soon_threadsafe(stand)
        standing.wait(PATIENCE_S)
        try:
            send()
        finally:
            sent.set()
        try:
            receive()
        finally:
            stopped = threading.Event()

            def stop() -> None:
                sys.setprofile(None)
                stopped.set()

            self._loop.call_soon_threadsafe(stop)
            stopped.wait(PATIENCE_S)
        return self.calls.total() - 1  # that of `stop` itself

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            if self._depth_by_clock or frame.f_code in BY_CLOCK:
                self._depth_by_clock += 1
            else:
                self.calls[frame.f_code] += 1
        elif event == "return" and self._depth_by_clock:
            self._depth_by_clock -= 1


@contextmanager
def counted_node(home: str, settings: Mapping[str, str]) -> Iterator[tuple[str, CallCounter]]:
    """A node in a thread of this process: its address for Kafka's protocol, and what counts its calls."""
    configure_logs("error", "console")
    made = loop_factory()
    loop = asyncio.new_event_loop() if made is None else made()
    thread = threading.Thread(target=loop.run_forever, name="counted-node", daemon=True)
    thread.start()
    try:
        starting = start_node({"log.dirs": home, **SETTINGS, **settings})
        node = asyncio.run_coroutine_threadsafe(starting, loop).result(PATIENCE_S)
        bound = node.kafka_bound
        assert bound is not None, "kafka.listeners is set"
        yield f"{bound.host}:{bound.port}", CallCounter(loop)
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


async def start_node(settings: Mapping[str, str]) -> CoordinatorNode:
    node = CoordinatorNode(load_settings(None, settings))
    await node.start()
    return node


class BlockingMember:
    """A classic member on a blocking socket. It sends bytes that are made before anything is counted."""

    def __init__(self, address: str, group_id: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._answers = self._socket.makefile("rb")
        self._made = LoadConnection()
        self.member = KafkaMember(self._made, group_id)

    def request(self, name: str, version: int, message: object) -> bytes:
        return self._made.request(name, version, message)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        return self._answers.read(int.from_bytes(self._answers.read(4), "big"))

    def receive_as(self, name: str, version: int) -> Any:
        return self._made.read(name, version, self.receive())

    def ask(self, name: str, version: int, message: object) -> Any:
        self.send(self.request(name, version, message))
        return self.receive_as(name, version)

    def join(self) -> bytes:
        asked = join_request(self.member.group_id, self.member.member_id, SUBSCRIPTION, SESSION_MS, REBALANCE_MS)
        return self.request("JoinGroup", JOIN, asked)

    def sync(self, shares: Mapping[str, bytes]) -> bytes:
        asked = sync_request(self.member.group_id, self.member.member_id, self.member.generation, shares)
        return self.request("SyncGroup", SYNC, asked)

    def joined(self) -> Any:
        answer = self.receive_as("JoinGroup", JOIN)
        self.member.member_id = answer.member_id or self.member.member_id
        self.member.generation = answer.generation_id
        return answer

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


# Rounds
# ------


def count_until_agreed(count_round: Callable[[], Sequence[float]]) -> list[float]:
    """The least of each count of a round, once two rounds agree on it; after `MOST_ROUNDS` without that."""
    rounds = [count_round() for _ in range(1 + CALL_ROUNDS)]
    while len(rounds) < MOST_ROUNDS and not all(counts.count(min(counts)) > 1 for counts in zip(*rounds, strict=True)):
        rounds.append(count_round())
    return least(rounds)


def least(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Of each count of a round."""
    return [min(counts) for counts in zip(*rounds, strict=True)]


def count_rounds(address: str, counter: CallCounter, size: int, group_id: str) -> Iterator[tuple[str, float]]:
    """The leader of a stable group joins again and all others with it, then all of them fetch their shares."""
    members = [BlockingMember(address, group_id) for _ in range(size)]
    for expected in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
        send_each(members, [each.join() for each in members])
        check_codes("JoinGroup", expected, [each.joined() for each in members])

    def count_round() -> Sequence[float]:
        syncs = counter.count(*sync_round(members)) / size
        return counter.count(*join_round(members)) / size, syncs

    # Answers to many members are cut into pieces as the network likes: no two rounds are quite the same.
    rounds = count_until_agreed(count_round) if size == 1 else least([count_round() for _ in range(1 + CALL_ROUNDS)])
    for each in members:
        each.close()
    yield from zip(("JoinGroup", "SyncGroup"), rounds, strict=True)


def join_round(members: Sequence[BlockingMember]) -> tuple[Callable[[], None], Callable[[], None]]:
    requests = [each.join() for each in members]
    return (
        lambda: send_each(members, requests),
        lambda: check_codes("JoinGroup", ErrorCode.NONE, [each.joined() for each in members]),
    )


def sync_round(members: Sequence[BlockingMember]) -> tuple[Callable[[], None], Callable[[], None]]:
    """The first one leads."""
    shares = {each.member.member_id: SHARE for each in members}
    requests = [each.sync({} if number else shares) for number, each in enumerate(members)]
    return (
        lambda: send_each(members, requests),
        lambda: check_codes("SyncGroup", ErrorCode.NONE, [each.receive_as("SyncGroup", SYNC) for each in members]),
    )


def send_each(members: Sequence[BlockingMember], requests: Sequence[bytes]) -> None:
    for each, request in zip(members, requests, strict=True):
        each.send(request)


def check_codes(what: str, expected: ErrorCode, answers: Sequence[Any]) -> None:
    codes = {answer.error_code for answer in answers} - {expected}
    if codes:
        raise BenchFailed(f"{what} was answered {sorted(codes)}, expected {expected.name}; no healthy group does that")


# Single requests
# ---------------


def count_single_requests(address: str, counter: CallCounter) -> Iterator[tuple[str, float]]:
    client = BlockingMember(address, "of-one")
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    check_codes(
        "CreateTopics",
        ErrorCode.NONE,
        client.ask("CreateTopics", CREATE, struct("CreateTopicsRequest")(topics=[wanted])).topics,
    )
    client.close()
    for request, calls in count_rounds(address, counter, 1, "of-one"):
        yield f"{request}, one member", calls
    yield from count_commits(address, counter)
    yield "Heartbeat", count_heartbeats(address, counter)
    yield from count_records(address, counter)


def one_member(address: str, group_id: str) -> BlockingMember:
    """A stable group of one."""
    member = BlockingMember(address, group_id)
    for _ in range(2):
        member.send(member.join())
        member.joined()
    member.send(member.sync({member.member.member_id: SHARE}))
    check_codes("SyncGroup", ErrorCode.NONE, [member.receive_as("SyncGroup", SYNC)])
    return member


def count_commits(address: str, counter: CallCounter) -> Iterator[tuple[str, float]]:
    """A connection reads the first whole, sees in the second what it has in common with it, and then the offsets only.

    Each round is a member of its own.
    """
    places = ("the first", "the second of a shape", "later ones")
    numbers = count()

    def count_round() -> Sequence[float]:
        member = one_member(address, f"commits-{next(numbers)}")
        request = member.member.commit(TOPIC, PARTITIONS)

        def answered() -> None:
            rows = [row for topic in member.receive_as("OffsetCommit", COMMIT).topics for row in topic.partitions]
            check_codes("OffsetCommit", ErrorCode.NONE, rows)

        first, second, *later = [counter.count(lambda: member.send(request), answered) for _ in range(4)]
        member.close()
        return first, second, min(later)

    for place, calls in zip(places, count_until_agreed(count_round), strict=True):
        yield f"OffsetCommit of ten, {place}", calls


def count_heartbeats(address: str, counter: CallCounter) -> float:
    member = one_member(address, "heartbeats")
    request = member.member.beat()

    def answered() -> None:
        check_codes("Heartbeat", ErrorCode.NONE, [member.receive_as("Heartbeat", BEAT)])

    (calls,) = count_until_agreed(lambda: [counter.count(lambda: member.send(request), answered)])
    member.close()
    return calls


def count_records(address: str, counter: CallCounter) -> Iterator[tuple[str, float]]:
    """One record by acks=all, and that record again."""
    client = BlockingMember(address, "")
    batch = encode_batch([(0, b"key", bytes(100), ())])
    data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=batch)
    told = struct("ProduceRequest.topic_data")(name=TOPIC, partition_data=[data])
    produce = client.request(
        "Produce", PRODUCE, struct("ProduceRequest")(acks=-1, timeout_ms=30_000, topic_data=[told])
    )
    part = struct("FetchRequest.topics.partitions")(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = struct("FetchRequest.topics")(topic=TOPIC, partitions=[part])
    fetch = client.request("Fetch", FETCH, struct("FetchRequest")(min_bytes=1, max_bytes=1, topics=[topic]))

    def produced() -> None:
        answer = client.receive_as("Produce", PRODUCE)
        check_codes("Produce", ErrorCode.NONE, [row for one in answer.responses for row in one.partition_responses])

    def fetched() -> None:
        rows = [row for one in client.receive_as("Fetch", FETCH).responses for row in one.partitions]
        check_codes("Fetch", ErrorCode.NONE, rows)
        if not rows[0].records:
            raise BenchFailed("Fetch was answered without the record that was produced; no healthy log does that")

    for name, request, received in (("Produce", produce, produced), ("Fetch", fetch, fetched)):
        (calls,) = count_until_agreed(lambda: [counter.count(lambda: client.send(request), received)])  # noqa: B023
        yield name, calls
    client.close()


# Transactions
# ------------


class BlockingProducer:
    """A transactional producer of level 2 on a blocking socket, which writes to one partition."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self._line = BlockingMember(address, "")
        self._id = transactional_id
        find = struct("FindCoordinatorRequest")(key_type=1, coordinator_keys=[transactional_id])
        self._line.ask("FindCoordinator", FIND, find)
        init = struct("InitProducerIdRequest")(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = self._line.ask("InitProducerId", INIT, init)
        check_codes("InitProducerId", ErrorCode.NONE, [answer])
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def begin(self) -> bytes:
        """The first record of a transaction, which adds its partition."""
        batch = encode_batch(
            [(time.time_ns() // 1_000_000, None, bytes(100), ())],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=batch)
        told = struct("ProduceRequest.topic_data")(name=TOPIC, partition_data=[data])
        asked = struct("ProduceRequest")(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=[told])
        return self._line.request("Produce", PRODUCE_FIRST, asked)

    def commit(self) -> bytes:
        """The end of a transaction; the next one has the next epoch."""
        asked = struct("EndTxnRequest")(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        self._epoch += 1
        return self._line.request("EndTxn", END, asked)

    def send(self, requests: bytes) -> None:
        self._line.send(requests)

    def begun(self) -> None:
        answer = self._line.receive_as("Produce", PRODUCE_FIRST)
        check_codes("Produce", ErrorCode.NONE, [row for one in answer.responses for row in one.partition_responses])

    def committed(self) -> None:
        check_codes("EndTxn", ErrorCode.NONE, [self._line.receive_as("EndTxn", END)])

    def close(self) -> None:
        self._line.close()


def count_transactions(address: str, counter: CallCounter, size: int) -> float:
    """Of a round in which each producer commits a transaction and begins the next, which waits for the completion."""
    producers = [BlockingProducer(address, f"transactions-{size}-{number}") for number in range(size)]
    for each in producers:
        each.send(each.begin())
    for each in producers:
        each.begun()
    counts = []
    for _ in range(2 + CALL_ROUNDS):
        requests = [each.commit() + each.begin() for each in producers]
        counts.append(counter.count(*transaction_round(producers, requests)) / size)
    for each in producers:
        each.close()
    return min(counts)


def transaction_round(
    producers: Sequence[BlockingProducer], requests: Sequence[bytes]
) -> tuple[Callable[[], None], Callable[[], None]]:
    def send() -> None:
        for each, request in zip(producers, requests, strict=True):
            each.send(request)

    def receive() -> None:
        for each in producers:
            each.committed()
            each.begun()

    return send, receive
