"""Requests that wait until records are committed (CL-L2), kept (acks=1) or deleted on all replicas (CL-A3b)."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.fetch_sessions import LedPartition
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas

WaitEnded: TypeAlias = Callable[[ErrorCode], None]
"""Called once, in the loop."""


class CommitWaits:
    """Who waits, by partition. Whoever waits brings its own patience."""

    def __init__(self, replicas: NodeReplicas) -> None:
        self._replicas = replicas
        self._waiting: dict[TopicPartition, list[tuple[int, int, WaitEnded]]] = {}

    def notify_when_committed(self, place: TopicPartition, end: int, told: WaitEnded) -> None:
        """Tell NONE once what lies below `end` is committed in the leader epoch of this moment, maybe at once;
        NOT_LEADER_OR_FOLLOWER (6) once that is over; NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) if fewer than the least are
        in sync then."""
        led = self._replicas.led.get(place)
        if led is None:
            told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        code = self._code(led, end)
        if code is not None:
            told(code)
            return
        self._waiting.setdefault(place, []).append((end, led.leader.epoch, told))

    def wait(self, place: TopicPartition, end: int) -> "asyncio.Future[ErrorCode]":
        """The same as a future; one that is cancelled is let go of."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def told(code: ErrorCode) -> None:
            if not done.done():
                done.set_result(code)

        self.notify_when_committed(place, end, told)
        if not done.done():
            done.add_done_callback(lambda _: self._forget(place, told) if done.cancelled() else None)
        return done

    def _forget(self, place: TopicPartition, told: WaitEnded) -> None:
        waiting = [each for each in self._waiting.pop(place, ()) if each[2] is not told]
        if waiting:
            self._waiting[place] = waiting

    def moved(self, place: TopicPartition) -> None:
        """There may be news: the high watermark has moved, or this node leads the partition no more."""
        waiting = self._waiting.pop(place, None)
        if waiting is None:
            return
        led = self._replicas.led.get(place)
        still = []
        answered: list[tuple[WaitEnded, ErrorCode]] = []
        for end, epoch, told in waiting:
            code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if led is not None and led.leader.epoch == epoch:
                code = self._code(led, end)
            if code is None:
                still.append((end, epoch, told))
            else:
                answered.append((told, code))
        if still:
            self._waiting[place] = still
        for told, code in answered:
            told(code)

    def end(self) -> None:
        """This node stops: whoever waits hears that it leads no more."""
        waiting, self._waiting = self._waiting, {}
        for waits in waiting.values():
            for _, _, told in waits:
                told(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _code(self, led: LedPartition, end: int) -> ErrorCode | None:
        return led.leader.parked(led.half, end)


class LocalWaits(CommitWaits):
    """Who waits until it is kept here, whatever others have of it: NONE, or NOT_LEADER_OR_FOLLOWER (6)."""

    def _code(self, led: LedPartition, end: int) -> ErrorCode | None:
        if led.leader.over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if led.leader.halves[led.half].kept >= end else None


class LogStartWaits(CommitWaits):
    """Who waits until the logs of all that are in sync begin at an offset or later (CL-A3b): NONE, or
    NOT_LEADER_OR_FOLLOWER (6). `check_waits` after anything that happened."""

    def check_waits(self) -> None:
        for place in list(self._waiting):
            self.moved(place)

    def _code(self, led: LedPartition, end: int) -> ErrorCode | None:
        if led.leader.over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if led.leader.low_watermark(led.half) >= end else None
