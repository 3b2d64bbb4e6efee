"""Keeps the books of a run: who works on what, for how long nobody did, and which records were worked on twice."""

from dataclasses import dataclass, field

from muster.client.members.types import TopicPartition


@dataclass(slots=True)
class PartitionAccount:
    """One partition. `done` is how far anybody ever got, `committed` how far that is known."""

    holders: set[str] = field(default_factory=set)
    last_holder: str = ""
    idle_since_ms: int = 0
    unowned_ms: int = 0
    longest_ms: int = 0
    taken_at_ms: int = 0
    done: int = 0
    committed: int = 0


@dataclass(frozen=True, slots=True)
class RunCosts:
    """What a run cost.

    `stops` counts how often a partition was left without a worker, `moved` how often it came to another one than had it
    before.
    """

    rebalances: int
    stops: int
    unowned_partition_s: float
    longest_stop_s: float
    moved: int
    duplicates: int
    messages: int


class RunAccount:
    """All partitions of one group. Counting begins with `begin`; what happened before is forgotten."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.books = {tp: PartitionAccount() for tp in partitions}
        self.stops = 0
        self.moved = 0
        self.duplicates = 0

    def begin(self, now_ms: int) -> None:
        self.stops = self.moved = self.duplicates = 0
        for book in self.books.values():
            book.unowned_ms = book.longest_ms = 0
            book.idle_since_ms = now_ms

    def take(self, worker: str, tp: TopicPartition, now_ms: int) -> None:
        book = self.books[tp]
        if not book.holders:
            idle_ms = now_ms - book.idle_since_ms
            book.unowned_ms += idle_ms
            book.longest_ms = max(book.longest_ms, idle_ms)
        self.moved += book.last_holder not in ("", worker)
        book.holders.add(worker)
        book.taken_at_ms = now_ms
        book.last_holder = worker

    def drop(self, worker: str, tp: TopicPartition, now_ms: int) -> None:
        book = self.books[tp]
        book.holders.discard(worker)
        if not book.holders:
            book.idle_since_ms = now_ms
            self.stops += 1

    def work(self, tp: TopicPartition, position: int, count: int) -> None:
        """Records `position` up to `position + count` were worked on."""
        book = self.books[tp]
        self.duplicates += min(max(0, book.done - position), count)
        book.done = max(book.done, position + count)

    @property
    def unowned(self) -> list[TopicPartition]:
        return [tp for tp, book in self.books.items() if not book.holders]

    def costs(self, rebalances: int, messages: int, now_ms: int) -> RunCosts:
        """The books closed at this time: who is idle still has been so until now."""
        open_ms = {tp: now_ms - self.books[tp].idle_since_ms for tp in self.unowned}
        unowned_ms = sum(book.unowned_ms for book in self.books.values()) + sum(open_ms.values())
        longest_ms = max((max(book.longest_ms, open_ms.get(tp, 0)) for tp, book in self.books.items()), default=0)
        return RunCosts(
            rebalances, self.stops, unowned_ms / 1000, longest_ms / 1000, self.moved, self.duplicates, messages
        )
