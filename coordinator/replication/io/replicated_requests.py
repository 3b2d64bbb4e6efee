"""Produce, fetch and DeleteRecords at a node of a cluster: what `LogRequests` promises, kept by all in-sync replicas.

A turn of the loop appends what has arrived, notifies the followers immediately, and flushes alongside them: there is
one flush for both, the replica manager's. A request with acks=all is answered once the high watermark has passed
(CL-L2).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, cast

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.commit_waits import CommitWaits, LocalWaits, LogStartWaits
from muster.coordinator.replication.io.replicated_log import ReplicaSide, ReplicatedLog
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.leader import ALL
from muster.storage.broker.group_commit import Arrived, GroupCommit, PendingAppend, Promise, Waiting
from muster.storage.broker.requests import (
    ACKS_NONE,
    KNOWN_ACKS,
    Batches,
    GivenUp,
    Guards,
    LogRequests,
    OffsetByTime,
    TopicChanges,
    refused_partition,
    wall_clock_ms,
)
from muster.storage.errors import (
    InvalidRequiredAcks,
    NotEnoughReplicasAfterAppend,
    OffsetNotAvailable,
    RequestTimedOut,
    StorageError,
)
from muster.storage.files import Buffer
from muster.storage.logs.segment import LATEST, is_known_timestamp
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.types import Appended
from muster.storage.types import TopicPartition as Place

TOGETHER: Final = 32
"""Appends of a partition that wait as one: followers may have the first of a long turn well before its last."""


class CommitSide(ReplicaSide, Protocol):
    """What is asked of a `ReplicaManager`."""

    @property
    def committing(self) -> CommitWaits: ...

    @property
    def keeping(self) -> LocalWaits: ...

    @property
    def starting(self) -> LogStartWaits: ...

    def grown(self, places: Iterable[TopicPartition]) -> None: ...

    def begins(self, places: Iterable[TopicPartition]) -> None: ...

    def unwritable(self, place: TopicPartition, why: str) -> bool: ...


@dataclass(eq=False, slots=True)
class ReplicatedArrival(PendingAppend):
    """An arrival, and whose copies it waits for."""

    acks: int = ALL


class ReplicatedCommit(GroupCommit):
    """Appends at the end of a turn as any group commit does, and leaves the flush to the side."""

    _broker: ReplicatedLog

    def __init__(self, broker: ReplicatedLog, side: CommitSide, clock_ms: Callable[[], int]) -> None:
        super().__init__(broker, clock_ms)
        self._side = side
        self._kept: Waiting = {}
        """Appended with acks=1 in this turn."""

    def append(
        self,
        partition: Place,
        batches: Buffer,
        *,
        durable: bool = True,
        guard: TransactionGuard | None = None,
        acks: int = ALL,
    ) -> "asyncio.Future[Appended]":
        """As `GroupCommit.append`. Durable is: committed, or with acks=1 kept here."""
        loop = self.loop
        done: asyncio.Future[Appended] = loop.create_future()
        self._arrived.setdefault(partition, []).append(ReplicatedArrival(batches, done, durable, guard, acks=acks))
        if not self._turn_due:
            self._turn_soon(loop)
        return done

    def _append(self, partition: Place, lot: Arrived, now_ms: int, enough: int) -> None:
        refusal = self._broker.too_few(*partition)  # CL-L2: right before it is written
        if refusal is not None:
            for arrival in lot:
                if waits_for_all(arrival) and not arrival.done.done():
                    arrival.done.set_exception(refusal)
            lot = [arrival for arrival in lot if not waits_for_all(arrival)]
        if lot:
            super()._append(partition, lot, now_ms, enough)

    def _append_ready(self, partition: Place, lot: Arrived, now_ms: int, looked: bool) -> int:
        results = self._past_a_disk(partition, self._results(partition, lot, now_ms, looked))
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

    def _past_a_disk(self, partition: Place, results: Sequence[Appended | Exception]) -> Sequence[Appended | Exception]:
        """Where the disk refuses, others may have room: they lead instead, and producers go there."""
        refused = next((each for each in results if is_disk_failure(each)), None)
        if refused is None or not self._side.unwritable(place := TopicPartition(*partition), str(refused)):
            return results
        return [self._broker.gone(place) if is_disk_failure(each) else each for each in results]

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
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

    def _wait(self, place: TopicPartition, promises: Sequence[Promise], queue: CommitWaits) -> None:
        for start in range(0, len(promises), TOGETHER):
            some = promises[start : start + TOGETHER]
            queue.notify_when_committed(
                place, max(self._end(place, result) for _, result in some), partial(self._answer_promises, place, some)
            )

    def _end(self, place: TopicPartition, result: Appended | None) -> int:
        """Where what is waited for ends: of a batch that came again, where it ended the first time (CL-F10); without a
        batch, all that is there by now."""
        if result is not None:
            return result.last_offset + 1
        led = self._side.replicas.led.get(place)
        return 0 if led is None else led.log.end

    def _answer_promises(self, place: TopicPartition, promises: Sequence[Promise], code: ErrorCode) -> None:
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
        return self._broker.gone(place)


def is_disk_failure(result: Appended | Exception) -> bool:
    return isinstance(result, StorageError) and isinstance(result.__cause__, OSError)


def waits_for_all(arrival: PendingAppend) -> bool:
    return arrival.durable and cast(ReplicatedArrival, arrival).acks == ALL


class ReplicatedRequests(LogRequests):
    """`LogRequests` of a node of a cluster."""

    broker: ReplicatedLog
    commit: ReplicatedCommit

    def __init__(
        self,
        broker: ReplicatedLog,
        side: CommitSide,
        topics: TopicChanges,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """clock_ms: the wall clock, for timestamps."""
        super().__init__(broker, ReplicatedCommit(broker, side, clock_ms), topics)
        self._side = side

    def begin_produce(
        self, parts: Sequence[Batches], acks: int, timeout_ms: int, guards: Guards | None = None
    ) -> "list[asyncio.Future[Appended]]":
        """As `LogRequests.begin_produce`. A part with acks=all (-1) is done once it is committed; else it fails with
        NotEnoughReplicas (19, nothing is written), NotEnoughReplicasAfterAppend (20), NotLeaderOrFollower (6) or
        RequestTimedOut (7)."""
        if acks not in KNOWN_ACKS:
            return [
                refused_partition(InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")) for _ in parts
            ]
        append, durable = self.commit.append, acks != ACKS_NONE
        guard_of = (guards or {}).get
        begun = [
            append((topic, partition), batches, durable=durable, guard=guard_of((topic, partition)), acks=acks)
            for topic, partition, batches in parts
        ]
        if timeout_ms:
            self._watch(begun, timeout_ms)
        return begun

    # -- offsets ------------------------------------------------------------------------------------------

    def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> OffsetByTime:
        """CL-L8: OffsetNotAvailable for the latest offset, and for a time that is not found, while this leader may not
        know yet of all that was committed before it led."""
        known = self.broker.knows_latest(topic, partition)
        if timestamp == LATEST and not known:
            raise offset_not_available(topic, partition)
        found = super().list_offset(topic, partition, timestamp, committed=committed)
        if not is_known_timestamp(timestamp) and found.offset < 0 and not known:
            raise offset_not_available(topic, partition)
        return found

    async def delete_records(self, asked: Sequence[GivenUp], timeout_ms: int) -> list[int | StorageError]:
        """CL-A3b: answered once the logs of all that are in sync begin at that offset or later, or RequestTimedOut."""
        begun = await super().delete_records(asked, timeout_ms)
        places = [TopicPartition(*one[:2]) for one, start in zip(asked, begun, strict=True) if isinstance(start, int)]
        starts = [start for start in begun if isinstance(start, int)]
        waits = [self._side.starting.wait(place, start) for place, start in zip(places, starts, strict=True)]
        self._side.begins(places)
        if waits:
            await asyncio.wait(waits, timeout=timeout_ms / 1000)
        codes = iter(zip(places, starts, waits, strict=True))
        return [self._given_up(*next(codes)) if isinstance(start, int) else start for start in begun]

    def _given_up(self, place: TopicPartition, start: int, wait: "asyncio.Future[ErrorCode]") -> int | StorageError:
        if not wait.done():
            wait.cancel()
            return RequestTimedOut(
                f"Records of {place} below offset {start} are given up here, but not yet on all that are in sync. They "
                "will be; ask again to hear of it."
            )
        return start if wait.result() is ErrorCode.NONE else self.broker.gone(place)


def offset_not_available(topic: str, partition: int) -> OffsetNotAvailable:
    return OffsetNotAvailable(
        f"The leader of {topic}-{partition} is new, and does not know yet how far its records are committed. Try again."
    )
