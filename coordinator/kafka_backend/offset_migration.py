"""Moves committed offsets between Muster and the upstream's own coordinator: adopt, release and mirror.

Adopting and releasing (KB-M1, KB-M3) need a group without members on either side: a member would not notice the
move. The mirror (KB-M4) commits upstream what groups commit here, for tools that read it there and for the way
back: best effort, after it counts here, and for each group seldom. Which groups have committed is seen in what goes
into the state log; what they have committed is fetched as a client would, so that nothing leaves that a crash could
undo.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from muster.assignors.api import TopicPartition
from muster.coordinator.edge.background_tasks import BackgroundTask
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.group_requests import UNKNOWN_TOPIC, UpstreamOffset
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, UpstreamRefused, describe_code
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

# Adopt and release (KB-M1, KB-M3)
# --------------------------------

ADOPTED: Final = "adopted from the upstream Kafka"
"""Why positions are committed here that were taken over by hand: it is not done again by itself."""

RELEASED: Final = "released to the upstream Kafka"
"""Why a group is deleted here that was given back: it may come again, with what it has there."""

NAMED: Final = 10
"""Members that are named in one sentence."""


class MoveBlocked(Exception):
    """It cannot be done now; the text says who or what is in the way."""


class NoSuchUpstreamGroup(Exception):
    """The upstream has no such group; the text says so."""


class LocalGroups(Protocol):
    """The groups of this Muster, as far as they are asked here."""

    async def members(self, group: str) -> Sequence[str]:
        """Who is in it, for people."""

    async def positions(self, group: str) -> Mapping[TopicPartition, UpstreamOffset]:
        """All that it has committed."""

    async def commit(self, group: str, positions: Mapping[TopicPartition, UpstreamOffset]) -> None:
        """For a group without members. Raises what it raises."""

    async def delete(self, group: str) -> None:
        """The group and its positions."""


class MovedOffsets(NamedTuple):
    """positions: what was, or would be, moved. without_topic: what stays where it was, for its topic is no more."""

    group: str
    positions: Mapping[TopicPartition, UpstreamOffset]
    without_topic: Sequence[TopicPartition] = ()


async def adopt_group(
    upstream: Upstream, group: str, here: LocalGroups, topics: Mapping[str, int], *, dry_run: bool = False
) -> MovedOffsets:
    """Take the positions that the upstream has of the group (KB-M1). topics: those that there are, with their
    partitions.

    Raises MoveBlocked, NoSuchUpstreamGroup, UpstreamError, and what `here` raises.
    """
    state = await require_empty_upstream(upstream, group)
    there = await group_requests.fetch_offsets(upstream, group)
    if not there and state == group_requests.NOBODY_THERE.state:
        raise NoSuchUpstreamGroup(f"the upstream has no group {group}, nor offsets of it; check the name there")
    known = {place: position for place, position in there.items() if place[1] < topics.get(place[0], 0)}
    moved = MovedOffsets(group, known, sorted(there.keys() - known.keys()))
    await require_empty_here(here, group)
    if at_hand := await here.positions(group):
        differs = sorted(place for place, position in known.items() if at_hand.get(place) != position)
        if not differs:
            return moved
        topic, partition = differs[0]
        raise MoveBlocked(
            f"the group {group} has positions here already, others than upstream, {topic}-{partition} for one; delete "
            "the group here first (`muster groups delete`) if those upstream are to count"
        )
    if known and not dry_run:
        await here.commit(group, known)
    return moved


async def release_group(upstream: Upstream, group: str, here: LocalGroups, *, dry_run: bool = False) -> MovedOffsets:
    """Give the group's positions to the upstream, and forget it here (KB-M3).

    Raises MoveBlocked, UpstreamError, and what `here` raises.
    """
    await require_empty_here(here, group)
    await require_empty_upstream(upstream, group)
    at_hand = await here.positions(group)
    if dry_run:
        return MovedOffsets(group, at_hand)
    refused = await group_requests.commit_offsets(upstream, group, at_hand)
    gone = sorted(place for place, code in refused.items() if code == UNKNOWN_TOPIC)
    for place, code in refused.items():
        if code != UNKNOWN_TOPIC:
            raise UpstreamRefused(f"committing {place[0]}-{place[1]} for the group {group}", code)
    await here.delete(group)
    return MovedOffsets(group, {place: each for place, each in at_hand.items() if place not in refused}, gone)


async def require_empty_upstream(upstream: Upstream, group: str) -> str:
    """In which state the group is. Raises MoveBlocked."""
    there = await group_requests.describe_group(upstream, group)
    if there.members:
        named = first_names([f"{each.client_id or each.id} at {each.host}" for each in there.members])
        raise MoveBlocked(f"the group {group} has members upstream: {named}; stop them first")
    return there.state


async def require_empty_here(here: LocalGroups, group: str) -> None:
    if members := await here.members(group):
        raise MoveBlocked(f"the group {group} has members here: {first_names(members)}; stop them first")


def first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


# Mirror (KB-M4)
# --------------

AT_ONCE: Final = 8
"""Groups that are asked for and written at a time."""

LEFT_ALONE_MS: Final = 60_000
"""So long nothing is written for a group that the upstream refuses: it has members there, as a rule."""


class GroupAway(Exception):
    """The group is not this node's, or cannot be asked for now."""


