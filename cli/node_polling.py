"""Facts of a running node, fetched by the admin client for `muster doctor` and `muster top`.

A look at the node costs a handful of calls, and three more for each group. `muster top` repeats it: what costs calls
for each group is fetched for the groups on the screen and for some others in turn. Successive looks give the trend
of a group's lag and the time to go.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from muster.client.aio import AsyncAdmin
from muster.client.described import GroupDescription, GroupListing, NodeStatus
from muster.client.errors import AuthorizationError, ClientError, GroupNotFound, Refused, Unreachable
from muster.client.types import TopicPartition
from muster.coordinator.observability.doctor.client_rules import has_measurable_beats
from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    ExaminedNode,
    NodeTrouble,
    Positions,
    drained_ids,
    override_lines,
)

# Facts for the doctor's rules
# ----------------------------

AT_ONCE = 16
"""Groups that are asked about at the same time."""
LEDGER_ENTRIES = 100
HOUR_MS = 3_600_000
REBALANCED_OFTEN = 3
"""So many rebalances in the last hour: the node's stalls, and the moves of the coordinator, may be their cause."""
BEATS_EVERY_S = 0.5
BEATS_OF_GROUPS = 50
"""So many groups with short sessions are watched for heartbeats."""
GROUP_ID_NOT_FOUND = 69

Notice = Callable[[str], None]
"""Gets a sentence on what could not be looked at."""


