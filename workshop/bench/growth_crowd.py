"""Members of many groups in this process, as many at once as have connections: they join, are called back, and beat."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.errors import ErrorCode
from muster.workshop.bench.cells import GrowthCell, slice_of_group
from muster.workshop.bench.processes import BenchFailed

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
