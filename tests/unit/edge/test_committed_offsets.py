"""What both doors have in common is decided once: positions kept twice, partitions that do not exist, listings."""

import asyncio
import contextlib
from typing import Any

import pytest

from muster.coordinator.core.model.effects import ListedGroup, ListReply, OffsetDeleteReply, OffsetFetchReply
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.committed_offsets import (
    PartitionTuple,
    delete_existing,
    merge_zookeeper_positions,
)
from muster.coordinator.edge.large_answers import merge_group_lists
from muster.coordinator.edge.overload import LoopTime
from muster.coordinator.edge.request_limits import error_sentence, parse_json_setting
from muster.coordinator.errors import ErrorCode

LOG, ZOOKEEPER = StoredOffset(5, 3, "note", 99), StoredOffset(7, -1, "", 0)


def test_of_two_positions_the_larger_counts_whole() -> None:
    reply = OffsetFetchReply(offsets={("t", 0): LOG, ("t", 1): LOG, ("t", 2): None, ("t", 3): None, ("t", 4): LOG})
    there = {("t", 0): 7, ("t", 1): 5, ("t", 2): 7, ("t", 3): -1, ("u", 0): 7}
    both = merge_zookeeper_positions(reply, there, everything=False)
    assert both.offsets == {("t", 0): ZOOKEEPER, ("t", 1): LOG, ("t", 2): ZOOKEEPER, ("t", 3): None, ("t", 4): LOG}
    assert list(both.offsets) == list(reply.offsets), "in the order asked"
    assert merge_zookeeper_positions(reply, there, everything=True).offsets == {**both.offsets, ("u", 0): ZOOKEEPER}


def test_a_refused_place_has_no_position_from_anywhere() -> None:
    refused = OffsetFetchReply(refused={("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT})
    assert merge_zookeeper_positions(refused, {("t", 0): 7}, everything=True) == refused


def test_places_that_do_not_exist_are_refused_and_nobody_is_asked_for_them() -> None:
    asked: list[PartitionTuple] = []

    async def ask(places: PartitionTuple) -> OffsetDeleteReply:
        asked.append(places)
        return OffsetDeleteReply(partitions=dict.fromkeys(places, ErrorCode.NONE))

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    some = asyncio.run(delete_existing({"t": 1}, [("u", 0), ("t", 0), ("t", 1)], ask))
    assert list(some.partitions.items()) == [(("u", 0), unknown), (("t", 0), ErrorCode.NONE), (("t", 1), unknown)]
    assert asyncio.run(delete_existing({}, [("u", 0)], ask)).partitions == {("u", 0): unknown}
    assert asyncio.run(delete_existing({}, [], ask)).partitions == {}
    assert asked == [(("t", 0),), ()]


def test_a_refusal_of_the_group_is_the_answer() -> None:
    async def ask(places: PartitionTuple) -> OffsetDeleteReply:
        return OffsetDeleteReply(ErrorCode.GROUP_ID_NOT_FOUND, "no")

    assert asyncio.run(delete_existing({"t": 1}, [("t", 0), ("u", 0)], ask)).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_shards_that_moved_away_are_left_out_of_a_listing() -> None:
    one, two = ListedGroup("a", "", "", ""), ListedGroup("b", "", "", "")
    away, bad = ListReply(ErrorCode.NOT_COORDINATOR), ListReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ill")
    assert merge_group_lists([ListReply(groups=(two,)), away, ListReply(groups=(one,))]) == (None, [one, two])
    assert merge_group_lists([away, bad, ListReply(groups=(one,))]) == (bad, [one])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "o is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); expected"),
        ("[" * 60_000, "o is not JSON ("),
        ("1" * (request_limits.MAX_SETTING_CHARS + 1), "o has 65537 characters; at most 65536 are accepted"),
    ],
)
def test_a_setting_that_is_no_json_is_refused_in_the_door_s_own_way(text: str, words: str) -> None:
    with pytest.raises(LookupError) as refusal:
        parse_json_setting("o", text, LookupError)
    assert words in str(refusal.value)
    assert parse_json_setting("o", '{"a": 1}', LookupError) == {"a": 1}


def test_an_error_has_its_own_words_or_those_of_its_code() -> None:
    assert error_sentence(ErrorCode.NONE, "all is well") == ""
    assert error_sentence(ErrorCode.NON_EMPTY_GROUP, "why") == "why"
    assert error_sentence(ErrorCode.NON_EMPTY_GROUP) == ErrorCode.NON_EMPTY_GROUP.meaning


def test_a_list_has_one_limit() -> None:
    assert not request_limits.LONG_LISTS & request_limits.SHORT_LISTS


def test_work_that_is_timed_hears_of_its_timeouts_and_of_its_end() -> None:
    async def work() -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        await asyncio.sleep(0)
        return "done"

    async def story() -> None:
        timed = LoopTime(work())
        assert await timed == "done"
        assert timed.spent_s > 0
        forever = asyncio.create_task(waits(asyncio.Event().wait()))
        await asyncio.sleep(0)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        with pytest.raises(LookupError, match="gone"):
            await LoopTime(fails())

    async def waits(work: Any) -> None:
        await LoopTime(work)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    asyncio.run(story())