async def gather_facts(admin: AsyncAdmin, names: Sequence[str], apart_s: float, notice: Notice) -> DoctorFacts:
    """Everything the rules want to know of these groups, or of all of them and the node when none is named.

    Positions are looked at twice, `apart_s` seconds apart (0: once), where members have something to do.
    Raises GroupNotFound for a name that no group has. What cannot be looked at is left out, with a notice.
    """
    asked_s = time.time()
    status = await fetch_node_status(admin)
    answered_s = time.time()
    ahead_ms = None if status is None or status.now_ms is None else status.now_ms - int((asked_s + answered_s) * 500)
    untold: list[str] = []
    listings = {listing.group_id: listing for listing in await admin.list_groups(missing=untold.append)}
    for name in names if not untold else ():
        if name not in listings:
            raise GroupNotFound(GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND", f"there is no group {name!r}")
    wanted = list(dict.fromkeys(names)) or list(listings)
    descriptions = await admin.describe_groups(wanted)
    found = {described.group_id for described in descriptions}
    for name in [name for name in wanted if name not in found]:
        notice(f"group {name!r} could not be looked at: it is gone, or its coordinator cannot tell of it right now")
    partitions = await admin.list_topics(include_internal=True)
    node = await gather_node(admin, status, ahead_ms, notice)
    now_ms = (status and status.now_ms) or int(answered_s * 1000)
    groups = await gather_groups(admin, descriptions, listings, partitions, now_ms, notice)
    if apart_s > 0:
        measuring = gather_beats(admin, groups, apart_s)
        looking = gather_second_positions(admin, groups, {d.group_id: d for d in descriptions}, apart_s)
        beats, groups = await asyncio.gather(measuring, looking)
        groups = [replace(group, beats=beats.get(group.id, {})) for group in groups]
    now_ms += int((time.time() - answered_s) * 1000)
    return DoctorFacts(now_ms, node, tuple(groups), partitions, tuple(untold))


async def gather_node(
    admin: AsyncAdmin, status: NodeStatus | None, ahead_ms: int | None, notice: Notice
) -> ExaminedNode:
    """The node as far as whoever asks may see it."""
    if status is None:
        notice("the node itself could not be looked at: that needs DESCRIBE on the cluster")
        return ExaminedNode()
    try:
        return make_node(status, await admin.describe_node(), ahead_ms)
    except AuthorizationError:
        notice("the node's settings could not be looked at: that needs DESCRIBE_CONFIGS on the cluster")
        return make_node(status, {}, ahead_ms)


async def fetch_node_status(admin: AsyncAdmin) -> NodeStatus | None:
    """None for who may see groups only."""
    try:
        return await admin.node_status()
    except AuthorizationError:
        return None


async def gather_groups(
    admin: AsyncAdmin,
    descriptions: Iterable[GroupDescription],
    listings: Mapping[str, GroupListing],
    partitions: Mapping[str, int],
    now_ms: int,
    notice: Notice,
    entries: int = LEDGER_ENTRIES,
    snapshots: bool = False,
    commits: bool = False,
) -> list[ExaminedGroup]:
    """Ledger and positions of each; a group that went meanwhile, or cannot be read, is left out and named.

    `entries`: of the ledger, the last so many, 0 for all; `snapshots`: with the assignors' input; `commits`: with
    how positions moved. What operators hold
    is asked where a partition has no owner or a member nothing, and what the node did where the group rebalanced often:
    elsewhere it would explain nothing.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def one(described: GroupDescription) -> ExaminedGroup | None:
        async with places:
            try:
                ledger = await admin.explain(
                    described.group_id,
                    limit=entries,
                    include_snapshots=snapshots,
                    coordinator=described.coordinator,
                )
                positions = await fetch_positions(admin, described)
                group = ExaminedGroup(described, find_group_type(listings, described.group_id), ledger=tuple(ledger))
                if commits:
                    group = replace(
                        group, commits=await admin.commit_history(group.id, coordinator=described.coordinator)
                    )
                if len(group.lately(now_ms, HOUR_MS)) >= REBALANCED_OFTEN:
                    stalls, moves = await admin.stalls(group.id), await admin.moves(group.id)
                    group = replace(group, stalls=tuple(stalls), moves=tuple(moves))
                if group.stable and (group.free(partitions) or not all(member.assignment for member in group.members)):
                    holds = await admin.group_holds(group.id)
                    group = replace(group, held=override_lines(holds), drained=drained_ids(group.members, holds))
            except Unreachable:
                raise
            except ClientError as error:
                notice(f"group {described.group_id!r} could not be looked at: {error}")
                return None
        return replace(group, positions=positions)

    return [group for group in await asyncio.gather(*map(one, descriptions)) if group is not None]


async def gather_second_positions(
    admin: AsyncAdmin, groups: Sequence[ExaminedGroup], descriptions: Mapping[str, GroupDescription], apart_s: float
) -> list[ExaminedGroup]:
    """The same groups with their positions as they are a moment later, where something waits for a member."""
    places, began_s = asyncio.Semaphore(AT_ONCE), time.monotonic()
    if not any(has_waiting_records(group) for group in groups):
        return list(groups)
    await asyncio.sleep(apart_s)

    async def one(group: ExaminedGroup) -> ExaminedGroup:
        if not has_waiting_records(group):
            return group
        async with places:
            try:
                later = await fetch_positions(admin, descriptions[group.id])
            except Refused:
                return group
            apart_ms = int((time.monotonic() - began_s) * 1000)
            return replace(group, earlier=group.positions, positions=later, apart_ms=apart_ms)

    return list(await asyncio.gather(*map(one, groups)))


async def gather_beats(admin: AsyncAdmin, groups: Sequence[ExaminedGroup], apart_s: float) -> dict[str, dict[str, int]]:
    """Group -> member -> the longest time between two heartbeats (ms), where that is worth measuring.

    Short sessions are watched: their members are asked about again and again for `apart_s` seconds. A member of which
    two heartbeats were not seen is left out.
    """
    watched = [group.id for group in groups if group.stable and any(map(has_measurable_beats, group.members))]
    heard: dict[tuple[str, str], list[int]] = {}
    until_s = time.monotonic() + apart_s
    while watched:
        try:
            described = await admin.describe_groups(watched[:BEATS_OF_GROUPS])
        except Refused:
            break
        for group in described:
            for member in group.members:
                times = heard.setdefault((group.group_id, member.member_id), [])
                if member.last_heard_ms is not None and member.last_heard_ms not in times:
                    times.append(member.last_heard_ms)
        if time.monotonic() >= until_s:
            break
        await asyncio.sleep(min(BEATS_EVERY_S, apart_s))
    found: dict[str, dict[str, int]] = {}
    for (group_id, member_id), times in heard.items():
        if len(times) > 1:
            found.setdefault(group_id, {})[member_id] = max(later - sooner for sooner, later in pairwise(times))
    return found


def has_waiting_records(group: ExaminedGroup) -> bool:
    """Whether a member owns a partition in which records wait."""
    return any(tp in group.positions and group.positions[tp].lag for tp in group.owners())


async def fetch_positions(admin: AsyncAdmin, described: GroupDescription) -> Positions:
    return {lag.partition: lag for lag in await admin.group_lag(described.group_id, description=described)}


def find_group_type(listings: Mapping[str, GroupListing], group: str) -> str:
    """Nothing for one that was not told of a moment ago."""
    return listings[group].group_type if group in listings else ""


def make_node(status: NodeStatus, settings: Mapping[str, str], ahead_ms: int | None) -> ExaminedNode:
    up = status.now_ms is not None and status.started_at_ms is not None
    return ExaminedNode(
        tuple(NodeTrouble(c.name, c.sentence, c.since_ms, c.count, c.warning) for c in status.conditions),
        settings,
        ahead_ms,
        status.open_descriptors,
        status.descriptor_limit,
        status.resident_bytes,
        status.memory_bytes,
        status.disk_free_bytes,
        status.disk_total_bytes,
        status.loop_late_ms,
        status.stalls,
        status.stalled_ms,
        (status.now_ms or 0) - (status.started_at_ms or 0) if up else None,
        tuple((each.door, each.address, each.count, each.why) for each in status.failed_logins),
    )


# Groups at one moment, and the trend of their lag
# ------------------------------------------------

KEPT = 60
"""Looks at one group that are kept."""
TREND_S = 60.0
"""How far back the trend looks."""


@dataclass(slots=True)
class LagTrail:
    """The lag of one group in its last looks."""

    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, at_s: float, lag: int) -> None:
        self.seen.append((at_s, lag))

    def trend(self) -> float | None:
        """Records a second by which the lag grew over the last minute; None after one look."""
        if len(self.seen) < 2:
            return None
        end_s, end = self.seen[-1]
        start_s, start = next((look for look in self.seen if end_s - look[0] <= TREND_S), self.seen[-2])
        return (end - start) / (end_s - start_s) if end_s > start_s else None

    def eta_s(self) -> float | None:
        """When the lag will be gone if it goes on falling like this; None when it does not."""
        trend = self.trend()
        if not self.seen or trend is None:
            return None
        lag = self.seen[-1][1]
        return 0.0 if lag == 0 else lag / -trend if trend < 0 else None


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group as the list shows it. None: not known yet."""

    group: ExaminedGroup
    partitions: Mapping[str, int]
    lag: int | None = None
    trend: float | None = None
    eta_s: float | None = None
    rebalances: int | None = None
    """In the last hour, as far as the ledger reaches back."""

    @property
    def unowned(self) -> int:
        """Partitions of subscribed topics that nobody has; none in a group without members, which wants none."""
        if not self.group.members:
            return 0
        owned = self.group.owners()
        return sum(
            TopicPartition(topic, number) not in owned
            for topic in self.group.by_topic()
            for number in range(self.partitions.get(topic, 0))
        )


@dataclass(frozen=True, slots=True)
class GroupsPicture:
    """All groups at one moment of the node's clock."""

    now_ms: int
    lines: tuple[GroupLine, ...] = ()
    untold: tuple[str, ...] = ()
    """Why groups are missing, a sentence for each node or part of one that cannot tell of its own."""


def rebalances_in_last_hour(group: ExaminedGroup, now_ms: int) -> int:
    return len(group.lately(now_ms, HOUR_MS))


# Repeated polling
# ----------------

OTHERS = 50
"""Groups off the screen that are looked at each time, so that all have their turn."""
LEDGER_AGE_S = 30.0
"""A ledger is read again when its group's generation is another, or after so long."""


class NodePoller:
    """Remembers what the last looks saw. All of it lives on one event loop."""

    def __init__(self, admin: AsyncAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, ExaminedGroup] = {}
        self._trails: dict[str, LagTrail] = {}
        self._ledgers: dict[str, tuple[int, float]] = {}
        """Group -> the generation and the moment at which its ledger was read."""
        self._turn = 0

    async def poll_node(self, wanted: Iterable[str] | None) -> GroupsPicture:
        """`wanted`: the groups on the screen; None: every group is looked at closely. Raises ClientError where nobody
        tells of any group."""
        status = await fetch_node_status(self._admin)
        untold: list[str] = []
        told = await self._admin.list_groups(missing=untold.append)
        if untold and not told:
            raise ClientError(untold[0])
        listings = {listing.group_id: listing.group_type for listing in told}
        described = await self._admin.describe_groups(list(listings))
        partitions = await self._admin.list_topics(include_internal=True)
        now_ms = (status and status.now_ms) or int(time.time() * 1000)
        groups = {each.group_id: ExaminedGroup(each, listings[each.group_id]) for each in described}
        for name in self._known.keys() - groups.keys():
            self._forget(name)
        close = self._chosen(list(groups), wanted)
        places = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._closely(groups[d.group_id], d, places) for d in described if d.group_id in close))
        lines = (self._line(group, partitions, now_ms) for group in groups.values())
        return GroupsPicture(now_ms, tuple(lines), tuple(untold))

    def _chosen(self, names: list[str], wanted: Iterable[str] | None) -> set[str]:
        if wanted is None or len(names) <= OTHERS:
            return set(names)
        start = self._turn % len(names)
        self._turn = start + OTHERS
        return {*wanted, *(names + names)[start : start + OTHERS]}

    async def _closely(self, group: ExaminedGroup, described: GroupDescription, places: asyncio.Semaphore) -> None:
        """Positions, and the ledger where something may have happened. A group that went meanwhile stays as it was."""
        known = self._known.get(group.id, group)
        async with places:
            try:
                positions = await fetch_positions(self._admin, described)
                ledger = known.ledger
                generation, read_s = self._ledgers.get(group.id, (-1, 0.0))
                if generation != group.generation or self._clock() - read_s > LEDGER_AGE_S:
                    ledger = tuple(await self._admin.explain(group.id, limit=LEDGER_ENTRIES))
                    self._ledgers[group.id] = group.generation, self._clock()
            except Unreachable:
                raise
            except ClientError:
                return
        self._known[group.id] = replace(group, positions=positions, ledger=ledger)
        if described.hidden_topics:
            return  # the sum over a part of its topics is no lag
        lag = sum(position.lag for position in positions.values())
        trail = self._trails.setdefault(group.id, LagTrail())
        if bool(known.members) != bool(group.members):
            trail.seen.clear()  # of two times, with members and without, no trend is made
        trail.add(self._clock(), lag)

    def _line(self, group: ExaminedGroup, partitions: dict[str, int], now_ms: int) -> GroupLine:
        known = self._known.get(group.id)
        if known is None:
            return GroupLine(group, partitions)
        trail = self._trails.get(group.id)
        merged = replace(group, positions=known.positions, ledger=known.ledger)
        rebalances = rebalances_in_last_hour(known, now_ms)
        if trail is None:
            return GroupLine(merged, partitions, rebalances=rebalances)
        lag = trail.seen[-1][1]
        if not group.members:
            return GroupLine(merged, partitions, lag, None, 0.0 if lag == 0 else None, rebalances)
        return GroupLine(merged, partitions, lag, trail.trend(), trail.eta_s(), rebalances)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._trails.pop(name, None)
        self._ledgers.pop(name, None)
