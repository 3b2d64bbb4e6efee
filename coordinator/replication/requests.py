"""Produce and fetch at a node of a cluster: what `LogRequests` promises, kept by all replicas that are in sync.

A turn of the loop appends what has come, tells the followers at once, and flushes beside them: there is one flush for
both, the side's (`copies.flushing`). Who asked for acks=all is answered once the high watermark has passed (L2).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, cast

from muster.coordinator.cluster.facts import TopicPartition
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.copies.committing import Committing, Keeping
from muster.coordinator.replication.led_broker import LedBroker, Side
from muster.storage.broker.group_commit import Arrival, Arrived, GroupCommit, Promise, Waiting
from muster.storage.broker.requests import ACKS_NONE, KNOWN_ACKS, Batches, LogRequests, failed, wall_clock_ms
from muster.storage.disk.files import Buffer
from muster.storage.errors import (
    InvalidRequiredAcks,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    StorageError,
)
from muster.storage.types import Appended
from muster.storage.types import TopicPartition as Place

ALL: Final = -1
TOGETHER: Final = 32
"""Appends of a partition that wait as one: followers may have the first of a long turn well before its last."""


class CommittingSide(Side, Protocol):
    """What is asked of a `ClusterSide`."""

    @property
    def committing(self) -> Committing: ...

    @property
    def keeping(self) -> Keeping: ...

    def grown(self, places: Iterable[TopicPartition]) -> None: ...


@dataclass(eq=False, slots=True)
class Ordered(Arrival):
    """An arrival, and whose copies it waits for."""

    acks: int = ALL


class ClusterCommit(GroupCommit):
    """Appends at the end of a turn as any group commit does, and leaves the flush to the side."""

    _broker: LedBroker

    def __init__(self, broker: LedBroker, side: CommittingSide, clock_ms: Callable[[], int]) -> None:
        super().__init__(broker, clock_ms)
        self._side = side
        self._kept: Waiting = {}
        """Appended with acks=1 in this turn."""

    def append(
        self, partition: Place, batches: Buffer, *, durable: bool = True, acks: int = ALL
    ) -> "asyncio.Future[Appended]":
        """As `GroupCommit.append`. Durable is: committed, or with acks=1 kept here."""
        loop = self.loop
        done: asyncio.Future[Appended] = loop.create_future()
        self._arrived.setdefault(partition, []).append(Ordered(batches, done, durable, acks=acks))
        if not self._turn_due:
            self._turn_soon(loop)
        return done

    def _append(self, partition: Place, lot: Arrived, now_ms: int, enough: int) -> None:
        refusal = self._too_few(partition)
        if refusal is not None:
            for arrival in lot:
                if waits_for_all(arrival) and not arrival.done.done():
                    arrival.done.set_exception(refusal)
            lot = [arrival for arrival in lot if not waits_for_all(arrival)]
        if lot:
            super()._append(partition, lot, now_ms, enough)

    def _too_few(self, partition: Place) -> StorageError | None:
        """L2: asked right before it is written."""
        led = self._side.replicas.led.get(TopicPartition(*partition))
        if led is None or led.leader.may_append(ALL) is not ErrorCode.NOT_ENOUGH_REPLICAS:
            return None  # Where nothing at all may be written, the log says why.
        in_sync = led.leader.in_sync
        return NotEnoughReplicas(
            f"Of {partition[0]}-{partition[1]} the replicas {in_sync.committed} are in sync, but acks=all asks for "
            f"{in_sync.min_size} (min.insync.replicas). Nothing was written; try again when nodes are back."
        )

    def _append_ready(self, partition: Place, lot: Arrived, now_ms: int, looked: bool) -> int:
        results = self._results(partition, lot, now_ms, looked)
        waiting = self._waiting
        for arrival, result in zip(lot, results, strict=False):
            done = arrival.done
            if not isinstance(result, Appended):
                if not done.done():
                    done.set_exception(result)
                continue
            promises = waiting.setdefault(partition, [])  # Whoever waits or not, followers are to know.
            if not arrival.durable:
                if not done.done():
                    done.set_result(result)
            elif waits_for_all(arrival):
                promises.append((done, result))
            else:
                self._kept.setdefault(partition, []).append((done, result))
        return len(results)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Who waits is put down before the followers are told: they wait for what was appended in this leader epoch."""
        waiting, self._waiting = self._waiting, {}
        kept, self._kept = self._kept, {}
        side = self._side
        places = [TopicPartition(*partition) for partition in waiting]
        for place in places:
            self._wait(place, waiting[place], side.committing)
        for partition, promises in kept.items():
            self._wait(TopicPartition(*partition), promises, side.keeping)
        side.grown(places)

    def _wait(self, place: TopicPartition, promises: Sequence[Promise], queue: Committing) -> None:
        for start in range(0, len(promises), TOGETHER):
            some = promises[start : start + TOGETHER]
            queue.tell(place, max(self._end(place, result) for _, result in some), partial(self._told, place, some))

    def _end(self, place: TopicPartition, result: Appended | None) -> int:
        """Where what is waited for ends: of a batch that came again, where it ended the first time (F10); without a
        batch, all that is there by now."""
        if result is not None:
            return result.last_offset + 1
        led = self._side.replicas.led.get(place)
        return 0 if led is None else led.log.end

    def _told(self, place: TopicPartition, promises: Sequence[Promise], code: ErrorCode) -> None:
        error = None if code is ErrorCode.NONE else self._refusal(place, code)
        for done, result in promises:
            if done.done():
                continue  # Whoever waited has gone.
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def _refusal(self, place: TopicPartition, code: ErrorCode) -> StorageError:
        if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return NotEnoughReplicasAfterAppend(
                f"The records of {place} are written, but fewer replicas are in sync by now than acks=all asks for. "
                "They may yet survive; an idempotent producer can safely send them again."
            )
        return NotLeaderOrFollower(
            f"This node leads {place} no more, and does not know whether the records are committed. They may yet "
            "survive; an idempotent producer can safely send them again, to the leader.",
            *self._broker.leader_of(*place),
        )


def waits_for_all(arrival: Arrival) -> bool:
    return arrival.durable and cast(Ordered, arrival).acks == ALL


class ClusterRequests(LogRequests):
    """`LogRequests` of a node of a cluster."""

    broker: LedBroker
    commit: ClusterCommit

    def __init__(self, broker: LedBroker, side: CommittingSide, *, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """clock_ms: the wall clock, for timestamps."""
        super().__init__(broker, commit=ClusterCommit(broker, side, clock_ms), clock_ms=clock_ms)
        self._side = side

    def begin_produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> "list[asyncio.Future[Appended]]":
        """As `LogRequests.begin_produce`. A part with acks=all (-1) is done once it is committed; else it fails with
        NotEnoughReplicas (19, nothing is written), NotEnoughReplicasAfterAppend (20), NotLeaderOrFollower (6) or
        RequestTimedOut (7)."""
        if acks not in KNOWN_ACKS:
            return [failed(InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")) for _ in parts]
        append, durable = self.commit.append, acks != ACKS_NONE
        begun = [append((topic, partition), batches, durable=durable, acks=acks) for topic, partition, batches in parts]
        if timeout_ms:
            self._watch(begun, timeout_ms)
        return begun
