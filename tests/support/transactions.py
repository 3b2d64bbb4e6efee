"""A shard of transactional ids as tests talk to it: requests get numbers and times, markers are written on demand."""

from collections.abc import Iterable
from typing import Any

from muster.coordinator.transactions.effects import SendMarkers, TransactionEffects, TransactionNotice
from muster.coordinator.transactions.events import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    TransactionEvent,
    TransactionsLoaded,
    TransactionTimer,
)
from muster.coordinator.transactions.records import TransactionRecord, TransactionStored
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from muster.storage.files import Buffer
from muster.storage.records.batch import read_batches

DEFAULTS = TransactionLimits()
TIMEOUT_MS = 60_000


class Desk:
    """One shard, its log, its clock, and what it has said so far."""

    def __init__(self, limits: TransactionLimits = DEFAULTS) -> None:
        self.limits = limits
        self.now_ms, self.requests, self.fresh, self.life = 1_000, 0, 99, 0
        self.log: list[TransactionRecord] = []
        self.answers: dict[int, Any] = {}
        self.notices: list[TransactionNotice] = []
        self.shard = TransactionShard(limits, 0)
        self.reload()

    def reload(self, newest_connection: int = -1, *, orphans: bool = False) -> None:
        """The shard dies, and is replayed."""
        self.shard = TransactionShard(self.limits, 0)
        for record in self.log:
            self.shard.apply(record)
        self.life += 1
        self.step(TransactionsLoaded(self.life, self.life, newest_connection, orphans))

    def step(self, event: TransactionEvent) -> TransactionEffects:
        out = self.shard.step(event, self.now_ms)
        self.log += out.records
        self.notices += out.notices
        for request_id, reply in out.replies:
            assert request_id not in self.answers, f"request {request_id} is answered twice"
            self.answers[request_id] = reply
        return out

    def request(self, kind: type[Any], *values: Any, **named: Any) -> Any:
        """The answer, or None: it waits."""
        self.requests += 1
        self.step(kind(self.requests, *values, **named))
        return self.answers.get(self.requests)

    def draw(self) -> int:
        self.fresh += 1
        return self.fresh

    def init(self, name: str = "A", producer_id: int = -1, epoch: int = -1, **named: Any) -> Any:
        named.setdefault("timeout_ms", TIMEOUT_MS)
        return self.request(InitProducerId, name, fresh_id=self.draw(), producer_id=producer_id, epoch=epoch, **named)

    def add(self, producer_id: int, epoch: int, *places: tuple[str, int], name: str = "A", **named: Any) -> Any:
        return self.request(AddPartitions, name, producer_id, epoch, places or (("t", 0),), **named)

    def end(self, producer_id: int, epoch: int, commit: bool = True, *, name: str = "A", **named: Any) -> Any:
        return self.request(EndTxn, name, producer_id, epoch, commit, self.draw(), **named)

    def wait(self, ms: int) -> None:
        """Time passes, and timers fire in their order."""
        until_ms = self.now_ms + ms
        while due := sorted((at_ms, key) for key, at_ms in self.shard.deadlines.items() if at_ms <= until_ms):
            at_ms, key = due[0]
            self.now_ms = max(self.now_ms, at_ms)
            self.step(TransactionTimer(key, at_ms))
        self.now_ms = until_ms

    @property
    def sent(self) -> list[SendMarkers]:
        return [notice for notice in self.notices if isinstance(notice, SendMarkers)]

    def write_markers(self, error: int = 0, *, gone: bool = False) -> None:
        """What became of all markers of the newest `SendMarkers`."""
        last = self.sent[-1]
        results = dict.fromkeys(last.partitions, error)
        places = frozenset(last.partitions) if gone else frozenset()
        self.step(MarkersWritten(last.transactional_id, last.life, last.number, results, places))

    def stored(self, name: str = "A") -> TransactionStored:
        return self.shard.state.ids[name].stored

    def told(self, name: str = "A") -> tuple[str, int, int]:
        """State, producer id, epoch."""
        stored = self.stored(name)
        return stored.state.title, stored.producer_id, stored.epoch


def keep_committed(data: Buffer, aborted: Iterable[tuple[int, int]], dropped: set[int]) -> tuple[list[bytes], int]:
    """The values that a reader of committed records keeps of what was fetched, and where it fetches next (0: there was
    nothing). aborted: producers, and where what they aborted begins. dropped: producers under way, from fetch to fetch.
    """
    values, following, begins = list[bytes](), 0, set(aborted)
    for each in read_batches(data):
        if each.control:
            dropped.discard(each.producer_id)
        elif (each.producer_id, each.base_offset) in begins:
            dropped.add(each.producer_id)
        if not each.control and each.producer_id not in dropped:
            values += [record.value or b"" for record in each.records()]
        following = each.next_offset
    return values, following
