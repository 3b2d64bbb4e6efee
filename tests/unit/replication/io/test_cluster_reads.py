"""Fetches, offsets and records given up at a leader whose followers are played by hand."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.errors import (
    NotLeaderOrFollower,
    OffsetNotAvailable,
    PolicyViolation,
    RequestTimedOut,
)
from tests.support.led_requests import begin, play, read, turn
from tests.support.led_side import HERE, ORDERS, THERE, YONDER, LedSide, partition, topic
from tests.unit.storage.logs import T0

# -- fetch ------------------------------------------------------------------------------------------------


def test_readers_see_what_is_committed() -> None:
    """CL-L8: in (HW, end] there is nothing, which is no error."""

    async def story(side: LedSide) -> None:
        begin(side, b"a")
        begin(side, b"b")
        await turn()
        side.flushes()
        assert await read(side) == ([], 0)
        side.follows(end=1)
        assert [await read(side, offset) for offset in (0, 1, 2)] == [([b"a"], 1), ([], 1), ([], 1)]
        assert (await read(side, 3)).code == 1

    play(story)


async def parked(side: LedSide, offset: int = 0) -> "asyncio.Task[Any]":
    fetch = asyncio.create_task(read(side, offset, 600_000))
    while not side.requests.parking.parked:  # noqa: ASYNC110  # one turn of the loop at a time, no time passes
        await asyncio.sleep(0)
    return fetch


def test_a_fetch_that_waits_is_woken_by_what_is_committed_and_not_by_what_is_written() -> None:
    async def story(side: LedSide) -> None:
        fetch = await parked(side)
        begin(side, b"a")
        await turn()
        side.flushes()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fetch.done()
        side.follows()
        assert await fetch == ([b"a"], 1)

    play(story)


def test_a_fetch_that_waits_is_told_when_another_node_leads() -> None:
    async def story(side: LedSide) -> None:
        fetch = await parked(side)
        side.hears(topic(partition(leader=THERE, epoch=4)))
        told = await fetch
        assert (told.code, told.leader, told.leader_epoch) == (6, THERE, 4)

    play(story)


def test_a_fetch_that_waits_is_told_when_the_topic_goes() -> None:
    async def story(side: LedSide) -> None:
        fetch = await parked(side)
        side.hears(topic(deleted=True))
        assert (await fetch).code == 3

    play(story)


# -- offsets ----------------------------------------------------------------------------------------------


def test_a_new_leader_does_not_tell_the_latest_before_it_knows_it() -> None:
    """CL-L8: 78, until its high watermark has passed where its epoch begins; times that are found are told."""

    async def story(side: LedSide) -> None:
        begin(side, b"a")
        begin(side, b"b", at=T0 + 10)
        await turn()
        side.flushes()
        side.follows(end=1)
        side.hears(topic(partition(epoch=4)))
        listed = side.requests.list_offset
        for timestamp in (-1, T0 + 10, T0 + 99):
            with pytest.raises(OffsetNotAvailable):
                listed(*ORDERS, timestamp)
        assert [listed(*ORDERS, when) for when in (-2, T0)] == [(0, -1, 3), (0, T0, 3)]
        side.follows()
        assert [listed(*ORDERS, when) for when in (-1, T0 + 10)] == [(2, -1, 4), (1, T0 + 10, 3)]
        assert listed(*ORDERS, T0 + 99).offset == -1
        side.hears(topic(partition(leader=THERE, epoch=5)))
        with pytest.raises(NotLeaderOrFollower):
            listed(*ORDERS, -1)

    play(story)


async def given_up(side: LedSide, before: int, *, committed: int = 4, timeout_ms: int = 60_000) -> "asyncio.Task[Any]":
    """DeleteRecords, as far as this node can do it alone."""
    for number in range(committed):
        begin(side, b"%d" % number)
    await turn()
    side.flushes()
    side.follows()
    begun, begins = asyncio.Event(), side.begins

    def told(places: Iterable[TopicPartition]) -> None:
        begins(places)
        begun.set()

    side.begins = told  # type: ignore[method-assign]
    task = asyncio.create_task(side.requests.delete_records([(*ORDERS, before), ("nowhere", 0, 1)], timeout_ms))
    await begun.wait()
    return task


def test_records_are_given_up_once_all_in_sync_have_done_so() -> None:
    """CL-A3b."""

    async def story(side: LedSide) -> None:
        task = await given_up(side, 3)
        assert side.log().start_offset == 3
        side.follows(THERE, start=3)
        side.follows(YONDER, start=2)
        await asyncio.sleep(0)
        assert not task.done()
        side.follows(YONDER, start=3)
        start, unknown = await task
        assert (start, unknown.code) == (3, 3)

    play(story)


def test_a_replica_that_leaves_holds_up_nobody_who_gives_records_up() -> None:
    """CL-A3b: every in-sync replica."""

    async def story(side: LedSide) -> None:
        task = await given_up(side, -1)
        side.follows(THERE, start=4)
        side.hears(topic(partition(isr=(HERE, THERE), version=1)))
        assert (await task)[0] == 4

    play(story)


def test_who_gives_records_up_does_not_wait_for_ever() -> None:
    """CL-A3b: 7. Here they are gone all the same."""

    async def story(side: LedSide) -> None:
        (told, _) = await (await given_up(side, 3, timeout_ms=1))
        assert (type(told), side.log().start_offset) == (RequestTimedOut, 3)
        await asyncio.sleep(0)
        assert not side.starting._waiting

    play(story)


def test_who_gives_records_up_hears_that_another_node_leads() -> None:
    async def story(side: LedSide) -> None:
        task = await given_up(side, 3)
        side.hears(topic(partition(leader=THERE, epoch=4)))
        assert isinstance((await task)[0], NotLeaderOrFollower)
        (told,) = await side.requests.delete_records([(*ORDERS, 4)], 1000)
        assert isinstance(told, NotLeaderOrFollower)

    play(story)


def test_a_compacted_log_gives_nothing_up() -> None:
    async def story(side: LedSide) -> None:
        compacted = {"configs": {"cleanup.policy": "compact"}, "name": "keyed", "topic_id": b"k" * 16}
        side.hears(topic(partition(), **compacted))  # type: ignore[arg-type]
        (told,) = await side.requests.delete_records([("keyed", 0, 0)], 1000)
        assert isinstance(told, PolicyViolation)

    play(story)
