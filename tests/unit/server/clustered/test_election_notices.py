"""What the log of the controller's node says of elections, and when: a line for those that are alike."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.controller.events_and_effects import ElectionKind, ElectionNote
from muster.coordinator.server.cluster_backend import cluster_backend as noting_of
from muster.coordinator.server.cluster_backend.cluster_backend import MAX_HELD, ElectionNotices, log_elections


def note(number: int, *, after: int = 1, clean: ElectionKind = ElectionKind.ISR, took_ms: int = 5) -> ElectionNote:
    return ElectionNote(TopicPartition("t", number), 4, 3, after, clean, "node 3 evicted", (1, 2), (), 90, took_ms)


def test_one_election_is_told_with_all_there_is_to_it() -> None:
    with capture_logs() as lines:
        log_elections([note(7)])
    assert lines == [
        {
            "event": "elected", "log_level": "info", "unit": "t-7", "epoch": 4, "isr": [1, 2], "took_ms": 5,
            "before": 3, "after": 1, "clean": "isr", "cause": "node 3 evicted",
        }
    ]  # fmt: skip


def test_many_that_are_alike_are_one_line_and_what_is_not_has_its_own() -> None:
    alike = [note(number, took_ms=number) for number in range(100)]
    with capture_logs() as lines:
        log_elections(
            [*alike, note(100, after=NO_NODE_ID, clean=ElectionKind.OFFLINE), note(101, after=2), note(102, after=2)]
        )
    assert [line["event"] for line in lines] == ["elected", "nobody leads", "elected"]
    many, alone, few = lines
    assert (many["count"], many["units"]) == (100, ["t-0", "t-1", "t-2", "t-3", "t-4", "..."])
    assert many["took_ms"] == 99
    assert alone["unit"] == "t-100"
    assert (few["count"], few["units"], few["after"]) == (2, ["t-101", "t-102"], 2)


def test_what_one_run_of_writes_elected_is_told_together_and_later() -> None:
    async def story() -> None:
        told: asyncio.Queue[Sequence[ElectionNote]] = asyncio.Queue()
        noting = ElectionNotices(told.put_nowait)
        noting.heard([note(0), note(1)])
        noting.heard([note(2)])
        assert told.empty(), "nodes are told first"
        assert await asyncio.wait_for(told.get(), 60) == [note(0), note(1), note(2)]
        noting.heard([note(3)])
        noting.now()
        noting.now()
        assert [told.get_nowait(), told.empty()] == [[note(3)], True]

    asyncio.run(story())


def test_very_many_do_not_wait_for_the_end_of_the_run() -> None:
    told: list[Sequence[ElectionNote]] = []

    async def story() -> None:
        noting = ElectionNotices(told.append)
        noting.heard([note(number) for number in range(MAX_HELD - 1)])
        noting.heard([note(7), note(8)])

    asyncio.run(story())
    assert [len(some) for some in told] == [MAX_HELD + 1]


def test_a_run_of_writes_that_does_not_end_is_told_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Sequence[ElectionNote]] = []
    monkeypatch.setattr(noting_of, "SOON_S", 3_600.0)
    monkeypatch.setattr(noting_of, "LATE_S", 0.0)

    async def story() -> None:
        noting = ElectionNotices(told.append)
        noting.heard([note(0)])
        noting._read_when_due()

    asyncio.run(story())
    assert told == [[note(0)]]
