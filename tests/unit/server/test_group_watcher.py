"""A watcher that does not read keeps the latest state and a bounded number of rebalances, and learns what it missed."""

import asyncio
from dataclasses import replace

import pytest

from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry
from muster.coordinator.errors import NodeShuttingDown
from muster.coordinator.server.services.group_coordinator import GroupWatcher, GroupWatchers

ENTRY = RebalanceEntry(0, 0, 0, "consumer", "range", Cause.MEMBER_JOINED, "", "", "", "", "", Outcome.COMPLETED, 0, 0)


def state(name: str) -> GroupChanged:
    return GroupChanged("g", name, 1)


def rebalance(number: int) -> GroupChanged:
    return GroupChanged("g", "Stable", number, replace(ENTRY, number=number))


def word_of(notice: GroupChanged | None) -> str | int:
    if notice is None:
        return "nudged"
    return notice.entry.number if notice.entry else notice.state


def read_all(watcher: GroupWatcher) -> list[tuple[str | int, int]]:
    """Everything unread: a state's name or a rebalance's number, and what was skipped before it."""
    watcher.close()

    async def read() -> list[tuple[str | int, int]]:
        told: list[tuple[str | int, int]] = []
        try:
            while True:
                notice, skipped = await watcher.get()
                told.append((word_of(notice), skipped))
        except NodeShuttingDown:
            return told

    return asyncio.run(read())


def test_that_a_group_was_looked_at_is_told_once_and_after_what_has_happened() -> None:
    watchers = GroupWatchers(10)
    watcher, other = watchers.add("g"), watchers.add("other")
    watchers.looked_at("g")
    watchers.looked_at("nobody's")
    watchers.publish(state("Stable"))
    watchers.looked_at("g")

    async def read() -> list[str | int]:
        return [word_of((await watcher.get())[0]) for _ in range(2)]

    assert asyncio.run(read()) == ["Stable", "nudged"]
    assert read_all(watcher) == read_all(other) == []


def test_states_coalesce_to_the_latest() -> None:
    watcher = GroupWatcher()
    for name in ("PreparingRebalance", "CompletingRebalance", "Stable"):
        watcher.put(state(name))
    assert read_all(watcher) == [("Stable", 0)]


def test_a_rebalance_replaces_older_states_and_survives_newer_ones() -> None:
    watcher = GroupWatcher()
    for notice in (state("PreparingRebalance"), rebalance(1), state("PreparingRebalance"), state("Empty")):
        watcher.put(notice)
    assert read_all(watcher) == [(1, 0), ("Empty", 0)]


def test_too_many_rebalances_drop_the_oldest_and_say_so() -> None:
    watcher = GroupWatcher(max_rebalances=3)
    for number in range(1, 8):
        watcher.put(state("PreparingRebalance"))
        watcher.put(rebalance(number))
    watcher.put(state("Empty"))
    assert read_all(watcher) == [(5, 4), (6, 0), (7, 0), ("Empty", 0)]


def test_reading_makes_room_again() -> None:
    async def story() -> list[int]:
        watcher = GroupWatcher(max_rebalances=1)
        skips = []
        for number in range(3):
            watcher.put(rebalance(number))
            skips.append((await watcher.get())[1])
        return skips

    assert asyncio.run(story()) == [0, 0, 0]


def test_a_reader_wakes_when_news_arrive() -> None:
    async def story() -> str:
        watcher = GroupWatcher()
        reader = asyncio.create_task(watcher.get())
        await asyncio.sleep(0)
        assert not reader.done()
        watcher.put(state("Stable"))
        return (await reader)[0].state

    assert asyncio.run(story()) == "Stable"


def test_a_waiting_reader_learns_of_the_shutdown() -> None:
    async def story() -> None:
        watchers = GroupWatchers(limit=1)
        reader = asyncio.create_task(watchers.add("g").get())
        await asyncio.sleep(0)
        watchers.close()
        await reader

    with pytest.raises(NodeShuttingDown):
        asyncio.run(story())


def test_only_the_groups_own_watchers_hear_of_it_and_the_number_is_bounded() -> None:
    watchers = GroupWatchers(limit=2)
    mine, other = watchers.add("g"), watchers.add("h")
    assert watchers.full
    watchers.publish(state("Stable"))
    assert read_all(mine) == [("Stable", 0)]
    assert read_all(other) == []
    watchers.remove("g", mine)
    assert (len(watchers), watchers.full) == (1, False)
    watchers.publish(state("Empty"))
    assert read_all(mine) == []
