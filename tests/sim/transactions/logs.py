"""A model of one partition's log: batches of one record, markers, the gate, and what may be read of it.

It has exactly the rules of transactional appends, and nothing else of a log. `durable` is how far it is flushed; that
is its high watermark too.
"""

from dataclasses import dataclass, field
from typing import Any

INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER = 47, 48, 45
COORDINATOR_FENCED = 52
LAST_EPOCH = 32_767
KEPT_BATCHES = 5


@dataclass(slots=True, frozen=True)
class DataBatch:
    producer_id: int
    epoch: int
    sequence: int
    record: Any


@dataclass(slots=True, frozen=True)
class MarkerBatch:
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    level: int


@dataclass(slots=True)
class KnownProducer:
    """What a log knows of a producer."""

    epoch: int
    batches: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, offset) of the last ones."""
    first: int | None = None
    """Where its open transaction begins."""
    coordinator_epoch: int = -1


@dataclass(slots=True, eq=False)
class Guard:
    """The right to append the first batch of a transaction, from before the coordinator was asked."""

    producer_id: int
    epoch: int
    valid: bool = True


class LogModel:
    def __init__(self) -> None:
        self.batches: list[DataBatch | MarkerBatch] = []
        self.durable = self.start = 0
        self.guards: list[Guard] = []
        self.forget()

    def forget(self) -> None:
        """The process dies: what is kept of producers is rebuilt."""
        self.producers: dict[int, KnownProducer] = {}
        self.ended: list[tuple[int, int, int, bool]] = []
        """(producer id, first offset, offset of the marker, committed)."""
        self.guards = []
        for offset, batch in enumerate(self.batches):
            self.note(offset, batch)

    def cut(self, end: int) -> None:
        """A power cut took away what was behind this."""
        del self.batches[end:]
        self.forget()

    def retain(self, start: int) -> list[DataBatch]:
        """Retention goes by the high watermark, past open transactions; what it takes away."""
        assert self.start <= start <= self.durable
        gone = [batch for batch in self.batches[self.start : start] if isinstance(batch, DataBatch)]
        self.start = start
        return gone

    def state(self) -> Any:
        """What a replay has to give back."""
        return sorted((pid, str(known)) for pid, known in self.producers.items()), self.ended

    # -- appends ------------------------------------------------------------------------------------------

    def guard(self, producer_id: int, epoch: int) -> Guard:
        made = Guard(producer_id, epoch)
        self.guards.append(made)
        return made

    def known_batch(self, batch: DataBatch) -> int | None:
        """The offset of a batch that is here already."""
        known = self.producers.get(batch.producer_id)
        if known is None or known.epoch != batch.epoch:
            return None
        return dict(known.batches).get(batch.sequence)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        known = self.producers.get(producer_id)
        return known is not None and known.first is not None and known.epoch == epoch

    def append_data(self, batch: DataBatch, guard: Guard | None, level: int) -> tuple[int, int]:
        """(error, offset)."""
        if (offset := self.known_batch(batch)) is not None:
            return 0, offset
        known = self.producers.get(batch.producer_id)
        if known is not None and batch.epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if not self.may_open(batch, guard):
            return INVALID_TXN_STATE, -1
        if batch.sequence != self.expected_sequence(batch, level):
            return OUT_OF_ORDER, -1
        return 0, self.append(batch)

    def may_open(self, batch: DataBatch, guard: Guard | None) -> bool:
        guarded = (
            guard is not None
            and guard.valid
            and (guard.producer_id, guard.epoch)
            == (
                batch.producer_id,
                batch.epoch,
            )
        )
        return self.is_open(batch.producer_id, batch.epoch) or guarded

    def expected_sequence(self, batch: DataBatch, level: int) -> int:
        known = self.producers.get(batch.producer_id)
        if known is None:
            return 0 if level >= 2 else batch.sequence
        if known.epoch != batch.epoch:
            return 0
        if not known.batches:
            return 0 if level >= 2 else batch.sequence
        return known.batches[-1][0] + 1

    def append_marker(self, marker: MarkerBatch) -> tuple[int, int]:
        """(error, offset)."""
        error = self.marker_refusal(marker)
        return (error, -1) if error else (0, self.append(marker))

    def marker_refusal(self, marker: MarkerBatch) -> int:
        known = self.producers.get(marker.producer_id)
        if known is not None:
            if not self.takes_epoch(marker, known):
                return INVALID_PRODUCER_EPOCH
            if marker.coordinator_epoch < known.coordinator_epoch:
                return COORDINATOR_FENCED
        return 0

    def takes_epoch(self, marker: MarkerBatch, known: KnownProducer) -> bool:
        if marker.level < 2 or marker.epoch > known.epoch:
            return marker.epoch >= known.epoch
        return marker.epoch == known.epoch and (known.first is None or marker.epoch == LAST_EPOCH)

    def append(self, batch: DataBatch | MarkerBatch) -> int:
        self.batches.append(batch)
        self.note(len(self.batches) - 1, batch)
        return len(self.batches) - 1

    def note(self, offset: int, batch: DataBatch | MarkerBatch) -> None:
        known = self.producers.setdefault(batch.producer_id, KnownProducer(batch.epoch))
        if known.epoch != batch.epoch:
            known.epoch, known.batches = batch.epoch, []
        if isinstance(batch, DataBatch):
            known.batches = [*known.batches[1 - KEPT_BATCHES :], (batch.sequence, offset)]
            known.first = offset if known.first is None else known.first
            self.void_guards(batch.producer_id, None)
            return
        known.coordinator_epoch = batch.coordinator_epoch
        if known.first is not None:
            self.ended.append((batch.producer_id, known.first, offset, batch.commit))
            known.first = None
        self.void_guards(batch.producer_id, batch)

    def void_guards(self, producer_id: int, marker: MarkerBatch | None) -> None:
        """A first batch or a marker is there: guards that were made before it are worth nothing."""
        for guard in self.guards:
            own = marker is not None and marker.level >= 2 and marker.epoch == guard.epoch
            if guard.producer_id == producer_id and not own:
                guard.valid = False
        self.guards = [guard for guard in self.guards if guard.valid]

    # -- what may be read ---------------------------------------------------------------------------------

    def stable(self) -> int:
        """The last stable offset."""
        firsts = [known.first for known in self.producers.values() if known.first is not None]
        firsts += [first for _, first, marker, _ in self.ended if marker >= self.durable]
        return max(self.start, min([self.durable, *firsts]))

    def committed(self) -> list[tuple[int, Any]]:
        """(offset, record) of what a reader of committed data sees."""
        stable = self.stable()
        seen = [
            (offset, batch.record)
            for producer_id, first, marker, committed in self.ended
            if committed
            for offset, batch in enumerate(self.batches[first : min(marker, stable)], first)
            if isinstance(batch, DataBatch) and batch.producer_id == producer_id and offset >= self.start
        ]
        return sorted(seen, key=lambda each: each[0])

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, epoch)."""
        return [(pid, known.epoch) for pid, known in sorted(self.producers.items()) if known.first is not None]
