"""Transactional producers of both levels, as clients write them: they repeat what is not answered, by new connections.

A client is a generator. It yields `Call` and `Sleep`, and gets the answer, or None: it was not answered in time.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.transactions.events import AddPartitions, EndTxn, InitProducerId
from tests.sim.transactions.logs import DataBatch
from tests.sim.transactions.node import PLACES, Produce

AGAIN = frozenset({3, 6, 7, 14, 15, 16, 19, 51})
GIVEN_UP = -2
UNRESOLVED = frozenset({GIVEN_UP, 45})
"""Ends of a batch that may be in the log for all that, under its sequence: a former leader, whose log is behind, finds
it out of order. Before level 2 clients take another epoch then, with the first sequences (KIP-360)."""


@dataclass(slots=True)
class Call:
    """A request: by the connection to the coordinator, or (`batch`, `perform`) by the one to the partitions and groups.
    perform: has a node do it, asked by a connection of this number, and tell what came of it.
    """

    make: Callable[[int, int, int], Any] | None = None
    batch: Produce | None = None
    perform: Callable[[Any, int, Callable[[Any], None]], Any] | None = None


@dataclass(slots=True)
class Sleep:
    ms: int


@dataclass(eq=False)
class Transaction:
    """What a client did in one transaction, and what it heard of its end."""

    producer: "Producer"
    number: int
    acked: dict[tuple[tuple[str, int], int], None] = field(default_factory=dict)
    sent: int = 0
    commit_sent: bool = False
    outcome: str = "open"
    over: dict[tuple[str, int], int] = field(default_factory=dict)
    """Where the marker of its end is in the log: the offset, by partition."""
    lost: set[tuple[str, int]] = field(default_factory=set)
    """Partitions in which records of it may have been deleted before anybody saw them."""
    positions: set[tuple[str, str, int]] = field(default_factory=set)
    """Group, topic and partition of those that it carries, as far as that was acknowledged."""

    def __post_init__(self) -> None:
        self.producer_id, self.epoch = self.producer.producer_id, self.producer.epoch

    @property
    def content(self) -> bool:
        """Whether it has anything that could be committed."""
        return bool(self.sent or self.positions)

    def __repr__(self) -> str:
        return f"{self.producer.name}/{self.number}"


@dataclass(slots=True, frozen=True)
class Tag:
    """A record: of which transaction, and the how manieth; source: the input that it is the output of."""

    transaction: Transaction
    number: int
    sent_ms: int
    source: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"{self.transaction!r}.{self.number}"


Steps = Generator[Call | Sleep, Any, Any]


class Producer:
    """One instance. It is `dead` once it has been fenced, or met an error that no producer goes on after."""

    def __init__(self, world: Any, transactional_id: str, level: int, timeout_ms: int, number: int) -> None:
        self.world, self.rng = world, world.rng
        self.transactional_id, self.level, self.timeout_ms = transactional_id, level, timeout_ms
        self.name = f"{transactional_id}{number}"
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.transactions: list[Transaction] = []
        self.dead = False
        self.fenced_ms: int | None = None
        """When a newer instance was answered; only the judge knows."""

    def kill(self) -> None:
        """The process dies."""

    def broken(self) -> None:
        """The node is gone, and its connections with it."""

    def live(self) -> Steps:
        yield from self.init(-1, -1)
        while not self.dead and not self.world.closing:
            yield from self.transact()
            yield Sleep(self.rng.randint(1, 60))

    def call(self, make: Callable[[int, int, int], Any]) -> Steps:
        """The answer, however often it takes."""
        while True:
            answer = yield Call(make)
            if answer is not None and int(answer.code) not in AGAIN:
                return answer
            yield Sleep(self.rng.randint(5, 80))

    def init(self, producer_id: int, epoch: int) -> Steps:
        answer = yield from self.call(
            lambda number, fresh, connection: InitProducerId(
                number, self.transactional_id, self.timeout_ms, fresh, producer_id, epoch, connection, self.name
            )
        )
        self.take(answer)
        self.dead = self.dead or bool(answer.code)

    def take(self, answer: Any) -> None:
        """The producer id and epoch of an answer; sequences begin again with either."""
        if not answer.code and (answer.producer_id, answer.epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.epoch
            self.sequences.clear()

    def transact(self) -> Steps:
        transaction = Transaction(self, len(self.transactions))
        self.transactions.append(transaction)
        self.world.transactions.append(transaction)
        added: set[tuple[str, int]] = set()
        failed = 0
        for _ in range(self.rng.choice((0, 1, 2, 2, 3, 4))):
            place = self.rng.choice(PLACES)
            if self.level < 2 and place not in added:
                failed = yield from self.add(place)
                added.add(place)
            if not failed:
                failed = yield from self.produce(transaction, place)
            if failed:
                break
            yield from self.rest()
        if not failed:
            failed = yield from self.extend(transaction, added)
        if failed != GIVEN_UP and not transaction.content and not added and self.rng.random() < 0.7:
            return  # Nothing has been sent that could still arrive.
        if self.level < 2 and failed in (47, 49, 90):
            yield from self.init(self.producer_id, self.epoch)
            return
        if self.level < 2 and not added:
            return
        yield from self.end(transaction, commit=not failed and self.rng.random() < 0.8 and transaction.content)
        if self.level < 2 and failed in UNRESOLVED and not self.dead:
            yield from self.init(self.producer_id, self.epoch)  # What was given up may come late.

    def extend(self, transaction: Transaction, added: set[tuple[str, int]]) -> Steps:
        """What else the transaction has, behind its records; the code."""
        yield from ()
        return 0

    def rest(self) -> Steps:
        if self.world.faulty and self.rng.random() < 0.03:
            self.world.met["client frozen"] += 1
            yield Sleep(int(self.timeout_ms * self.rng.uniform(0.8, 2)))
        else:
            yield Sleep(self.rng.randint(0, 15))

    def add(self, place: tuple[str, int]) -> Steps:
        producer_id, epoch = self.producer_id, self.epoch
        answer = yield from self.call(
            lambda number, fresh, connection: AddPartitions(
                number, self.transactional_id, producer_id, epoch, (place,), 0, False, connection
            )
        )
        return int(answer.code)

    def produce(self, transaction: Transaction, place: tuple[str, int], source: tuple[int, int] | None = None) -> Steps:
        sequence = self.sequences.get(place, 0)
        tag = Tag(transaction, transaction.sent, self.world.now_ms, source)
        transaction.sent += 1
        batch = DataBatch(self.producer_id, self.epoch, sequence, tag)
        while True:
            answer = yield Call(batch=Produce(self.transactional_id, self.level, place, batch))
            if answer is not None and int(answer.code) not in AGAIN:
                break
            if self.world.faulty and self.rng.random() < 0.1:
                self.world.met["batch given up"] += 1
                return GIVEN_UP
            yield Sleep(self.rng.randint(5, 60))
        if answer.code:
            self.world.met[f"produce refused with {int(answer.code)}"] += 1
            return int(answer.code)
        self.sequences[place] = sequence + 1
        transaction.acked[place, tag.number] = None
        return 0

    def end(self, transaction: Transaction, *, commit: bool) -> Steps:
        producer_id, epoch = self.producer_id, self.epoch
        transaction.commit_sent = commit
        yield from self.rest()
        answer = yield from self.call(
            lambda number, fresh, connection: EndTxn(
                number, self.transactional_id, producer_id, epoch, commit, fresh, self.level, connection, self.name
            )
        )
        self.world.met[f"level {self.level} {'commit' if commit else 'abort'} {int(answer.code)}"] += 1
        if not answer.code:
            transaction.outcome = "committed" if commit else "aborted"
            self.take(answer)
            return
        transaction.outcome = "unknown"
        if self.level < 2:
            yield from self.init(producer_id, epoch)
        else:
            self.dead = True
