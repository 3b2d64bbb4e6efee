"""What both doors do about very many committed positions, in slices or in a thread: others have turns in between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

from muster.coordinator.core.model.effects import OffsetDeleteReply, OffsetFetchReply
from muster.coordinator.edge.catalog import PartitionCounts, partition_exists
from muster.coordinator.errors import ErrorCode
from muster.storage.broker.in_turns import AT_ONCE

Result = TypeVar("Result")
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

    A slice refused as a whole is the answer. Each position is one that counted while it was asked about; those of
    different slices need not have counted at the same time.
    """
    if places is None:
        return await ask(None)
    left = iter(places)
    reply = await ask(tuple(islice(left, LOOKUPS_IN_A_SLICE)))
    if reply.code is not ErrorCode.NONE or not (later := tuple(islice(left, LOOKUPS_IN_A_SLICE))):
        return reply
    offsets, refused = dict(reply.offsets), dict(reply.refused)
    while later:
        await asyncio.sleep(0)
        reply = await ask(later)
        if reply.code is not ErrorCode.NONE:
            return reply
        offsets.update(reply.offsets)
        refused.update(reply.refused)
        later = tuple(islice(left, LOOKUPS_IN_A_SLICE))
    return OffsetFetchReply(offsets=offsets, refused=refused)


async def run_off_loop_if_large(make: Callable[[], Result], entries: int) -> Result:
    """What `make` makes of so many entries: here if they are few, in a thread otherwise.

    It may look at nothing that others change meanwhile.
    """
    return make() if entries <= AT_ONCE else await asyncio.to_thread(make)


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
