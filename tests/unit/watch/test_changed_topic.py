"""A watching node goes on by itself when the offsets topic is made anew or given more partitions, and says so as long
as that lasts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.server.watch_backend import watch_backend
from muster.coordinator.watch import offsets_topic_reader
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.watched_kafka import WatchedKafka, Watching, watching


def run(
    story: Callable[[Watching], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    partitions: int = 2,
    **settings: Any,
) -> None:
    for pause in ("IDLE_S", "CALM_IDLE_S", "PAUSE_S", "LONG_PAUSE_S", "SAME_S"):
        monkeypatch.setattr(offsets_topic_reader, pause, 0.01)
    monkeypatch.setattr(watch_backend, "CHANGED_S", 0.0)

    async def whole() -> None:
        async with UpstreamBroker() as broker:
            kafka = WatchedKafka(broker, partitions)
            for group in ("orders", "pay", "mail", "audit"):
                kafka.write(group)
            async with watching(kafka, **settings) as one:
                await one.until(lambda: one.groups() == {"orders", "pay", "mail", "audit"})
                await story(one)

    asyncio.run(whole())


def test_groups_that_went_with_a_topic_that_was_made_anew_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: Watching) -> None:
        one.kafka.make(2, b"two")
        one.kafka.write("pay")
        await one.until(lambda: one.groups() == {"pay"})
        await one.until(lambda: not one.said())

    run(story, monkeypatch)


def test_a_topic_that_lost_records_is_told_for_a_while_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: Watching) -> None:
        monkeypatch.setattr(watch_backend, "CHANGED_S", 3_600.0)
        one.kafka.truncate()
        await one.until(lambda: "was truncated at offset 0" in one.said())
        await one.until(lambda: one.groups() == set())
        one.kafka.write("pay")
        await one.until(lambda: one.groups() == {"pay"})
        assert "was truncated" in one.said()
        monkeypatch.setattr(watch_backend, "CHANGED_S", 0.0)
        await one.until(lambda: not one.said())

    run(story, monkeypatch)


def test_a_topic_with_more_partitions_is_told_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: Watching) -> None:
        one.kafka.holds_back = True
        one.kafka.grow(5)
        for group in ("new", "newer", "newest"):
            one.kafka.write(group)
        await one.until(lambda: "has 5 partitions now, and had 2 before" in one.said())
        one.kafka.holds_back = False
        await one.until(lambda: {"new", "newer", "newest", "orders", "pay"} <= (one.groups() or set()))
        await one.until(lambda: not one.said())

    run(story, monkeypatch)


def test_a_ledger_s_directory_outlives_more_partitions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def keeps_two(one: Watching) -> None:
        assert one.node.engine.shards == 2

    for partitions in (2, 3):
        run(keeps_two, monkeypatch, partitions, watch_ledger_dir=str(tmp_path / "ledger"))
