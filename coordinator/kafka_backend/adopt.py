"""KB-M1, KB-M3: a group's positions are taken over from the upstream's own coordinator, or given back to it.

Both are done to a group without members, on either side: whoever works on in it would not see what is done.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from muster.coordinator.kafka_backend.upstream import groups
from muster.coordinator.kafka_backend.upstream.errors import UpstreamRefused
from muster.coordinator.kafka_backend.upstream.groups import UNKNOWN_TOPIC, UpstreamOffset
from muster.coordinator.kafka_backend.upstream.records import TopicPartition
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

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

    Raises InTheWay, NotThere, UpstreamError, and what `here` raises.
    """
    state = await require_empty_upstream(upstream, group)
    there = await groups.fetch_offsets(upstream, group)
    if not there and state == groups.NOBODY_THERE.state:
        raise NoSuchUpstreamGroup(f"the upstream has no group {group}")
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

    Raises InTheWay, UpstreamError, and what `here` raises.
    """
    await require_empty_here(here, group)
    await require_empty_upstream(upstream, group)
    at_hand = await here.positions(group)
    if dry_run:
        return MovedOffsets(group, at_hand)
    refused = await groups.commit_offsets(upstream, group, at_hand)
    gone = sorted(place for place, code in refused.items() if code == UNKNOWN_TOPIC)
    for place, code in refused.items():
        if code != UNKNOWN_TOPIC:
            raise UpstreamRefused(f"committing {place[0]}-{place[1]} for the group {group}", code)
    await here.delete(group)
    return MovedOffsets(group, {place: each for place, each in at_hand.items() if place not in refused}, gone)


async def require_empty_upstream(upstream: Upstream, group: str) -> str:
    """In which state the group is. Raises InTheWay."""
    there = await groups.describe_group(upstream, group)
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
