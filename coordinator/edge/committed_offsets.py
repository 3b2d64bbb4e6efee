"""Committed offsets at both listeners: which partitions exist, requests in slices, and positions in ZooKeeper.

A request about very many positions is asked in slices, or answered in a thread, so that other requests get their
turn. A catalog is the number of partitions by topic. A group on its way from ZooKeeper keeps two positions, there and
in the log, and so does one whose members commit to both: the larger counts.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from muster.coordinator.core.model.effects import OffsetDeleteReply, OffsetFetchReply
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.errors import ErrorCode
from muster.long_work import AT_ONCE, slice_queue

# Which partitions exist
# ----------------------

PartitionCounts: TypeAlias = Mapping[str, int]


def partition_exists(catalog: PartitionCounts, topic: str, partition: int) -> bool:
    """
    >>> partition_exists({"t": 2}, "t", 1), partition_exists({"t": 2}, "t", 2), partition_exists({"t": 2}, "t", -1)
    (True, False, False)
    >>> partition_exists({"t": 2}, "u", 0)
    False
    """
    return 0 <= partition < catalog.get(topic, 0)


def describe_missing_partition(catalog: PartitionCounts, topic: str, partition: int) -> str:
    """The words of a partition that does not exist.

    >>> describe_missing_partition({"t": 2}, "t", 2)
    "t-2 does not exist; the partitions of 't' are 0 to 1"
    >>> describe_missing_partition({}, "t", 0)
    "t-0: there is no topic 't'; create it first"
    """
    count = catalog.get(topic, 0)
    if not count:
        return f"{topic}-{partition}: there is no topic {topic!r}; create it first"
    return f"{topic}-{partition} does not exist; the partitions of {topic!r} are 0 to {count - 1}"


PartitionTuple: TypeAlias = tuple[tuple[str, int], ...]

LOOKUPS_IN_A_SLICE = 4 * AT_ONCE
"""Positions that one step looks up: four of them take as long as one that is deleted."""


async def delete_in_slices(
    places: Sequence[tuple[str, int]], ask: Callable[[PartitionTuple], Awaitable[OffsetDeleteReply]]
) -> OffsetDeleteReply:
    """What `ask` is told about all the places, asked slice by slice; a slice refused as a whole is the answer.

    What was deleted before that stays deleted: whoever asks again is told so of it. Without places it is asked once.
    """
    told: dict[tuple[str, int], ErrorCode] = {}
    for start in range(0, max(len(places), 1), AT_ONCE):
        reply = await ask(tuple(places[start : start + AT_ONCE]))
        if reply.code is not ErrorCode.NONE:
            return reply
        told |= reply.partitions
    return OffsetDeleteReply(partitions=told)


async def fetch_in_slices(
    places: Iterable[tuple[str, int]] | None, ask: Callable[[PartitionTuple | None], Awaitable[OffsetFetchReply]]
) -> OffsetFetchReply:
    """What `ask` is told about all the places, asked slice by slice; None: about everything, which is one question.
    Each turn of the loop has one of these slices, and questions about everything, however many ask them at once.

    A slice refused as a whole is the answer. Each position is one that counted while it was asked about; those of
    different slices need not have counted at the same time.
    """
    if places is None:
        await slice_queue().wait()
        return await ask(None)
    left = iter(places)
    first, later = tuple(islice(left, LOOKUPS_IN_A_SLICE)), tuple(islice(left, LOOKUPS_IN_A_SLICE))
    if later:
        await slice_queue().wait()
    reply = await ask(first)
    if reply.code is not ErrorCode.NONE or not later:
        return reply
    offsets, refused = dict(reply.offsets), dict(reply.refused)
    while later:
        await slice_queue().wait()
        reply = await ask(later)
        if reply.code is not ErrorCode.NONE:
            return reply
        offsets.update(reply.offsets)
        refused.update(reply.refused)
        later = tuple(islice(left, LOOKUPS_IN_A_SLICE))
    return OffsetFetchReply(offsets=offsets, refused=refused)


async def delete_existing(
    catalog: PartitionCounts,
    places: Sequence[tuple[str, int]],
    ask: Callable[[PartitionTuple], Awaitable[OffsetDeleteReply]],
) -> OffsetDeleteReply:
    """As `delete_in_slices`, but places that do not exist are refused for themselves, each code in the order asked.

    For such alone no group is asked, as in Kafka.
    """
    codes = dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = [place for place in codes if partition_exists(catalog, *place)]
    if places and not known:
        return OffsetDeleteReply(partitions=codes)
    reply = await delete_in_slices(known, ask)
    return reply if reply.code is not ErrorCode.NONE else OffsetDeleteReply(partitions=codes | dict(reply.partitions))


# Positions in ZooKeeper
# ----------------------

NO_OFFSET = NO_EPOCH = -1


def later_position(stored: StoredOffset | None, elsewhere: int | None) -> StoredOffset | None:
    """The larger of a position in the log and one in ZooKeeper, where it has neither note, epoch nor time."""
    if elsewhere is None or elsewhere <= (NO_OFFSET if stored is None else stored.offset):
        return stored
    return StoredOffset(elsewhere, NO_EPOCH, "", 0)


def merge_zookeeper_positions(
    reply: OffsetFetchReply, elsewhere: Mapping[tuple[str, int], int], *, everything: bool
) -> OffsetFetchReply:
    """The answer, each position the later one. `everything`: also places that it does not name; refusals stay."""
    places = elsewhere.keys() if everything else elsewhere.keys() & reply.offsets.keys()
    found = {
        place: later_position(reply.offsets.get(place), elsewhere[place]) for place in places - reply.refused.keys()
    }
    return replace(reply, offsets={**reply.offsets, **found})
