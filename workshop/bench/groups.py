"""What groups cost: large groups, hand-over, warm takeover, and members on session streams.

A group of thousands joins, syncs and survives a crash; what each member costs must not grow with the group.
Hand-over is the time from a join or a leave until every partition is owned again, of pushed members against members
that poll.

Warm takeover measures how long a partition that changes hands is not worked on when the next owner has to load
first, between two workers in this process. Cold, the next owner loads once it owns the partition. Warm, it loads
when it is notified, reports that, and the old owner works until then.

Idle members on session streams heartbeat every third of their session, spread over that time as members are that
started by chance; the measurement lasts one such interval once all streams are open. Many members may share one
stream, which is held against a call for each heartbeat.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.client import Admin, RebalanceEvent, TopicPartition, Worker
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.grpc_members import SERVICE, GrpcConnection, GrpcMember, MemberCrowd, PushedMember
from muster.workshop.bench.heartbeats import (
    HEARTBEAT_MEMBERS,
    HEARTBEAT_ROUND_S,
    HEARTBEAT_ROUNDS,
    HEARTBEAT_SETTINGS,
    HEARTBEAT_WARM_UP_S,
    HeartbeatTarget,
    join_target,
    measure_round,
)
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.report import BenchRow, less_is_better

# Large groups
# ------------

SMALL, LARGE, PUSHED = 1_000, 5_000, 10_000
WIRES = 100
SHORTEST_SESSION_MS = 6_000
"""The shortest that the node's defaults allow; a dead member is missed after it."""
MS_PER_MEMBER = 1.5
"""A larger group needs longer from one sign of life of a member to the next."""
LARGE_GROUP_SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "queued.max.requests": "50000"}
GOAL_COUNT, GOAL_TIME = 0.9, 0.6
MEMORY_LIMIT_KB = 100.0
"""Per pushed member: twice the 41 KB that an idle stream with a connection of its own costs in grpc.aio."""


@dataclass(frozen=True, slots=True)
class LargeGroupCourse:
    """What one group went through. `recovered_s` counts from the first member that joins again after the crash."""

    size: int
    assigned_s: float
    recovered_s: float
    messages: float
    bytes: float
    kilobytes: float
    """Resident memory of the node for each member."""


