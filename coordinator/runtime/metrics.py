"""Counters that the engine feeds and an edge may show. Plain numbers, no I/O, never reset."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.coordinator.core.records import RebalanceDecided, Record
from muster.coordinator.core.types import Cause
from muster.coordinator.errors import ErrorCode


@dataclass(slots=True)
class Metrics:
    """All times and sizes since the engine was made."""

    requests: Counter[tuple[str, ErrorCode]] = field(default_factory=Counter)
    """Answers released, by (request, code), such as ("Heartbeat", NONE)."""
    refused: int = 0
    """Requests turned away because the inbox was full."""
    rebalances: Counter[Cause] = field(default_factory=Counter)
    """Rebalances decided, by cause."""
    turns: int = 0
    """Turns that had at least one event."""
    events: int = 0
    largest_turn: int = 0
    appends: int = 0
    records: int = 0
    flushes: int = 0
    slow_flushes: int = 0
    """Flushes so slow that deadlines moved by them."""
    loads: int = 0
    failures: int = 0
    """Times that a shard was dropped: a log failure or a bug."""
    stalls: int = 0
    """Times that the node stood still, so that deadlines moved."""
    stalled_ms: int = 0
    """How long, altogether."""
    longest_stall_ms: int = 0
    held: int = 0
    """Replies that wait, right now, for their records to be durable."""

    def decided(self, records: Iterable[Record]) -> None:
        """Count the rebalances among what was written."""
        for record in records:
            if isinstance(record, RebalanceDecided):
                self.rebalances[record.entry.cause] += 1

    def stood_still(self, stalled_ms: int) -> None:
        self.stalls += 1
        self.stalled_ms += stalled_ms
        self.longest_stall_ms = max(self.longest_stall_ms, stalled_ms)

    def turned(self, events: int) -> None:
        if events:
            self.turns += 1
            self.events += events
            self.largest_turn = max(self.largest_turn, events)
