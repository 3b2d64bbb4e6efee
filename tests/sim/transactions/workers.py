"""Clients whose transactions carry positions: producers that commit some for groups without members, and workers.

A worker reads, processes and writes: it is a member of a group, and each transaction has the outputs of some inputs and
the group's positions behind them (KIP-447). It speaks for the group as the member that it was when it read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.events import DeleteGroup, OffsetCommit, OffsetDelete, OffsetFetch
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.errors import ErrorCode
from tests.sim.transactions.clients import AGAIN, GIVEN_UP, UNRESOLVED, Call, Producer, Sleep, Steps, Transaction
from tests.sim.transactions.group_members import SimulatedMember
from tests.sim.transactions.group_node import INPUT, PositionCommit
from tests.sim.transactions.node import PLACES
from tests.sim.transactions.positions import GROUP_PLACE

SIMPLE_GROUPS = ("r", "s")
"""Groups without members, whose positions come and go."""
PARTITIONS = tuple((INPUT, number) for number in range(2))


class PositionProducer(Producer):
    """Its transactions carry positions of simple groups, beside records or alone."""

    def extend(self, transaction: Transaction, added: set[tuple[str, int]]) -> Steps:
        for group_id in SIMPLE_GROUPS:
            if self.rng.random() < 0.6:
                places = self.rng.sample(PARTITIONS, self.rng.randint(1, 2))
                offsets = {place: self.rng.randint(1, 999) for place in places}
                failed = yield from self.send_positions(transaction, added, group_id, offsets)
                if failed:
                    return failed
        return 0

    def place_of(self, group_id: str) -> tuple[str, int]:
        """The partition by which a group takes part in transactions."""
        return GROUP_PLACE

    def send_positions(
        self,
        transaction: Transaction,
        added: set[tuple[str, int]],
        group_id: str,
        offsets: dict[tuple[str, int], int],
        member: tuple[str, int] = ("", -1),
    ) -> Steps:
        """The code; 0: the group has taken them."""
        joins = self.place_of(group_id)
        if self.level < 2 and joins not in added:
            failed = yield from self.add(joins)
            added.add(joins)
            if failed:
                return failed
        tag = repr(transaction)
        self.world.tagged[tag] = transaction
        request = PositionCommit(
            self.transactional_id,
            self.level,
            self.producer_id,
            self.epoch,
            group_id,
            {place: CommittedOffset(offset, -1, tag) for place, offset in offsets.items()},
            member[1],
            member[0],
        )
        while True:
            answer = yield Call(perform=lambda node, number, answered: node.commit_positions(request, number, answered))
            if answer is not None and int(answer.code) not in AGAIN:
                break
            if self.world.faulty and self.rng.random() < 0.1:
                return GIVEN_UP
            yield Sleep(self.rng.randint(5, 60))
        if answer.code:
            self.world.met[f"positions refused with {int(answer.code)}"] += 1
        else:
            transaction.positions |= {(group_id, *place) for place in offsets}
        return int(answer.code)


class Worker(PositionProducer):
    member_class = SimulatedMember

    def __init__(self, world: Any, transactional_id: str, level: int, timeout_ms: int, number: int) -> None:
        super().__init__(world, transactional_id, level, timeout_ms, number)
        self.member = self.member_class(world, f"m-{self.name}", world.member_kind, self.release, self.assigned)
        self.owned: set[tuple[str, int]] = set()
        self.positions: dict[tuple[str, int], int] = {}
        """Of what is owned, from where on to read; those that are not known yet are missing."""
        self.busy = False
        self.released: list[tuple[Sequence[tuple[str, int]], Callable[[], None]]] = []

    def kill(self) -> None:
        self.member.kill()

    def broken(self) -> None:
        self.member.broken()

    # -- the member's callbacks -----------------------------------------------------------------------------

    def release(self, partitions: Sequence[tuple[str, int]], done: Callable[[], None]) -> None:
        """Callbacks run between two transactions, as `poll` does it."""
        self.released.append((partitions, done))
        if not self.busy:
            self.call_back()

    def call_back(self) -> None:
        while self.released:
            partitions, done = self.released.pop(0)
            for place in partitions:
                self.owned.discard(place)
                self.positions.pop(place, None)
            self.world.after(self.rng.randint(0, 5), done)

    def assigned(self, added: Sequence[tuple[str, int]], owned: Sequence[tuple[str, int]]) -> None:
        for place in added:
            self.positions.pop(place, None)
        self.owned = set(owned)

    # -- the loop -------------------------------------------------------------------------------------------

    def live(self) -> Steps:
        yield from self.init(-1, -1)
        self.member.start()
        while not self.dead and self.member.alive and not self.world.consumed():
            self.call_back()
            yield from self.fetch_positions()
            places = self.ready()
            if not places:
                yield Sleep(self.rng.randint(10, 60))
                continue
            self.busy = True
            yield from self.work(places)
            self.busy = False
            yield Sleep(self.rng.randint(1, 30))
        self.member.kill()

    def ready(self) -> list[tuple[str, int]]:
        """Partitions that have inputs for it."""
        return sorted(
            place for place in self.owned if place in self.positions and self.positions[place] < self.world.available()
        )

    def fetch_positions(self) -> Steps:
        while missing := tuple(sorted(place for place in self.owned if place not in self.positions)):
            request = OffsetFetch(0, self.world.options.group, missing, require_stable=True)
            answer = yield Call(perform=partial(ask_group, request))
            if not isinstance(answer, OffsetFetchReply) or answer.code:
                yield Sleep(self.rng.randint(5, 60))
                return
            for place, found in answer.offsets.items():
                if place in self.owned and place not in answer.refused:
                    self.positions[place] = 0 if found is None else found.offset
            if answer.refused:
                self.world.met["position waited for"] += 1
                yield Sleep(self.rng.randint(20, 100))
                return

    def work(self, places: list[tuple[str, int]]) -> Steps:
        """One transaction. If anything fails it is aborted, and all is read anew from what is committed."""
        transaction = Transaction(self, len(self.transactions))
        self.transactions.append(transaction)
        self.world.transactions.append(transaction)
        identity, offsets = self.member.identity, dict[tuple[str, int], int]()
        added: set[tuple[str, int]] = set()
        failed = 0
        for place in self.rng.sample(places, self.rng.randint(1, len(places))):
            first = self.positions[place]
            last = min(self.world.available(), first + self.rng.randint(1, 3))
            for offset in range(first, last):
                failed = failed or (yield from self.write((place[1], offset), transaction, added))
            offsets[place] = last
        if not failed:
            group = self.world.options.group
            failed = yield from self.send_positions(transaction, added, group, offsets, identity)
        yield from self.finish(transaction, offsets, failed)

    def write(self, source: tuple[int, int], transaction: Transaction, added: set[tuple[str, int]]) -> Steps:
        place, failed = self.rng.choice(PLACES), 0
        if self.level < 2 and place not in added:
            failed = yield from self.add(place)
            added.add(place)
        if not failed:
            failed = yield from self.produce(transaction, place, source)
        if not failed:
            yield from self.rest()
        return failed

    def finish(self, transaction: Transaction, offsets: dict[tuple[str, int], int], failed: int) -> Steps:
        if self.level < 2 and failed in (47, 49, 90):
            yield from self.init(self.producer_id, self.epoch)
        else:
            yield from self.end(transaction, commit=not failed)
            if self.level < 2 and failed in UNRESOLVED and not self.dead:
                yield from self.init(self.producer_id, self.epoch)  # What was given up may come late.
        if transaction.outcome == "committed":
            self.world.met["inputs consumed"] += 1
            self.positions |= {place: offset for place, offset in offsets.items() if place in self.owned}
        else:
            self.positions.clear()

    def rest(self) -> Steps:
        """Now and then the whole process stands still, and its member with it."""
        if self.world.faulty and self.rng.random() < 0.03:
            self.world.met["worker frozen"] += 1
            ms = int(self.world.options.session_ms * self.rng.uniform(0.5, 3))
            self.member.freeze(ms)
            yield Sleep(ms)
        else:
            yield from super().rest()


def ask_group(request: Any, node: Any, connection: int, answered: Callable[[Any], None]) -> None:
    node.ask_group(request, answered)


class GroupsOperator:
    """Deletes groups and positions, and commits and looks by the way, while transactions carry positions of them."""

    def __init__(self, world: Any) -> None:
        self.world, self.rng = world, world.rng

    def act(self) -> None:
        if self.world.node.up:
            self.do_something()

    def do_something(self) -> None:
        rng = self.rng
        group_id = rng.choice(SIMPLE_GROUPS)
        places = tuple(rng.sample(PARTITIONS, rng.randint(1, 2)))
        what = rng.choice(("delete", "forget", "commit", "commit", "look", "look"))
        self.world.met[f"operator's {what}{' while positions wait' if self.waits(group_id) else ''}"] += 1
        request: Any
        match what:
            case "delete":
                request = DeleteGroup(0, group_id)
            case "forget":
                request = OffsetDelete(0, group_id, places)
            case "commit":
                offsets = {place: CommittedOffset(rng.randint(1, 999), -1, "") for place in places}
                request = OffsetCommit(0, group_id, "", None, -1, offsets)
            case _:
                request = OffsetFetch(0, group_id, PARTITIONS, require_stable=rng.random() < 0.8)
        self.ask(request, lambda reply: self.note(what, reply))

    def waits(self, group_id: str) -> bool:
        """Whether positions of the group wait for the end of a transaction."""
        shard = self.world.node.groups.shard
        return shard is not None and bool(shard.state.pending.of_group(group_id))

    def ask(self, request: Any, answered: Callable[[Any], None]) -> None:
        self.world.node.ask_group(request, answered)

    def note(self, what: str, reply: Any) -> None:
        self.world.met[f"operator's {what}: {ErrorCode(reply.code).name}"] += 1
