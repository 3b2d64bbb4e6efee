"""What both doors do about very many committed positions."""

import asyncio
from collections.abc import Iterable

import pytest

from muster.coordinator.core.model.effects import OffsetDeleteReply, OffsetFetchReply
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.edge.committed_offsets import (
    LOOKUPS_IN_A_SLICE,
    PartitionTuple,
    delete_in_slices,
    fetch_in_slices,
)
from muster.coordinator.errors import ErrorCode
from muster.long_work import AT_ONCE
from tests.support.turns import turns_of_others

PLACES = [("t", number) for number in range(2 * AT_ONCE + 1)]


def deleted(places: list[tuple[str, int]], refused_from: int) -> tuple[OffsetDeleteReply, list[int]]:
    """What came of it, and how many places each question had; that of this number is refused."""
    asked: list[int] = []

    async def ask(places: PartitionTuple) -> OffsetDeleteReply:
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


def fetched(
    places: Iterable[tuple[str, int]] | None, refused_from: int = 9
) -> tuple[OffsetFetchReply, list[PartitionTuple | None], int]:
    """What came of it, what each question named, and how often others had their turn; see `deleted`."""
    asked: list[PartitionTuple | None] = []

    async def ask(places: PartitionTuple | None) -> OffsetFetchReply:
        asked.append(places)
        if len(asked) > refused_from:
            return OffsetFetchReply(code=ErrorCode.NOT_COORDINATOR)
        refused = {place: ErrorCode.UNSTABLE_OFFSET_COMMIT for place in places or () if place[1] == 1}
        offsets = {place: StoredOffset(place[1], -1, "", 0) for place in places or () if place not in refused}
        return OffsetFetchReply(offsets=offsets, refused=refused)

    async def look() -> None:
        nonlocal reply
        reply = await fetch_in_slices(places, ask)

    reply = OffsetFetchReply()
    turns = asyncio.run(turns_of_others(look()))
    return reply, asked, turns


def test_positions_are_looked_up_a_slice_at_a_time_and_others_have_turns_in_between() -> None:
    places = [("t", number) for number in range(4 * LOOKUPS_IN_A_SLICE + 1)]
    reply, asked, turns = fetched(iter(places))
    assert [len(each or ()) for each in asked] == [LOOKUPS_IN_A_SLICE] * 4 + [1]
    assert turns >= 3
    assert reply.refused == {("t", 1): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert [place for place in places if place not in reply.refused] == list(reply.offsets)


def test_a_slice_of_a_look_that_is_refused_as_a_whole_is_the_answer() -> None:
    reply, asked, _ = fetched([("t", number) for number in range(3 * LOOKUPS_IN_A_SLICE)], 1)
    assert (reply.code, reply.offsets, len(asked)) == (ErrorCode.NOT_COORDINATOR, {}, 2)


def test_a_look_at_nothing_and_one_at_everything_are_a_question_each() -> None:
    assert [fetched(())[1], fetched(None)[1]] == [[()], [None]]


@pytest.mark.parametrize("places", [None, [("t", number) for number in range(2 * LOOKUPS_IN_A_SLICE)]])
def test_many_who_look_at_much_have_their_slices_in_turns_of_their_own(places: list[tuple[str, int]] | None) -> None:
    """Or fifty questions about everything would stand in a shard's queue before a heartbeat."""

    async def play() -> list[int]:
        turn, asked_in = 0, []

        async def ask(places: PartitionTuple | None) -> OffsetFetchReply:
            asked_in.append(turn)
            return OffsetFetchReply()

        looks = [asyncio.create_task(fetch_in_slices(places, ask)) for _ in range(5)]
        while not all(look.done() for look in looks):
            await asyncio.sleep(0)
            turn += 1
        return asked_in

    asked_in = asyncio.run(play())
    assert len(asked_in) == len(set(asked_in)) >= 5
