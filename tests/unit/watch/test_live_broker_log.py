"""A node that watches a Kafka follows its broker's log: entries that were told already are settled as the log grows, is
rotated, and is cut back."""

import asyncio
import lzma
from pathlib import Path

import pytest

from muster.coordinator.core.model.types import Cause, Certainty, RebalanceEntry
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.watch_backend import watch_backend
from muster.coordinator.watch.watched_partition import WatchedPartition
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.watched_kafka import WatchedKafka, Watching, watching
from tests.support.watched_batches import Heard

RECORDED = Path(__file__).parents[1] / "core" / "watched" / "kafka_4_1_1"


def recorded_kafka(broker: UpstreamBroker) -> WatchedKafka:
    kafka = WatchedKafka(broker, 2)
    for number in (0, 1):
        data = lzma.decompress((RECORDED / f"offsets-{number}.log.xz").read_bytes())
        read = WatchedPartition(Heard(), {})
        read.take_batches(data)
        kafka.logs[number], kafka.ends[number] = [data], read.next_offset
        kafka.catalog.ends["__consumer_offsets", number] = (0, read.next_offset)
    return kafka


def lines_of(group: str) -> str:
    """What the broker wrote of the group."""
    return "".join(line for line in (RECORDED / "server.log").read_text().splitlines(keepends=True) if group in line)


def last_entry(watched: Watching, group: str) -> RebalanceEntry | None:
    core = watched.node.engine.core(partition_for(group, watched.node.engine.shards))
    ledger = None if core is None else core.ledgers.get(group)
    return None if ledger is None else ledger.entries[max(ledger.entries)]


def is_told(watched: Watching, group: str, cause: Cause, certainty: Certainty) -> bool:
    entry = last_entry(watched, group)
    return entry is not None and (entry.cause, entry.certainty) == (cause, certainty)


def test_what_the_broker_writes_later_settles_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_backend, "LOGS_S", 0.01)
    log = tmp_path / "server.log"
    log.write_text("")

    async def story() -> None:
        async with (
            UpstreamBroker() as broker,
            watching(recorded_kafka(broker), watch_broker_log=str(log)) as watched,
        ):
            await watched.until(lambda: is_told(watched, "orders", Cause.SESSION_EXPIRED, Certainty.INFERRED))
            await watched.until(lambda: is_told(watched, "audit", Cause.MEMBER_LEFT, Certainty.UNKNOWN))
            await watched.until(lambda: is_told(watched, "mail", Cause.MEMBER_LEFT, Certainty.INFERRED))
            numbers = [number for number, _ in watched.told("orders")]

            with log.open("a") as grown:
                grown.write(lines_of("orders"))
            await watched.until(lambda: is_told(watched, "orders", Cause.SESSION_EXPIRED, Certainty.SAID))
            assert is_told(watched, "audit", Cause.MEMBER_LEFT, Certainty.UNKNOWN)

            log.rename(tmp_path / "server.log.1")
            log.write_text(lines_of("mail"))
            await watched.until(lambda: is_told(watched, "mail", Cause.MEMBER_LEFT, Certainty.SAID))

            assert len(lines_of("audit")) < len(lines_of("mail")), "so that it is seen that the log was cut back"
            log.write_text(lines_of("audit"))
            await watched.until(lambda: is_told(watched, "audit", Cause.SESSION_EXPIRED, Certainty.SAID))
            assert [number for number, _ in watched.told("orders")] == numbers, "no entry is told twice"

    asyncio.run(story())
