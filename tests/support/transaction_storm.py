"""Transactions over three nodes while nodes die, stand still and are cut off; what committed readers saw is judged.

Checked: each transaction is seen whole or not at all, at every partition and in its group's position; an acknowledged
commit is seen for ever, and once; nothing is seen of an acknowledged abort; what a reader has seen stays as it was; of
a fenced instance nothing is seen that it sent afterwards; at the end nothing is open.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from tests.support.sides import SideNode
from tests.support.transaction_sides import StoryProducer, TransactionSides, group_shard, play, read_committed

PLACES = [TopicPartition("t", number) for number in range(3)]
POSITION = ("t", 0)
LONGEST_REQUEST_S = 20.0
UNITS = 9
"""Two shards of groups, three of transactional ids, three partitions of data, and the notes on aborts."""


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Tried:
    """A transaction, and what its producer knows of its end. after_fence: begun when its instance was fenced."""

    name: bytes
    places: list[TopicPartition]
    fate: Fate = Fate.UNKNOWN
    offset: int | None = None
    after_fence: bool = False


@dataclass(slots=True)
class Storm:
    sides: TransactionSides
    seed: int
    rounds: int
    rng: random.Random = field(init=False)
    tried: list[Tried] = field(default_factory=list)
    seen: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            producers = [tasks.create_task(self._produce(f"id-{number}", 2 * (number % 2))) for number in range(4)]
            reading = tasks.create_task(self._read())
            striking = tasks.create_task(self._strike())
            await asyncio.wait(producers)
            self.over = True
            await striking
            reading.cancel()
        await self._settle()
        await self._judge()

    # -- clients ------------------------------------------------------------------------------------------

    async def _produce(self, name: str, level: int) -> None:
        rng = random.Random(f"{self.seed} {name}")
        producer = StoryProducer(self.sides, name, level)
        await producer.init()
        for number in range(self.rounds):
            if rng.random() < 0.15:
                old, producer = producer, StoryProducer(self.sides, name, level)
                if rng.random() < 0.5:
                    await self._begin(old, Tried(f"{name}.{number}.left".encode(), [rng.choice(PLACES)]))
                assert await producer.init() == 0
                self.met["new instance"] += 1
                late = Tried(f"{name}.{number}.late".encode(), [rng.choice(PLACES)], after_fence=True)
                await self._try(old, late, commit=True, group=name)
            places = rng.sample(PLACES, rng.randint(1, len(PLACES)))
            tried = Tried(f"{name}.{number}".encode(), places, offset=number if rng.random() < 0.5 else None)
            if not await self._try(producer, tried, commit=rng.random() < 0.7, group=name):
                producer = StoryProducer(self.sides, name, level)
                assert await producer.init() == 0
            await asyncio.sleep(rng.random() / 20)

    async def _begin(self, producer: StoryProducer, tried: Tried) -> bool:
        self.tried.append(tried)
        for place in tried.places:
            if code := await producer.send(place, tried.name):
                who = "fenced" if tried.after_fence else "current"
                self.met[f"{who} {producer.level} send: {ErrorCode(code).name}"] += 1
                return False
        return True

    async def _try(self, producer: StoryProducer, tried: Tried, *, commit: bool, group: str) -> bool:
        if not await self._begin(producer, tried):
            return False
        if tried.offset is not None and (code := await producer.send_offset(group, POSITION, tried.offset)):
            self.met[f"offset: {ErrorCode(code).name}"] += 1
            return False
        code = await producer.end(commit=commit)
        self.met[f"end: {ErrorCode(code).name}"] += 1
        if code:
            return False
        tried.fate = Fate.COMMITTED if commit else Fate.ABORTED
        return True

    async def _read(self) -> None:
        """What is seen once is seen ever after, in its order."""
        while True:
            for place in PLACES:
                for node in list(self.sides.up):
                    if not node.leads(place):
                        continue
                    now, before = read_committed(node, place), self.seen.get(place, [])
                    shorter = min(len(now), len(before))
                    assert now[:shorter] == before[:shorter], f"{place} at node {node.id}: {before} became {now}"
                    if len(now) > len(before):
                        self.seen[place] = now
            await asyncio.sleep(0.01)

    # -- faults -------------------------------------------------------------------------------------------

    async def _strike(self) -> None:
        blows: list[Callable[[SideNode], Awaitable[None]]] = [self._kill, self._stop, self._cut_off, self._mute]
        while not self.over:
            await asyncio.sleep(self.rng.random() / 2)
            node = self.rng.choice(self.sides.up)
            blow = self.rng.choice(blows)
            self.met[blow.__name__] += 1
            await blow(node)

    async def _kill(self, node: SideNode) -> None:
        await self.sides.kill(node)
        await asyncio.sleep(self.rng.random())
        await self.sides.start(node)
        await self._whole()

    async def _stop(self, node: SideNode) -> None:
        await self.sides.stop(node)
        await asyncio.sleep(self.rng.random() / 2)
        await self.sides.start(node)
        await self._whole()

    async def _cut_off(self, node: SideNode) -> None:
        """The controller has lost it, and others lead; it does not hear of that at once."""
        address = node.side._door.bound
        self.sides.standing.lost(node.id)
        await asyncio.sleep(self.rng.random())
        node.epoch = self.sides.standing.register(node.id, node.broker.identity.directory_id, address)
        node.side.registered(node.epoch)
        await self._whole()

    async def _mute(self, node: SideNode) -> None:
        """What it says of transactions to others does not arrive, or their answers do not."""
        one_way = self.rng.random() < 0.5
        self.sides.lost = lambda sender, receiver: node.id in ((sender,) if one_way else (sender, receiver))
        await asyncio.sleep(self.rng.random())
        self.sides.lost = lambda sender, receiver: False

    async def _whole(self) -> None:
        """All copies are in sync again: two at a time would leave too few."""
        leaders = self.sides

        def whole() -> bool:
            led = [leader for node in leaders.up for leader in node.side.replicas.leaders.values() if not leader.over]
            return len(led) >= UNITS and all(len(leader.in_sync.committed) == 3 for leader in led)

        await self.sides.until(whole)

    # -- the end ------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        for number in range(4):
            assert await StoryProducer(self.sides, f"id-{number}", 2).init() == 0
        groups = {group_shard(f"id-{number}") for number in range(4)}
        async with asyncio.timeout(LONGEST_REQUEST_S):
            await self.sides.until_stable(*PLACES, *groups)

    async def _judge(self) -> None:
        final = {place: await self.sides.committed(place) for place in PLACES}
        for place in PLACES:
            assert final[place][: len(self.seen.get(place, []))] == self.seen.get(place, []), f"{place} lost something"
        committed: dict[str, int] = {}
        for each in self.tried:
            times = {place: final[place].count(each.name) for place in PLACES}
            wanted = {place for place in PLACES if times[place]}
            assert set(times.values()) <= {0, 1}, f"{each} is there twice: {times}"
            if each.fate is Fate.COMMITTED:
                assert not each.after_fence, f"{each} was sent by a fenced instance"
                assert wanted == set(each.places), f"{each} was acknowledged, and is torn or lost: {times}"
            elif each.fate is Fate.ABORTED:
                assert not wanted, f"{each} was aborted, and is seen"
            else:
                assert wanted in (set(), set(each.places)), f"{each} is torn: {times}"
                self.met["unknown, seen" if wanted else "unknown, not seen"] += 1
            assert not (each.after_fence and wanted), f"{each} was sent by a fenced instance, and is seen"
            if wanted and each.offset is not None:
                committed[each.name.decode().split(".")[0]] = each.offset
        for number in range(4):
            found = await self.sides.position(f"id-{number}", POSITION, stable=True)
            assert found == committed.get(f"id-{number}", -1), f"id-{number}: position {found}, {committed}"


def storm(directory: Path, seed: int, rounds: int) -> Counter[str]:
    met = Counter[str]()

    async def story(sides: TransactionSides) -> None:
        one = Storm(sides, seed, rounds)
        await one.run()
        met.update(one.met)
        met.update(f"{each.fate.value}" for each in one.tried)

    play(directory, story)
    return met
