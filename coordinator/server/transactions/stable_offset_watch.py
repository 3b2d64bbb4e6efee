"""Watches how far transactions hold readers of committed records back, and reports those that do so for too long.

A transaction that holds a partition's last stable offset for longer than `transaction.max.timeout.ms` and five minutes
is late: its coordinator should have ended it. The node's conditions name it, and so do `muster health` and `muster
doctor` (TX-E5).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.observability.views.formatting import clipped, duration, plural
from muster.coordinator.observability.views.transactions import describe_who
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.transactions.events import RequestOrigin
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.transactions import NOTHING_UNSTABLE, StableHold

LOOK_EVERY_S: Final = 10.0
LOGS_PER_TURN: Final = 200
"""Logs that are looked at between two turns of the loop."""
GRACE_MS: Final = 300_000
MOST_TOLD: Final = 3
MOST_LAGS: Final = 1_000
"""Partitions whose lag is shown."""

LATE: Final = "stable-offset-late"


@dataclass(frozen=True, slots=True)
class OpenOwner:
    """The transactional id whose open transaction this is, and its newest producer."""

    transactional_id: str
    producer: RequestOrigin


FindOwner = Callable[[int, int, TopicPartition], OpenOwner | None]
"""Who has this partition open with this producer id and epoch; None: no coordinator of this node will end it."""


@dataclass(frozen=True, slots=True)
class LateHold:
    """A transaction that holds readers back for too long. behind: records that they cannot reach."""

    place: TopicPartition
    hold: StableHold
    held_ms: int
    behind: int
    owner: OpenOwner | None


class StableOffsetWatch:
    """Belongs to the loop that starts it. `late`: what the last look found."""

    def __init__(
        self,
        broker: Broker,
        clock_ms: Callable[[], int],
        max_timeout_ms: int,
        find_owner: FindOwner,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        alone: bool = True,
    ) -> None:
        """alone: no other node may coordinate the transaction."""
        self._alone = alone
        self._broker = broker
        self._clock_ms = clock_ms
        self._patience_ms = max_timeout_ms + GRACE_MS
        self._find_owner = find_owner
        self._pause = pause
        self._conditions: Conditions | None = None
        self._looks = RestartedTask("transactions that hold readers back", self._look_again)
        self._held: list[TopicPartition] = []
        self.late: list[LateHold] = []

    def start(self, conditions: Conditions | None) -> None:
        self._conditions = conditions
        self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    def lags(self) -> dict[TopicPartition, int]:
        """Records that readers of committed records cannot reach now, where the last look found an open transaction."""
        found = {}
        for place in self._held:
            try:
                log = self._broker.log(*place)
            except StorageError:
                continue
            found[place] = log.high_watermark - log.last_stable_offset
        return found

    async def _look_again(self) -> None:
        while True:
            await self.look()
            await self._pause(LOOK_EVERY_S)

    async def look(self) -> None:
        held, late = list[TopicPartition](), list[LateHold]()
        for number, log in enumerate(list(self._broker.logs())):
            if not number % LOGS_PER_TURN:
                await asyncio.sleep(0)
            if log.producers.unstable.first == NOTHING_UNSTABLE:
                continue
            if len(held) < MOST_LAGS:
                held.append(log.partition)
            hold = log.current_hold()
            held_ms = -1 if hold is None or hold.since_ms < 0 else self._clock_ms() - hold.since_ms
            if hold is not None and held_ms > self._patience_ms:
                behind = log.high_watermark - log.last_stable_offset
                owner = self._find_owner(hold.producer_id, hold.epoch, log.partition)
                late.append(LateHold(log.partition, hold, held_ms, behind, owner))
        late.sort(key=lambda each: -each.held_ms)
        self._held, self.late = held, late
        self._report()

    def _report(self) -> None:
        if self._conditions is None:
            return
        if self.late:
            self._conditions.report(LATE, tell_late(self.late, alone=self._alone))
        else:
            self._conditions.clear(LATE)


def tell_late(late: Iterable[LateHold], *, alone: bool = True) -> str:
    """
    >>> hold = StableHold(9, 3, 1207, 5, 0, True)
    >>> tell_late([LateHold(("orders", 0), hold, 1_260_000, 5000, None)]).partition(": ")[0]
    'readers of committed records stop at offset 1207 of orders-0 for 21 min 0 s, 5,000 records before its end'
    """
    every = list(late)
    told = "; ".join(tell_one(each, alone=alone) for each in every[:MOST_TOLD])
    more = len(every) - MOST_TOLD
    return f"{told}; and so in {plural(more, 'more partition')}" if more > 0 else told


def tell_one(late: LateHold, *, alone: bool) -> str:
    topic, number = late.place
    length = ("" if late.hold.exactly else "at least ") + duration(late.held_ms)
    where = (
        f"readers of committed records stop at offset {late.hold.first_offset} of {topic}-{number} for {length}, "
        f"{plural(late.behind, 'record')} before its end: "
    )
    owner = late.owner
    if owner is None and not alone:
        return where + (
            f"a transaction of producer id {late.hold.producer_id}, epoch {late.hold.epoch}, of no transactional id "
            f"that this node coordinates; `muster transactions find-hanging --topic {topic} --partition {number}` asks "
            "all nodes whether one will end it"
        )
    if owner is None:
        return where + (
            f"a transaction of producer id {late.hold.producer_id}, epoch {late.hold.epoch}, that no transactional id "
            f"of this node will end; `muster transactions abort --topic {topic} --partition {number} --start-offset "
            f"{late.hold.first_offset}` ends it"
        )
    name = clipped(owner.transactional_id)
    return where + (
        f"the transaction of transactional id {name!r}, open for longer than transaction.max.timeout.ms allows, of "
        f"{describe_who('its producer', owner.producer)}; `muster transactions force-terminate --transactional-id "
        f"{name}` ends it"
    )
