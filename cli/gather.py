"""Facts of a running node, asked by the admin client: a handful of calls, and three more for each group."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from muster.client.aio import AsyncAdmin
from muster.client.described import GroupDescription, GroupListing, MemberDescription, NodeStatus
from muster.client.errors import ClientError, GroupNotFound, Refused, Unreachable
from muster.coordinator.observability.doctor.facts import (
    DoctorFacts,
    ExaminedGroup,
    ExaminedMember,
    ExaminedNode,
    ExaminedPartition,
    ExaminedPosition,
    NodeTrouble,
    Positions,
)
from muster.coordinator.observability.doctor.holding import drained_ids, override_lines

AT_ONCE = 16
"""Groups that are asked about at the same time."""
LEDGER_ENTRIES = 100
GROUP_ID_NOT_FOUND = 69

Notice = Callable[[str], None]
"""Gets a sentence on what could not be looked at."""


async def gather_facts(admin: AsyncAdmin, names: Sequence[str], apart_s: float, notice: Notice) -> DoctorFacts:
    """Everything the rules want to know of these groups, or of all of them and the node when none is named.

    Positions are looked at twice, `apart_s` seconds apart (0: once), where members have something to do.
    Raises GroupNotFound for a name that no group has. What cannot be looked at is left out, with a notice.
    """
    asked_s = time.time()
    status = await admin.node_status()
    answered_s = time.time()
    ahead_ms = None if status.now_ms is None else status.now_ms - int((asked_s + answered_s) * 500)
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
    settings = await admin.describe_node()
    groups = await gather_groups(admin, descriptions, listings, partitions, notice)
    if apart_s > 0:
        groups = await gather_second_positions(admin, groups, {d.group_id: d for d in descriptions}, apart_s)
    now_ms = status.now_ms if status.now_ms is not None else int(time.time() * 1000)
    now_ms += int((time.time() - answered_s) * 1000)
    return DoctorFacts(now_ms, make_node(status, settings, ahead_ms), tuple(groups), partitions, tuple(untold))


async def gather_groups(
    admin: AsyncAdmin,
    descriptions: Iterable[GroupDescription],
    listings: Mapping[str, GroupListing],
    partitions: Mapping[str, int],
    notice: Notice,
) -> list[ExaminedGroup]:
    """Ledger and positions of each; a group that went meanwhile, or cannot be read, is left out and named.

    What operators hold is asked where a partition has no owner or a member nothing: elsewhere it would explain nothing.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def one(described: GroupDescription) -> ExaminedGroup | None:
        async with places:
            try:
                ledger = await admin.explain(
                    described.group_id, limit=LEDGER_ENTRIES, coordinator=described.coordinator
                )
                positions = await fetch_positions(admin, described)
                group = make_group(described, find_group_type(listings, described.group_id))
                if group.stable and (group.free(partitions) or not all(member.owned for member in group.members)):
                    holds = await admin.group_holds(group.id)
                    group = replace(group, held=override_lines(holds), drained=drained_ids(group.members, holds))
            except Unreachable:
                raise
            except ClientError as error:
                notice(f"group {described.group_id!r} could not be looked at: {error}")
                return None
        return replace(group, ledger=tuple(ledger), positions=positions)

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


def has_waiting_records(group: ExaminedGroup) -> bool:
    """Whether a member owns a partition in which records wait."""
    return any(tp in group.positions and group.positions[tp].lag for tp in group.owners())


async def fetch_positions(admin: AsyncAdmin, described: GroupDescription) -> Positions:
    return {
        ExaminedPartition(*lag.partition): ExaminedPosition(
            lag.committed, lag.log_start, lag.log_end, lag.committed_at_ms
        )
        for lag in await admin.group_lag(described.group_id, description=described)
    }


def make_group(described: GroupDescription, group_type: str) -> ExaminedGroup:
    return ExaminedGroup(
        described.group_id,
        described.state,
        group_type,
        described.assignor,
        described.generation,
        described.leader,
        tuple(map(make_member, described.members)),
        described.waiting_for,
        described.waiting_until_ms,
        kept_out=described.kept_out,
    )


def find_group_type(listings: Mapping[str, GroupListing], group: str) -> str:
    """Nothing for one that was not told of a moment ago."""
    return listings[group].group_type if group in listings else ""


def make_member(described: MemberDescription) -> ExaminedMember:
    return ExaminedMember(
        described.member_id,
        described.client_id,
        described.client_host,
        described.client_software,
        described.group_instance_id,
        described.topics,
        tuple(ExaminedPartition(*tp) for tp in described.assignment),
        described.session_timeout_ms,
        described.rebalance_timeout_ms,
        described.heartbeat_interval_ms,
        described.offered_assignors,
        described.refused_commits,
        described.refused_commit_code,
        described.taken_over,
    )


def make_node(status: NodeStatus, settings: Mapping[str, str], ahead_ms: int | None) -> ExaminedNode:
    up = status.now_ms is not None and status.started_at_ms is not None
    return ExaminedNode(
        tuple(NodeTrouble(c.name, c.sentence, c.since_ms, c.count) for c in status.conditions),
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
    )
