"""What a log keeps of transactions for as long as they matter: which hold readers back, and who may begin one.

Both follow from what is appended. The guards are soft: whoever asked the coordinator before a restart, or before the
log's end was cut off, asks again.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from muster.storage.errors import NotEnoughReplicas
from muster.storage.records.batch import MAX_SEQUENCE

# What holds readers back
# -----------------------

NOTHING_UNSTABLE: Final = (1 << 63) - 1
"""Above every offset."""


NO_TIME: Final = -1


class StableHold(NamedTuple):
    """How long one transaction was the oldest open one of a log: readers of committed records had to stop at its first
    offset.

    epoch: the one that its records carry. records: how many it has in this log, -1: not counted. since_ms: -1: not
    measured. exactly: whether it was so no earlier than that. until_ms: when its marker came; -1: it is still open.
    """

    producer_id: int
    epoch: int
    first_offset: int
    records: int
    since_ms: int
    exactly: bool
    until_ms: int = NO_TIME

    @property
    def held_ms(self) -> int:
        """-1 where it was not measured, or is not over."""
        return self.until_ms - self.since_ms if NO_TIME not in (self.since_ms, self.until_ms) else NO_TIME


HOLDS_OF_LOG: Final = 100
HOLDS_OF_NODE: Final = 20_000
"""Holds that are kept: of one log, and of all of them, whose least recently ended ones are forgotten first."""


class StableHolds:
    """How long transactions held back the readers of a node's logs. For any thread. `clock_ms` may be replaced."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self._lock = threading.Lock()
        self._by_log: OrderedDict[tuple[str, int], deque[StableHold]] = OrderedDict()
        self._count = 0

    def note(self, place: tuple[str, int], hold: StableHold) -> None:
        """A hold is over."""
        with self._lock:
            known = self._by_log.get(place)
            if known is None:
                known = self._by_log[place] = deque(maxlen=HOLDS_OF_LOG)
            self._by_log.move_to_end(place)
            self._count += len(known) < HOLDS_OF_LOG
            known.append(hold)
            if self._count > HOLDS_OF_NODE:
                self._forget_one()

    def _forget_one(self) -> None:
        place, known = next(iter(self._by_log.items()))
        known.popleft()
        self._count -= 1
        if not known:
            del self._by_log[place]

    def forget(self, place: tuple[str, int]) -> None:
        """The log is gone."""
        with self._lock:
            self._count -= len(self._by_log.pop(place, ()))

    def of(self, place: tuple[str, int]) -> list[StableHold]:
        """Those of one log that are over, oldest first."""
        with self._lock:
            return list(self._by_log.get(place, ()))

    def of_producer(self, producer_id: int) -> list[tuple[tuple[str, int], StableHold]]:
        """Those of one producer that are over, by log. Looks at all that are kept."""
        with self._lock:
            everything = [(place, list(known)) for place, known in self._by_log.items()]
        return [(place, hold) for place, known in everything for hold in known if hold.producer_id == producer_id]


class OpenTransaction(NamedTuple):
    """A transaction without a marker in this log."""

    producer_id: int
    epoch: int
    first_offset: int


class UnstableTransactions:
    """The transactions that hold the last stable offset back, by their first offsets (TX-L7).

    They are the open ones, and those whose marker the high watermark has not passed. Both kinds begin in the order of
    the log, so the first of each is the oldest: no step looks at more than one of them. `first` may be read by any
    thread; whoever calls the rest holds the log's lock. Times are the caller's, in ms.
    """

    __slots__ = ("_ended", "_open", "_unstable", "first", "held_exactly", "held_since_ms")

    def __init__(self) -> None:
        self.first = NOTHING_UNSTABLE
        """The first offset of the oldest one."""
        self.held_since_ms = NO_TIME
        """Since when the oldest open one has been the oldest."""
        self.held_exactly = True
        """Whether it was so no earlier."""
        self._unstable: OrderedDict[int, None] = OrderedDict()
        # First offset -> producer id.
        self._open: OrderedDict[int, int] = OrderedDict()
        # (marker's offset, first offset) of those that have ended, in the order of their markers.
        self._ended: deque[tuple[int, int]] = deque()

    def begin(self, first_offset: int, producer_id: int, now_ms: int = NO_TIME) -> None:
        """A transaction begins, behind all others."""
        if not self._open:
            self.held_since_ms, self.held_exactly = now_ms, True
        self._unstable[first_offset] = None
        self._open[first_offset] = producer_id
        self.first = min(self.first, first_offset)

    def end(self, first_offset: int, marker_offset: int, now_ms: int = NO_TIME) -> tuple[int, bool] | None:
        """Its marker is in the log, behind all others; since when it was the oldest open one, and whether no earlier.
        None: it never was."""
        held = None
        if self.oldest_open() == first_offset:
            held = self.held_since_ms, self.held_exactly
            self.held_since_ms, self.held_exactly = now_ms, True
        self._open.pop(first_offset, None)
        self._ended.append((marker_offset, first_offset))
        return held

    def measure(self, now_ms: int) -> None:
        """Begin to measure how long the one holds readers back that was open before this time."""
        if self._open and self.held_since_ms == NO_TIME:
            self.held_since_ms, self.held_exactly = now_ms, False

    def settle(self, high_watermark: int) -> int:
        """Forget those whose marker lies below the high watermark; the first offset of the oldest that is left."""
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            self._unstable.pop(ended.popleft()[1], None)
        self.first = next(iter(self._unstable), NOTHING_UNSTABLE)
        return self.first

    def oldest_open(self) -> int:
        """The first offset of the oldest without a marker, or NOTHING_UNSTABLE."""
        return next(iter(self._open), NOTHING_UNSTABLE)

    def open(self) -> Iterator[tuple[int, int]]:
        """(first offset, producer id) of those without a marker, oldest first."""
        return iter(self._open.items())