def measure_large_group(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        small = asyncio.run(run_large_group(server, SMALL, GrpcMember))
        large = asyncio.run(run_large_group(server, LARGE, GrpcMember))
    case = f"{name}: {LARGE:,} members"
    peer = f"{SMALL:,} members"
    yield less_is_better(f"{case}, join and crash", large.messages, "messages/member", peer, small.messages, GOAL_COUNT)
    yield less_is_better(f"{case}, join and crash", large.bytes, "bytes/member", peer, small.bytes, GOAL_COUNT)
    yield from growth_row(case, large, small)


def measure_large_pushed_group(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        small = asyncio.run(run_large_group(server, SMALL, PushedMember))
        large = asyncio.run(run_large_group(server, PUSHED, PushedMember))
    case = f"{name}: {PUSHED:,} members"
    yield from growth_row(case, large, small)
    yield less_is_better(f"{case}, memory", large.kilobytes, "KB/member", "limit", MEMORY_LIMIT_KB, 1.0)


def growth_row(case: str, large: LargeGroupCourse, small: LargeGroupCourse) -> Iterator[BenchRow]:
    factor = large.size // small.size
    peer = f"{factor} times {small.size:,} members"
    for what, value, other in (
        ("last join to everyone assigned", large.assigned_s, small.assigned_s),
        ("after a crash, first to join again to everyone assigned", large.recovered_s, small.recovered_s),
    ):
        yield less_is_better(f"{case}, {what}", value, "s", peer, factor * other, GOAL_TIME)


async def run_large_group(server: ServerProcess, size: int, kind: type[GrpcMember]) -> LargeGroupCourse:
    before = server.resident_bytes()
    async with MemberCrowd(server, f"{kind.__name__}-{size}", size, kind, WIRES) as crowd:
        victim = crowd.members[-1]
        victim.session_timeout_ms = max(SHORTEST_SESSION_MS, int(size * MS_PER_MEMBER))
        assigned_s = await crowd.join()
        generation = max(member.generation for member in crowd.members)
        crowd.crash(victim)
        await crowd.all_beyond(generation)
        recovered_s = asyncio.get_running_loop().time() - min(member.asked_at_s for member in crowd.members)
        kilobytes = (server.resident_bytes() - before) / 1024 / size
        return LargeGroupCourse(size, assigned_s, recovered_s, crowd.messages / size, crowd.bytes / size, kilobytes)


# Hand-over
# ---------

SIZES = (10, 100)
HANDOVER_ROUNDS = 2
HANDOVER_GOAL = 10.0
"""Pushed members are back this many times sooner."""

Seconds = dict[tuple[int, str], list[float]]


def measure_handover(name: str, home: str) -> Iterator[BenchRow]:
    settings = {"group.initial.rebalance.delay.ms": "300"}
    with pinned(LOAD_CORE), run_node(home, settings) as server:
        polled = asyncio.run(measure_all_sizes(server, "polled", GrpcMember))
        pushed = asyncio.run(measure_all_sizes(server, "pushed", PushedMember))
    for size, change in pushed:
        value, peer = (statistics.median(seconds[size, change]) * 1e3 for seconds in (pushed, polled))
        yield less_is_better(
            f"{name}: {change}, {size} members, pushed", value, "ms", "polled every 3 s", peer, HANDOVER_GOAL
        )


async def measure_all_sizes(server: ServerProcess, label: str, kind: type[GrpcMember]) -> Seconds:
    taken: Seconds = {}
    for size in SIZES:
        async with MemberCrowd(server, f"{label}-{size}", size, kind, size + HANDOVER_ROUNDS) as crowd:
            await crowd.join()
            await settle_crowd(crowd)
            for _ in range(HANDOVER_ROUNDS):
                taken.setdefault((size, "one joins"), []).append(await measure_join(crowd))
                taken.setdefault((size, "one leaves"), []).append(await measure_leave(crowd))
    return taken


async def settle_crowd(crowd: MemberCrowd) -> None:
    """Streams are open, and everybody has been heard of once."""
    for member in crowd.members:
        assert await member.beat(), "a group that nobody disturbs does not rebalance"


async def measure_join(crowd: MemberCrowd) -> float:
    generation = max(member.generation for member in crowd.members)
    newcomer = crowd.newcomer(0)
    watch = Stopwatch()
    joining = asyncio.create_task(newcomer.join())
    await crowd.all_beyond(generation)
    await joining
    taken = watch.read()
    crowd.members.append(newcomer)
    crowd.start_member(newcomer)
    await settle_crowd(crowd)
    return taken


async def measure_leave(crowd: MemberCrowd) -> float:
    generation = max(member.generation for member in crowd.members)
    leaver = crowd.members[-1]
    crowd.crash(leaver)
    watch = Stopwatch()
    await leaver.leave()
    await crowd.all_beyond(generation)
    taken = watch.read()
    await settle_crowd(crowd)
    return taken


# Warm takeover
# -------------

LOAD_S = 2.0
"""What a member needs to load before it can work on a partition."""
TAKEOVER_ROUNDS = 3
PATIENCE_S = 60.0
TAKEOVER_GOAL = 5.0
"""Work is resumed in so much less of the time."""


class PartitionTakeover:
    """One of two partitions goes from one worker to another: when one stopped working on it, and the other began."""

    def __init__(self, server: ServerProcess, group_id: str, *, warm: bool) -> None:
        self._warm = warm
        self._stopped_s: dict[TopicPartition, float] = {}
        self._begun_s: dict[TopicPartition, float] = {}
        self._loaded: set[TopicPartition] = set()
        self._done, self._over = threading.Event(), threading.Event()
        properties = {"bootstrap.servers": server.address, "group.id": group_id, "group.protocol": "consumer"}
        self._old, self._new = Worker(properties), Worker(properties)

    def seconds(self, topic: str) -> float:
        """Without anybody at work on what moved."""
        self._old.join(topics=[topic], on_lose=self._stop)
        until = time.monotonic() + PATIENCE_S
        while len(self._old.owned()) < 2 and time.monotonic() < until:
            self._old.poll(0.1)
        self._new.join(topics=[topic], on_gain=self._begin_takeover, on_prepare=self._prepare if self._warm else None)
        threads = [threading.Thread(target=self._run, args=(worker,)) for worker in (self._old, self._new)]
        for thread in threads:
            thread.start()
        came = self._done.wait(PATIENCE_S)
        self._over.set()
        for thread in threads:
            thread.join()
        self._new.close()
        self._old.close()
        if not came:
            raise BenchFailed(f"nothing changed hands within {PATIENCE_S:.0f} s; is the machine very busy?")
        (moved,) = self._begun_s
        return self._begun_s[moved] - self._stopped_s[moved]

    def _run(self, worker: Worker) -> None:
        while not self._over.is_set():
            worker.poll(0.1)

    def _stop(self, _worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        if self._warm and not self._over.is_set():
            event.wait_until_ready(PATIENCE_S)
        self._stopped_s.setdefault(partition, time.perf_counter())

    def _prepare(self, _worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        self._load(partition)
        event.ready()

    def _begin_takeover(self, _worker: Worker, partition: TopicPartition, _event: RebalanceEvent) -> None:
        if partition not in self._loaded:
            self._load(partition)
        self._begun_s[partition] = time.perf_counter()
        self._done.set()

    def _load(self, partition: TopicPartition) -> None:
        time.sleep(LOAD_S)
        self._loaded.add(partition)


def measure_warm_takeover(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, {}) as server:
        with Admin(bootstrap_servers=server.address) as admin:
            admin.create_topic("work", partitions=2)
        cold = [
            PartitionTakeover(server, f"cold-{count}", warm=False).seconds("work") for count in range(TAKEOVER_ROUNDS)
        ]
        warm = [
            PartitionTakeover(server, f"warm-{count}", warm=True).seconds("work") for count in range(TAKEOVER_ROUNDS)
        ]
    value, peer = (statistics.median(seconds) * 1e3 for seconds in (warm, cold))
    case = f"{name}: work on a partition goes on elsewhere, {LOAD_S:g} s to load, warm"
    yield less_is_better(case, value, "ms", "cold", peer, TAKEOVER_GOAL)


# Members that share a stream
# ---------------------------

SHARED_STREAM_GOAL = 5.0


def measure_shared_streams(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, HEARTBEAT_SETTINGS) as server:
        shared, unary = asyncio.run(interleave_shared_and_single(server))
    case = f"{name}, {HEARTBEAT_MEMBERS} members at a time"
    yield less_is_better(case, shared, "us CPU/heartbeat", "a call each, in the same run", unary, SHARED_STREAM_GOAL)


async def interleave_shared_and_single(server: ServerProcess) -> tuple[float, float]:
    """Microseconds of the server for a heartbeat: with all others in a frame, and by a call of its own."""
    target = await join_target(server)
    wire = GrpcConnection(server.address)
    shared = SharedConnection(wire)
    await shared.greet(target.members)
    together, unary = [], []
    await measure_round(target, HEARTBEAT_WARM_UP_S)
    await measure_shared_round(target, shared, HEARTBEAT_WARM_UP_S)
    for _ in range(HEARTBEAT_ROUNDS):
        together.append(await measure_shared_round(target, shared, HEARTBEAT_ROUND_S))
        unary.append(await measure_round(target, HEARTBEAT_ROUND_S))
    shared.close()
    await wire.close()
    for member in target.members:
        await member.wire.close()
    return statistics.median(together), statistics.median(unary)


class SharedConnection:
    """One stream, and the members that speak on it."""

    def __init__(self, wire: GrpcConnection) -> None:
        self._stream: Any = wire.channel.stream_stream(SERVICE + "SharedSession")()
        self._heartbeats: list[pb.MemberRequest] = []

    async def greet(self, members: list[GrpcMember]) -> None:
        """All come, and have heard that they are known."""
        hellos = [
            pb.SessionRequest(hello=pb.SessionHello(group_id=each.group_id, member_id=each.member_id))
            for each in members
        ]
        await self._say([pb.MemberRequest(member=number, request=hello) for number, hello in enumerate(hellos)])
        await self._hear(len(members))
        for number, member in enumerate(members):
            request = pb.SessionRequest(
                request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=member.generation)
            )
            self._heartbeats.append(pb.MemberRequest(member=number, request=request))

    async def beat(self) -> int:
        """All members beat and hear the answer; how many."""
        await self._say(self._heartbeats)
        await self._hear(len(self._heartbeats))
        return len(self._heartbeats)

    def close(self) -> None:
        self._stream.cancel()

    async def _say(self, words: list[pb.MemberRequest]) -> None:
        await self._stream.write(pb.SharedSessionRequest(requests=words).SerializeToString())

    async def _hear(self, count: int) -> None:
        while count > 0:
            for heard in pb.SharedSessionResponse.FromString(await self._stream.read()).responses:
                refused = heard.HasField("ended") or heard.response.heartbeat.error_code
                assert not refused, f"a healthy member was told: {heard}"
                count -= 1


async def measure_shared_round(target: HeartbeatTarget, shared: SharedConnection, seconds: float) -> float:
    watch, before, done = Stopwatch(), target.server.cpu_s(), 0
    while watch.read() < seconds:
        done += await shared.beat()
    return (target.server.cpu_s() - before) / done * 1e6


# Idle members
# ------------

SESSION_MS = 45_000
"""The clients' default."""
INTERVAL_S = SESSION_MS / 3 / 1000
MOST_PERCENT = 12.0
TOGETHER = 20
"""Members of one process."""
OPENING = 500
"""Streams that are opened at a time: a node refuses the thousandth that has not said whose it is."""


def measure_idle_members(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        percent = asyncio.run(measure_idle_share(server))
        shared = asyncio.run(measure_idle_shared_share(server))
    case = f"{name}: {PUSHED:,}, every {INTERVAL_S:.0f} s, spread"
    yield less_is_better(f"{case}, a stream each", percent, "% of a core", "limit", MOST_PERCENT, 1.0)
    yield less_is_better(f"{case}, a stream for {TOGETHER}", shared, "% of a core", "limit", MOST_PERCENT, 1.0)


@dataclass(slots=True)
class AnsweredMember(PushedMember):
    """It asks for an answer to each heartbeat, as our clients do."""

    welcomed: asyncio.Event = field(default_factory=asyncio.Event)
    """Its stream is open: within the next interval it beats."""
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def live(self, every_s: float, first_s: float) -> None:
        await self.opening.acquire()
        await PushedMember.live(self, every_s, first_s)

    async def _welcome(self, stream: Any) -> float:
        told_s = await PushedMember._welcome(self, stream)
        self.opening.release()
        self.welcomed.set()
        return told_s

    def _beat(self) -> pb.SessionRequest:
        return pb.SessionRequest(request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=self.generation))


async def measure_idle_share(server: ServerProcess, size: int = PUSHED, interval_s: float = INTERVAL_S) -> float:
    """Percent of a core. Raises what ended a member's stream."""
    async with MemberCrowd(server, "idle", size, AnsweredMember, WIRES) as crowd:
        answered = [member for member in crowd.members if isinstance(member, AnsweredMember)]
        opening = asyncio.Semaphore(OPENING)  # of this run's loop: each run has another
        for member in answered:
            member.session_timeout_ms, member.opening = SESSION_MS, opening
        await crowd.join()
        await crowd.done(member.welcomed.wait() for member in answered)
        messages, watch, before = crowd.messages, Stopwatch(), server.cpu_s()
        await asyncio.sleep(interval_s)
        percent = 100 * (server.cpu_s() - before) / watch.read()
        spoken = crowd.messages - messages
        assert spoken >= 1.8 * size, f"of {size} members {spoken // 2} spoke and were answered in {interval_s:.0f} s"
        return percent


class StreamSharingMember(GrpcMember):
    """It beats in step with the others of its process, by the stream that they share."""

    async def live(self, every_s: float, first_s: float) -> None:
        """Whoever holds the stream beats."""


async def measure_idle_shared_share(server: ServerProcess, size: int = PUSHED, interval_s: float = INTERVAL_S) -> float:
    """The same of members of which each process has some, and a stream for them. Percent of a core."""
    async with MemberCrowd(server, "idle-together", size, StreamSharingMember, WIRES) as crowd:
        for member in crowd.members:
            member.session_timeout_ms = SESSION_MS
        await crowd.join()
        processes = [crowd.members[first : first + TOGETHER] for first in range(0, size, TOGETHER)]
        streams = [SharedConnection(members[0].wire) for members in processes]
        await crowd.done(stream.greet(members) for stream, members in zip(streams, processes, strict=True))
        watch, before = Stopwatch(), server.cpu_s()
        beating = [beat_once(stream, interval_s * number / len(streams)) for number, stream in enumerate(streams)]
        heard = sum(await asyncio.gather(*beating, asyncio.sleep(interval_s, 0)))
        percent = 100 * (server.cpu_s() - before) / watch.read()
        assert heard == size, f"of {size} members {heard} were answered in {interval_s:.0f} s"
        for stream in streams:
            stream.close()
        return percent


async def beat_once(stream: SharedConnection, after_s: float) -> int:
    await asyncio.sleep(after_s)
    return await stream.beat()
