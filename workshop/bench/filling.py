"""Data directories as a node left them: offsets that were committed long ago, and topics of many partitions."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from muster.coordinator.core.model.core_records import OffsetsStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.router import partition_for
from muster.storage.broker.broker import Broker
from muster.storage.config import MAX_LONG, LogSettings

SHARDS, FILLED_SEGMENT_BYTES = 50, 100 << 20
"""As a node has them by default."""
FILLED_TOPIC = "orders"
FILLED_TURN = 500
"""Offsets that one turn of a busy node keeps in one batch."""


Fill: TypeAlias = Callable[[Mapping[str, int], int], None]
"""Groups, how many offsets of TOPIC each gets, and when they were committed."""


@contextlib.contextmanager
def fill_directory(home: str) -> Iterator[Fill]:
    """A directory to be filled in the block; a node can be started on it afterwards."""
    broker = Broker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        broker.create_topic(FILLED_TOPIC, 1)
        log = BrokerGroupLog(broker, SHARDS, FILLED_SEGMENT_BYTES)
        yield lambda groups, at_ms: fill_with_offsets(log, groups, at_ms)
    finally:
        broker.close()


def fill_with_offsets(log: BrokerGroupLog, groups: Mapping[str, int], at_ms: int) -> None:
    for facts in offset_turns(groups, at_ms):
        encoded = encode(facts)
        log.append(partition_for(facts[0].group_id, SHARDS), encoded.groups, encoded.ledger, at_ms)


def offset_turns(groups: Mapping[str, int], at_ms: int) -> Iterator[list[OffsetsStored]]:
    """What is appended at once: facts of one shard."""
    position = StoredOffset(12_345, -1, "", at_ms, None)
    by_shard: dict[int, list[OffsetsStored]] = {}
    for group_id, count in groups.items():
        facts = by_shard.setdefault(partition_for(group_id, SHARDS), [])
        for first in range(0, count, FILLED_TURN):
            facts.append(
                OffsetsStored(
                    group_id, {(FILLED_TOPIC, n): position for n in range(first, min(first + FILLED_TURN, count))}
                )
            )
            if sum(len(fact.offsets) for fact in facts) >= FILLED_TURN:
                yield list(facts)
                facts.clear()
    yield from (facts for facts in by_shard.values() if facts)


def days_ago(days: int) -> int:
    return int(time.time() * 1000) - days * 86_400_000
