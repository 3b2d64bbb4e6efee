"""What both doors do about very many committed positions."""

import asyncio

from muster.coordinator.core.effects import OffsetDeleteReply
from muster.coordinator.edge.positions import Places, delete_in_slices
from muster.coordinator.errors import ErrorCode
from muster.storage.broker.in_turns import AT_ONCE

PLACES = [("t", number) for number in range(2 * AT_ONCE + 1)]


def deleted(places: list[tuple[str, int]], refused_from: int) -> tuple[OffsetDeleteReply, list[int]]:
    """What came of it, and how many places each question had; that of this number is refused."""
    asked: list[int] = []

    async def ask(places: Places) -> OffsetDeleteReply:
        asked.append(len(places))
        if len(asked) > refused_from:
            return OffsetDeleteReply(code=ErrorCode.NOT_COORDINATOR)
        return OffsetDeleteReply(partitions=dict.fromkeys(places, ErrorCode.NONE))

    return asyncio.run(delete_in_slices(places, ask)), asked


def test_all_places_are_asked_about_a_slice_at_a_time() -> None:
    reply, asked = deleted(PLACES, 9)
    assert asked == [AT_ONCE, AT_ONCE, 1]
    assert list(reply.partitions) == PLACES


def test_a_slice_that_is_refused_as_a_whole_ends_it() -> None:
    reply, asked = deleted(PLACES, 1)
    assert asked == [AT_ONCE, AT_ONCE]
    assert reply.code is ErrorCode.NOT_COORDINATOR


def test_without_places_the_group_is_asked_nevertheless() -> None:
    assert deleted([], 0)[0].code is ErrorCode.NOT_COORDINATOR