@dataclass(slots=True)
class MirroredGroup:
    """dirty: it has committed since it was asked for. not_before_ms: when it may be written next. told: what the
    upstream has of it from this node."""

    shard: int
    dirty: bool = True
    not_before_ms: int = 0
    told: dict[TopicPartition, UpstreamOffset] = field(default_factory=dict)


class OffsetMirror:
    """`start` and `stop`; `written` is called with what is appended to the state log."""

    def __init__(
        self,
        upstream: Upstream,
        positions: Callable[[str], Awaitable[Mapping[TopicPartition, UpstreamOffset]]],
        *,
        now_ms: Callable[[], int],
        interval_ms: int,
        on_trouble: Callable[[str], None] = lambda sentence: None,
        on_bug: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """positions: all that counts of what a group has committed; raises GroupAway. interval_ms:
        `engine.kafka.offsets.mirror.interval.ms`. on_trouble hears why something was not written, and of "" when all
        was."""
        self._upstream = upstream
        self._positions = positions
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._on_trouble = on_trouble
        self._groups: dict[str, MirroredGroup] = {}
        self._running = BackgroundTask(on_bug)
        self._why = ""

    def start(self) -> None:
        self._running.start(self._run())

    async def stop(self) -> None:
        await self._running.stop()

    def written(self, shard: int, groups: Iterable[str]) -> None:
        """Positions of these are on their way into the state log. Whether they will count is not known yet."""
        for group in groups:
            self._groups.setdefault(group, MirroredGroup(shard)).dirty = True

    def lost(self, shard: int) -> None:
        """Another node may have the shard, and mirror it: what the upstream has of its groups is not known here."""
        for group in [group for group, each in self._groups.items() if each.shard == shard]:
            del self._groups[group]

    async def round(self) -> None:
        """Write what is due."""
        now_ms = self._now_ms()
        due = [group for group, each in self._groups.items() if each.dirty and each.not_before_ms <= now_ms]
        self._why = ""
        for begin in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._mirror(group, now_ms) for group in due[begin : begin + AT_ONCE]))
        if due:
            self._on_trouble(self._why)

    async def _mirror(self, group: str, now_ms: int) -> None:
        mirrored = self._groups.get(group)
        if mirrored is None:
            return  # lost while others were written
        mirrored.dirty, mirrored.not_before_ms = False, now_ms + self._interval_ms
        try:
            kept = await self._positions(group)
            new = {place: position for place, position in kept.items() if mirrored.told.get(place) != position}
            refused = await group_requests.commit_offsets(self._upstream, group, new) if new else {}
        except GroupAway:
            self._groups.pop(group, None)  # whoever has it mirrors it
            return
        except UpstreamError as error:
            self._again(group, self._interval_ms, str(error))
            return
        if not kept and not mirrored.dirty:
            self._groups.pop(group, None)  # nothing is left of it
            return
        mirrored.told = {place: position for place, position in kept.items() if place not in refused}
        codes = set(refused.values()) - {UNKNOWN_TOPIC}
        if codes:
            self._again(group, LEFT_ALONE_MS, f"the upstream says {describe_code(min(codes))}; has it members there?")

    def _again(self, group: str, in_ms: int, why: str) -> None:
        mirrored = self._groups.get(group)
        if mirrored is None:
            return
        mirrored.dirty, mirrored.not_before_ms = True, self._now_ms() + in_ms
        self._why = f"what group {group} has committed is not in the upstream yet: {why}"

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1_000)
            await self.round()