# Who may begin one
# -----------------

LEVEL_BUMPS_EPOCH: Final = 2
"""From this level on a transaction's end raises the producer's epoch (KIP-890), so each epoch is one transaction."""

MOST_GUARDS: Final = 10_000
"""Appends of one log that wait for an answer of the coordinator."""


class TransactionGuard:
    """Leave to append the first batch of a transaction, once the coordinator has agreed (TX-L3).

    `level` is the one of the client: with 2, sequences begin at 0. Compared by identity: each is unique. `spent`:
    another append has begun the transaction meanwhile. `ended`: a marker has ended it, so what comes with this guard is
    late.
    """

    __slots__ = ("ended", "epoch", "level", "producer_id", "sequence", "spent")

    def __init__(self, producer_id: int, epoch: int, sequence: int, level: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.level = level
        self.spent = self.ended = False


class PendingGuards:
    """The guards of one log whose appends are waited for, until a marker of their producer. Whoever calls has the log's
    lock."""

    __slots__ = ("_by_producer", "count")

    def __init__(self) -> None:
        self._by_producer: dict[int, list[TransactionGuard]] = {}
        self.count = 0

    def make(self, producer_id: int, epoch: int, sequence: int, level: int) -> TransactionGuard:
        """NotEnoughReplicas, which clients try again, where too many are waiting."""
        if self.count >= MOST_GUARDS:
            raise NotEnoughReplicas(
                f"{self.count} appends to this log wait for their transaction's coordinator, the most there may be. "
                "Nothing was written; try again."
            )
        guard = TransactionGuard(producer_id, epoch, sequence, level)
        self._by_producer.setdefault(producer_id, []).append(guard)
        self.count += 1
        return guard

    def holds(self, guard: TransactionGuard, producer_id: int, epoch: int) -> bool:
        """Whether the guard is this producer's, and nothing has made it void."""
        mine = guard.producer_id == producer_id and guard.epoch == epoch
        return mine and not guard.spent and guard in self._by_producer.get(producer_id, ())

    def waits_before(self, producer_id: int, epoch: int, sequence: int, own: TransactionGuard | None) -> int | None:
        """A sequence before this one, by fewer than half of all there are, that still waits; None: there is none.

        own: of the append itself, whose first batch comes with it.
        """
        for guard in self._by_producer.get(producer_id, ()):
            if guard is own or guard.spent:
                continue
            ahead = (sequence - guard.sequence) & MAX_SEQUENCE
            if guard.epoch == epoch and guard.sequence >= 0 and 0 < ahead <= MAX_SEQUENCE >> 1:
                return guard.sequence
        return None

    def spend(self, producer_id: int) -> None:
        """A first batch of this producer was appended. Whoever has another guard of it may append behind that one."""
        for guard in self._by_producer.get(producer_id, ()):
            guard.spent = True

    def end(self, producer_id: int, spared_epoch: int = -1) -> None:
        """A marker of this producer was appended: of its guards those of `spared_epoch` stay."""
        guards = self._by_producer.pop(producer_id, None)
        if guards is None:
            return
        kept = []
        for guard in guards:
            if guard.epoch == spared_epoch:
                kept.append(guard)
            else:
                guard.ended = True
        self.count -= len(guards) - len(kept)
        if kept:
            self._by_producer[producer_id] = kept

    def drop(self, guard: TransactionGuard) -> None:
        """Whoever had it needs it no more. Safe to call for one that is void."""
        guards = self._by_producer.get(guard.producer_id)
        if guards is None or guard not in guards:
            return
        guards.remove(guard)
        self.count -= 1
        if not guards:
            del self._by_producer[guard.producer_id]
