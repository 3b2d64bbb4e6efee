"""The ledger of a watching node outlives clocks that are set back and a disk that is full."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.coordinator.server.driver import clock
from muster.coordinator.watch import offsets_topic_reader
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.watched_kafka import WatchedKafka, watching
from tests.support.watched_batches import NOW_MS

DAY_S = 86_400


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_topic_reader, "PAUSE_S", 0.001)
    monkeypatch.setattr(offsets_topic_reader, "LONG_PAUSE_S", 0.01)
    monkeypatch.setattr(offsets_topic_reader, "SAME_S", 0.01)


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """The machine's, of nodes that start from now on."""
    told = SimpleNamespace(time=lambda: time.time() + ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(clock, "time", told)


def test_a_node_whose_clock_was_set_back_tells_nothing_twice_and_misses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story() -> None:
        async with UpstreamBroker() as broker:
            kafka = WatchedKafka(broker, 2)
            for generation in (1, 2, 3):
                kafka.write("orders", generation, NOW_MS + generation * 1_000)
            set_clock(monkeypatch, DAY_S)
            async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                await one.until(lambda: one.groups() == {"orders"})
                assert one.told("orders") == [(1, 2), (2, 3)]
            kafka.write("orders", 4, NOW_MS + 4_000)
            set_clock(monkeypatch, 0)
            async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                await one.until(lambda: one.groups() == {"orders"})
                assert one.told("orders") == [(1, 2), (2, 3), (3, 4)]
                kafka.write("orders", 5, NOW_MS + 5_000)
                await one.until(lambda: (4, 5) in one.told("orders"))
                assert one.said() == ""

    asyncio.run(story())


def test_a_rebalance_that_a_broker_with_an_earlier_clock_recorded_while_nobody_watched_is_told(
    tmp_path: Path,
) -> None:
    """The group's coordinator moved to it."""

    async def story() -> None:
        async with UpstreamBroker() as broker:
            kafka = WatchedKafka(broker, 2)
            for generation in (1, 2, 3):
                kafka.write("orders", generation, NOW_MS + generation * 1_000)
            async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                await one.until(lambda: one.groups() == {"orders"})
            kafka.write("orders", 4, NOW_MS + 2_500)
            for _ in range(2):
                async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                    await one.until(lambda: one.groups() == {"orders"})
                    assert one.told("orders") == [(1, 2), (2, 3), (3, 4)]

    asyncio.run(story())


def test_what_a_full_disk_did_not_take_is_read_again_with_the_next_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story() -> None:
        async with UpstreamBroker() as broker:
            kafka = WatchedKafka(broker, 2)
            for generation in (1, 2, 3):
                kafka.write("orders", generation, NOW_MS + generation * 1_000)
            async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                await one.until(lambda: one.groups() == {"orders"})
                disk = one.node._backend.disk
                assert disk is not None
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                with monkeypatch.context() as patched:
                    patched.setattr(disk, "append", refuse(full))
                    kafka.write("orders", 4, NOW_MS + 4_000)
                    kafka.write("orders", 5, NOW_MS + 5_000)
                    await one.until(lambda: (4, 5) in one.told("orders"))
                    await one.until(lambda: "explanations of rebalances could not be written" in one.said())
                kafka.write("orders", 6, NOW_MS + 6_000)
                await one.until(lambda: (5, 6) in one.told("orders"))
            for _ in range(2):
                async with watching(kafka, watch_ledger_dir=str(tmp_path)) as one:
                    await one.until(lambda: one.groups() == {"orders"})
                    assert sorted(one.told("orders")) == [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
                    assert one.said() == ""

    asyncio.run(story())


def refuse(error: Exception) -> Callable[..., None]:
    def append(*_: object, **__: object) -> None:
        raise error

    return append
