"""`muster bench growth`: how memory and time grow with members, groups and partitions, cell by cell.

A cell says what a node carries: so many members by one listener, in so many groups, which share so many partitions.
In each cell a node is started, loaded, rebalanced, left in peace, killed and started again, within bounds of time
and memory; each phase is held against the next smaller cell of the same run, times as much as the cell is larger.
Members are as lean as they can be, because thousands of them share this process with the clock. Data lie in memory
where there is room: a disk takes minutes to remove 300,000 files.
"""

import asyncio
import resource
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import grpc
from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.grpc_members import GrpcConnection, Response
from muster.workshop.bench.interference import LargeRequestClient
from muster.workshop.bench.kafka_load import (
    BEAT,
    JOIN,
    PROTOCOL,
    SYNC,
    LoadConnection,
    heartbeat_request,
    join_request,
    kafka_address,
    sync_request,
)
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node

# The grid
# --------

KAFKA, GRPC = "kafka", "grpc"
PARTITIONS: Final = 1_000
"""Where partitions are not what grows; also the most that one topic has."""


@dataclass(frozen=True, slots=True)
class GrowthCell:
    """What a node carries: so many members by one door, in so many groups, which share so many partitions."""

    door: str
    members: int
    groups: int
    partitions: int

    @property
    def label(self) -> str:
        """
        >>> GrowthCell("kafka", 50_000, 1, 1_000).label
        'kafka, 50,000 members, 1 group, 1,000 partitions'
        """
        groups = f"{self.groups:,} group{'s' if self.groups > 1 else ''}"
        return f"{self.door}, {self.members:,} members, {groups}, {self.partitions:,} partitions"

    @property
    def of_group(self) -> int:
        """Members of one group."""
        return self.members // self.groups


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """Which partitions a group reads: `width` of them in a row, from `first` on, around the end."""

    first: int
    width: int

    def pieces(self, members: int, turned: int, partitions: int) -> list[dict[str, list[int]]]:
        """What each member is given: as many each as it comes out, in order; a turn later all of it moves on by one.

        >>> TopicSlice(998, 4).pieces(2, 0, 1_000)
        [{'growth-0': [998, 999]}, {'growth-0': [0, 1]}]
        >>> TopicSlice(998, 4).pieces(2, 1, 1_000)
        [{'growth-0': [0, 1]}, {'growth-0': [998, 999]}]
        """
        found = []
        for number in range(members):
            place = (number + turned) % members
            piece: dict[str, list[int]] = {}
            for at in range(place * self.width // members, (place + 1) * self.width // members):
                topic, partition = divmod((self.first + at) % partitions, PARTITIONS)
                piece.setdefault(f"growth-{topic}", []).append(partition)
            found.append(piece)
        return found

    def topics(self, partitions: int) -> list[str]:
        """
        >>> TopicSlice(1_500, 1_000).topics(10_000)
        ['growth-1', 'growth-2']
        """
        last = self.first + self.width - 1
        numbers = range(self.first // PARTITIONS, last // PARTITIONS + 1)
        return list(dict.fromkeys(f"growth-{number % -(-partitions // PARTITIONS)}" for number in numbers))


def slice_of_group(cell: GrowthCell, group: int) -> TopicSlice:
    """Groups divide the partitions among themselves; a group has at least one for each member, while there are so many.

    >>> slice_of_group(GrowthCell(KAFKA, 1_000, 100, 1_000), 3), slice_of_group(GrowthCell(KAFKA, 50_000, 10_000,
    ... 1_000), 400)
    (TopicSlice(first=30, width=10), TopicSlice(first=0, width=5))
    """
    width = min(cell.partitions, max(cell.partitions // cell.groups, cell.of_group))
    return TopicSlice(group * width % cell.partitions, width)


def all_cells() -> list[GrowthCell]:
    """All cells, small ones first: a suite that runs out of its time leaves out large ones."""
    loads = [(1_000, 1), (1_000, 100), (10_000, 1), (10_000, 100), (10_000, 10_000)]
    most = [(50_000, 100), (50_000, 10_000), (50_000, 1)]
    cells = [GrowthCell(door, *load, PARTITIONS) for load in loads for door in (KAFKA, GRPC)]
    cells += [GrowthCell(door, 1_000, 1, count) for count in (10_000, 100_000) for door in (KAFKA, GRPC)]
    return cells + [GrowthCell(door, *load, PARTITIONS) for door in (KAFKA, GRPC) for load in most]


def small_cells() -> list[GrowthCell]:
    """The same in miniature: of speed it says nothing."""
    return [
        GrowthCell(door, *load) for door in (KAFKA, GRPC) for load in ((4, 1, 10), (20, 1, 10), (20, 5, 10), (4, 1, 40))
    ]


def next_smaller_cell(cell: GrowthCell, cells: Sequence[GrowthCell]) -> tuple[GrowthCell, float] | None:
    """The next smaller cell in members, else in partitions, all else alike; and how many times as large this one is.

    >>> next_smaller_cell(GrowthCell(KAFKA, 50_000, 100, 1_000), all_cells())
    (GrowthCell(door='kafka', members=10000, groups=100, partitions=1000), 5.0)
    >>> next_smaller_cell(GrowthCell(GRPC, 1_000, 1, 100_000), all_cells())
    (GrowthCell(door='grpc', members=1000, groups=1, partitions=10000), 10.0)
    >>> next_smaller_cell(GrowthCell(KAFKA, 10_000, 10_000, 1_000), all_cells())
    """
    alike = [each for each in cells if (each.door, each.groups) == (cell.door, cell.groups)]
    fewer = [e for e in alike if e.partitions == cell.partitions and e.members < cell.members]
    if fewer:
        peer = max(fewer, key=lambda each: each.members)
        return peer, cell.members / peer.members
    less = [e for e in alike if e.members == cell.members and e.partitions < cell.partitions]
    if less:
        peer = max(less, key=lambda each: each.partitions)
        return peer, cell.partitions / peer.partitions
    return None


# Members of many groups
# ----------------------

AT_ONCE = 10_000
"""Members that are on their way into their groups at the same time, where no group has more."""
BEATING = 64
"""Heartbeats under way at once."""
AGAIN = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
SESSION_MS, REBALANCE_MS = 1_200_000, 600_000


@dataclass(slots=True)
class GrowthMember:
    """One member, and by which of the connections it speaks."""

    group_id: str
    subscription: bytes
    way: int
    member_id: str = ""
    generation: int = -1


class GrowthJoinAnswer(NamedTuple):
    """What a JoinGroup was answered with; of who follows `members` is empty."""

    code: ErrorCode
    member_id: str
    generation: int
    leader: str
    members: Sequence[str]


class MemberCalls(Protocol):
    """The three requests of a classic member, by one door."""

    async def open(self, ways: int) -> None:
        """So many connections, or what stands for them."""

    async def join(self, seat: GrowthMember) -> GrowthJoinAnswer: ...

    async def sync(self, seat: GrowthMember, joined: GrowthJoinAnswer, shares: Mapping[str, bytes]) -> ErrorCode: ...

    async def beat(self, seat: GrowthMember) -> ErrorCode: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class GrowthGroup:
    """Its members; `turned` is how often its leader has moved everything on."""

    number: int
    seats: list[GrowthMember]
    turned: int = 0


@dataclass(slots=True)
class GrowthCrowd:
    """All members of a cell. Raises BenchFailed for an answer that no healthy group gives."""

    cell: GrowthCell
    door: MemberCalls
    groups: list[GrowthGroup] = field(default_factory=list)
    ways: int = 0

    def __post_init__(self) -> None:
        self.ways = min(self.cell.members, max(AT_ONCE, self.cell.of_group))
        way = 0
        for number in range(self.cell.groups):
            said = encode_subscription(
                Subscription(3, tuple(slice_of_group(self.cell, number).topics(self.cell.partitions)))
            )
            seats = []
            for _ in range(self.cell.of_group):
                seats.append(GrowthMember(f"growth-{number}", said, way % self.ways))
                way += 1
            self.groups.append(GrowthGroup(number, seats))

    @property
    def seats(self) -> list[GrowthMember]:
        return [seat for group in self.groups for seat in group.seats]

    def waves(self) -> Iterator[list[GrowthGroup]]:
        """Groups that fit onto the connections together: a parked request holds up what comes behind it on its own."""
        fitting = max(1, self.ways // self.cell.of_group)
        for first in range(0, len(self.groups), fitting):
            yield self.groups[first : first + fitting]

    async def join(self) -> None:
        for wave in self.waves():
            await asyncio.gather(*(self._enter(group, seat) for group in wave for seat in group.seats))

    async def rebalance(self) -> None:
        """Each group's leader joins again and deals all partitions out anew; the others hear of it when they beat."""
        for wave in self.waves():
            for group in wave:
                group.turned += 1
            await asyncio.gather(*(self._called_back(group) for group in wave))

    async def beat(self, times: int) -> None:
        """So many heartbeats, of one member after the other."""
        seats = self.seats
        left = iter(range(times))

        async def beat_on() -> None:
            for number in left:
                code = await self.door.beat(seats[number % len(seats)])
                check_healthy("Heartbeat", code, ErrorCode.NONE)

        await asyncio.gather(*(beat_on() for _ in range(BEATING)))

    async def _enter(self, group: GrowthGroup, seat: GrowthMember) -> None:
        while True:
            joined = await self.door.join(seat)
            seat.member_id = joined.member_id or seat.member_id
            if joined.code in AGAIN:
                continue
            check_healthy("JoinGroup", joined.code, ErrorCode.NONE)
            code = await self.door.sync(seat, joined, self._dealt(group, joined))
            if code in AGAIN:
                continue
            check_healthy("SyncGroup", code, ErrorCode.NONE)
            seat.generation = joined.generation
            if seat.member_id == joined.leader:
                group.seats.remove(seat)
                group.seats.insert(0, seat)
            return

    async def _called_back(self, group: GrowthGroup) -> None:
        leader, *others = group.seats
        leading = asyncio.create_task(self._enter(group, leader))
        await asyncio.sleep(0)  # It asks before anybody else beats.
        await asyncio.gather(leading, *(self._follow(group, seat) for seat in others))

    async def _follow(self, group: GrowthGroup, seat: GrowthMember) -> None:
        while (code := await self.door.beat(seat)) != ErrorCode.REBALANCE_IN_PROGRESS:
            check_healthy("Heartbeat", code, ErrorCode.NONE)
        await self._enter(group, seat)

    def _dealt(self, group: GrowthGroup, joined: GrowthJoinAnswer) -> dict[str, bytes]:
        if joined.leader != joined.member_id:
            return {}
        pieces = slice_of_group(self.cell, group.number).pieces(len(joined.members), group.turned, self.cell.partitions)
        return {who: encode_assignment(piece) for who, piece in zip(joined.members, pieces, strict=True)}


def check_healthy(what: str, code: ErrorCode, expected: ErrorCode) -> None:
    if code is not expected:
        raise BenchFailed(f"{what} was answered {code.name}; no healthy group does that")


# Their calls, by either protocol
# -------------------------------

CONNECTING = 100
"""Connections that are being made at once."""
CALLS_EACH = 100
"""Members on a connection of gRPC. A node takes 256 calls there at once, and a call that was answered counts a little
longer."""


class KafkaMemberCalls:
    """A connection for each member that is on its way: a JoinGroup that waits holds up all that comes behind it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lines: list[LoadConnection] = []

    async def open(self, ways: int) -> None:
        while missing := ways - len(self._lines):
            self._lines += await asyncio.gather(
                *(LoadConnection.to(self._address) for _ in range(min(missing, CONNECTING)))
            )

    async def join(self, seat: GrowthMember) -> GrowthJoinAnswer:
        request = join_request(seat.group_id, seat.member_id, seat.subscription, SESSION_MS, REBALANCE_MS)
        told = await self._lines[seat.way].send_request("JoinGroup", JOIN, request)
        members = [each.member_id for each in told.members]
        return GrowthJoinAnswer(ErrorCode(told.error_code), told.member_id, told.generation_id, told.leader, members)

    async def sync(self, seat: GrowthMember, joined: GrowthJoinAnswer, shares: Mapping[str, bytes]) -> ErrorCode:
        request = sync_request(seat.group_id, seat.member_id, joined.generation, shares)
        return ErrorCode((await self._lines[seat.way].send_request("SyncGroup", SYNC, request)).error_code)

    async def beat(self, seat: GrowthMember) -> ErrorCode:
        request = heartbeat_request(seat.group_id, seat.member_id, seat.generation)
        return ErrorCode((await self._lines[seat.way].send_request("Heartbeat", BEAT, request)).error_code)

    async def close(self) -> None:
        for line in self._lines:
            line.close()


class GrpcMemberCalls:
    """Calls of many members share a connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wires: list[GrpcConnection] = []

    async def open(self, ways: int) -> None:
        self._wires = [GrpcConnection(self._address) for _ in range(-(-ways // CALLS_EACH))]

    async def join(self, seat: GrowthMember) -> GrowthJoinAnswer:
        request = pb.JoinGroupRequest(
            group_id=seat.group_id,
            member_id=seat.member_id,
            client_id="bench",
            protocol_type="consumer",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=[pb.JoinGroupProtocol(name=PROTOCOL, metadata=seat.subscription)],
        )
        told = await self._call_method(seat, "JoinGroup", request, pb.JoinGroupResponse)
        members = [each.member_id for each in told.members]
        return GrowthJoinAnswer(ErrorCode(told.error_code), told.member_id, told.generation_id, told.leader, members)

    async def sync(self, seat: GrowthMember, joined: GrowthJoinAnswer, shares: Mapping[str, bytes]) -> ErrorCode:
        request = pb.SyncGroupRequest(group_id=seat.group_id, generation_id=joined.generation, member_id=seat.member_id)
        request.assignments.extend(
            pb.SyncGroupAssignment(member_id=who, assignment=blob) for who, blob in shares.items()
        )
        return ErrorCode((await self._call_method(seat, "SyncGroup", request, pb.SyncGroupResponse)).error_code)

    async def beat(self, seat: GrowthMember) -> ErrorCode:
        request = pb.HeartbeatRequest(group_id=seat.group_id, member_id=seat.member_id, generation_id=seat.generation)
        return ErrorCode((await self._call_method(seat, "Heartbeat", request, pb.HeartbeatResponse)).error_code)

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()

    async def _call_method(self, seat: GrowthMember, method: str, request: Message, answer: type[Response]) -> Response:
        try:
            return await self._wires[seat.way % len(self._wires)].call(method, request, answer)
        except grpc.aio.AioRpcError as error:
            raise BenchFailed(
                f"{method} of {seat.group_id} was not answered: {error.code().name}, {error.details()}"
            ) from None


# One cell
# --------

CELL_S: Final = 150.0
"""What one cell may take, all told."""
MEMORY_MB: Final = 4_096.0
"""What the node may have resident."""
LOOK_S: Final = 0.25
PHASES: Final = ("start", "topics", "join", "rebalance", "heartbeats", "idle", "restart")
IDLE_S = 2.0
BEATS = {"kafka": 20_000, "grpc": 3_000}
SPARE_FILES: Final = 500
"""Descriptors that a process has besides its connections."""
WAITING = 100_000
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.max.session.timeout.ms": "1800000",
    "grpc.max.pending.calls": str(WAITING),
    "kafka.listeners": "127.0.0.1:0",
    "max.parked.requests": str(WAITING),
    "max.partitions": "200000",
    "queued.max.requests": str(WAITING),
}
"""Where the defaults refuse that so many wait at once, or are there, they are raised."""


class PhaseCost(NamedTuple):
    """What one part of a cell took. Memory is the node's, when the phase was over."""

    name: str
    wall_s: float
    cpu_s: float
    resident_mb: float
    units: int
    """Heartbeats, where the phase is made of them; else 0."""


def reason_impossible(cell: GrowthCell) -> str:
    """Why this machine cannot run the cell; "" where it can."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = cell.of_group + SPARE_FILES
    if cell.door != GRPC and most != resource.RLIM_INFINITY and needed > most:
        return (
            f"each member of a group has a connection of its own at this door, and a process may have {most:,} open "
            f"files here (ulimit -n): {needed:,} are needed"
        )
    return ""


def run_cell(cell: GrowthCell, home: str) -> Iterator[PhaseCost]:
    """All phases, each as it is over. Raises BenchFailed for a bound that was reached, and says in which phase."""
    clock = Stopwatch()
    crowds: list[GrowthCrowd] = []
    with pinned(LOAD_CORE), asyncio.Runner(loop_factory=loops()) as runner:
        watch = Stopwatch()
        with run_node(home, SETTINGS) as server:
            yield PhaseCost("start", watch.read(), server.cpu_s(), mb(server), 0)
            story = load_cell(cell, server, clock, crowds)
            while phase := runner.run(iterate_story(story)):
                yield phase
            server.kill()
        watch = Stopwatch()
        with run_node(home, SETTINGS) as server:
            runner.run(run_bounded(lambda: wait_until_loaded(cell, server, crowds[0]), "restart", server, clock))
            yield PhaseCost("restart", watch.read(), server.cpu_s(), mb(server), 0)


def loops() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def iterate_story(story: AsyncIterator[PhaseCost]) -> PhaseCost | None:
    return await anext(story, None)


async def load_cell(
    cell: GrowthCell, server: ServerProcess, clock: Stopwatch, crowds: list[GrowthCrowd]
) -> AsyncIterator[PhaseCost]:
    """Topics, members, a rebalance of every group, heartbeats, peace."""
    crowd = GrowthCrowd(cell, open_calls(cell, server))
    crowds.append(crowd)
    beats = BEATS[cell.door]

    async def phase(name: str, work: Callable[[], Awaitable[None]], units: int = 0) -> PhaseCost:
        watch, before = Stopwatch(), server.cpu_s()
        await run_bounded(work, name, server, clock)
        return PhaseCost(name, watch.read(), server.cpu_s() - before, mb(server), units)

    yield await phase("topics", lambda: create_topics(cell, server))
    await crowd.door.open(crowd.ways)
    yield await phase("join", crowd.join)
    yield await phase("rebalance", crowd.rebalance)
    yield await phase("heartbeats", lambda: crowd.beat(beats), beats)
    yield await phase("idle", lambda: asyncio.sleep(IDLE_S))
    await crowd.door.close()


async def run_bounded(work: Callable[[], Awaitable[None]], name: str, server: ServerProcess, clock: Stopwatch) -> None:
    """Raises BenchFailed where the cell's time or the node's memory came to its end."""
    working = asyncio.ensure_future(work())
    try:
        while not working.done():
            await asyncio.wait([working], timeout=LOOK_S)
            if working.done():
                break
            if clock.read() > CELL_S:
                raise BenchFailed(f"stopped in {name!r}: {CELL_S:.0f} s were over")
            if (used := mb(server)) > MEMORY_MB:
                raise BenchFailed(f"stopped in {name!r}: the node had {used:,.0f} MB, of {MEMORY_MB:,.0f} it may have")
        await working
    finally:
        working.cancel()


async def create_topics(cell: GrowthCell, server: ServerProcess) -> None:
    line = await LoadConnection.to(kafka_address(server))
    stranger = LargeRequestClient(line)
    for number, first in enumerate(range(0, cell.partitions, PARTITIONS)):
        await stranger.create(f"growth-{number}", min(PARTITIONS, cell.partitions - first))()
    stranger.check_answers()
    line.close()


async def wait_until_loaded(cell: GrowthCell, server: ServerProcess, crowd: GrowthCrowd) -> None:
    """The last member of the last group is known, in its generation: its shard has been read."""
    way = open_calls(cell, server)
    await way.open(1)
    seat = crowd.groups[-1].seats[-1]
    seat.way = 0
    check_healthy("Heartbeat after a restart", await way.beat(seat), ErrorCode.NONE)
    await way.close()


def open_calls(cell: GrowthCell, server: ServerProcess) -> KafkaMemberCalls | GrpcMemberCalls:
    return GrpcMemberCalls(server.address) if cell.door == GRPC else KafkaMemberCalls(kafka_address(server))


def mb(server: ServerProcess) -> float:
    return server.resident_bytes() / (1 << 20)


# The suite
# ---------

BENCH: Final = "growth"
SUITE_S: Final = 600.0
"""All cells together; those for which nothing is left are left out, and say so."""
GOAL: Final = 0.67
"""At most linear: 1 is as the load grew, less is worse. A machine's pace changes by a third."""
SLACK_S, SLACK_MB = 0.25, 20.0
"""What is below this in the larger cell is not judged: a start alone moves by as much."""
IN_MEMORY, ROOM = Path("/dev/shm"), 4 << 30
MEMORY: Final = {"rebalance": "memory after it", "restart": "memory after a restart"}
"""Behind which phases it is told, and how."""

Rows = Iterator[dict[str, Any]]
Found = dict[GrowthCell, dict[str, PhaseCost]]


def run(only: str = "", *, small: bool = False) -> Rows:
    """Measure the cells of whose cases one contains `only`, and tell those cases."""
    cells = [
        cell for cell in (small_cells() if small else all_cells()) if any(only in case for case in cell_cases(cell))
    ]
    clock, found = Stopwatch(), Found()
    for cell in cells:
        for row in measure_cell(cell, clock, found):
            if only in row["case"]:
                yield row


def cell_cases(cell: GrowthCell) -> list[str]:
    return [f"{cell.label}: {what}" for what in (*PHASES, *MEMORY.values())]


def measure_cell(cell: GrowthCell, clock: Stopwatch, found: Found) -> Rows:
    why = reason_impossible(cell)
    if clock.read() > SUITE_S - CELL_S / 3:
        why = f"{clock.read():.0f} of {SUITE_S:.0f} s were over"
    if why:
        yield growth_row(cell, "left out", 0.0, "", why, None, ok=True)
        return
    phases = found[cell] = {}
    home = tempfile.mkdtemp(prefix="muster-bench-", dir=data_folder())
    try:
        for phase in run_cell(cell, home):
            phases[phase.name] = phase
            yield from phase_rows(cell, phase, found)
    except (BenchFailed, OSError) as failure:
        yield growth_row(cell, "stopped", 0.0, "", str(failure) or "an answer took too long", None, ok=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def data_folder() -> str | None:
    """Where the data are: in memory where there is room for them. A disk takes minutes to remove 300,000 files."""
    there = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM
    return str(IN_MEMORY) if there else None


def phase_rows(cell: GrowthCell, phase: PhaseCost, found: Found) -> Rows:
    """Processor time of the phase, and what its members added to the node's memory."""
    yield compare_with_smaller(cell, phase, phase.name, "s CPU", phase_cost, SLACK_S, found)
    if phase.name in MEMORY:
        yield compare_with_smaller(cell, phase, MEMORY[phase.name], "MB", added_mb, SLACK_MB, found)


def phase_cost(phases: dict[str, PhaseCost], name: str) -> float:
    return phases[name].cpu_s


def added_mb(phases: dict[str, PhaseCost], name: str) -> float:
    return phases[name].resident_mb - phases["start"].resident_mb


def compare_with_smaller(
    cell: GrowthCell,
    phase: PhaseCost,
    what: str,
    unit: str,
    value: Callable[[dict[str, PhaseCost], str], float],
    slack: float,
    found: Found,
) -> dict[str, Any]:
    """A cell's figure against that of the smaller one, times as much as it is larger."""
    mine = value(found[cell], phase.name)
    other = next_smaller_cell(cell, [each for each in found if phase.name in found[each]])
    if other is None or phase.name == "start":
        return growth_row(cell, what, mine, unit, "", phase, ok=True)
    peer, factor = other
    grown = 1.0 if phase.units else factor  # As many heartbeats in every cell, and one is to cost the same.
    expected = max(value(found[peer], phase.name) * grown, slack)
    ratio = expected / mine if mine > slack else max(1.0, expected / max(mine, 1e-9))
    by = f"{grown:g} times " if grown > 1 else ""
    return growth_row(cell, what, mine, unit, by + peer.label, phase, expected, ratio, ok=ratio >= GOAL)


def growth_row(
    cell: GrowthCell,
    what: str,
    value: float,
    unit: str,
    peer: str,
    phase: PhaseCost | None,
    peer_value: float = 0.0,
    ratio: float = 1.0,
    *,
    ok: bool,
) -> dict[str, Any]:
    """A row as of every suite, with the cell and the phase as they were found."""
    return {
        "bench": BENCH,
        "case": f"{cell.label}: {what}",
        "value": round(value, 3),
        "unit": unit,
        "peer": peer,
        "peer_value": round(peer_value, 3),
        "ratio": round(ratio, 3),
        "goal": GOAL,
        "ok": ok,
        "cell": asdict(cell),
        "phase": phase._asdict() if phase else None,
    }


def cells_of(rows: Sequence[dict[str, Any]]) -> "dict[GrowthCell, dict[str, Any]]":
    """What rows tell of each cell: phases by name, and under "why" why there are no more."""
    found: dict[GrowthCell, dict[str, Any]] = {}
    for row in rows:
        about = found.setdefault(GrowthCell(**row["cell"]), {})
        if row["phase"]:
            about[row["phase"]["name"]] = PhaseCost(**row["phase"])
        else:
            about["why"] = row["peer"]
    return found
