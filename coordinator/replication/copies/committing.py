"""Appends that wait until what they wrote is committed (L2)."""

import asyncio

from muster.coordinator.cluster.facts import TopicPartition
from muster.coordinator.cluster.replicas.replicas import Replicas
from muster.coordinator.errors import ErrorCode


class Committing:
    """Futures by partition. Whoever waits brings its own patience: one that is cancelled is let go of."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._waiting: dict[TopicPartition, list[tuple[int, int, asyncio.Future[ErrorCode]]]] = {}

    def wait(self, place: TopicPartition, end: int) -> "asyncio.Future[ErrorCode]":
        """NONE once what lies below `end` is committed in the leader epoch of this moment; NOT_LEADER_OR_FOLLOWER (6)
        once that is over; NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) if fewer than the least are in sync then."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        led = self._replicas.led.get(place)
        if led is None:
            done.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return done
        self._waiting.setdefault(place, []).append((end, led.leader.epoch, done))
        self.moved(place)
        return done

    def moved(self, place: TopicPartition) -> None:
        """The high watermark has moved, or this node leads the partition no more."""
        waiting = self._waiting.pop(place, None)
        if waiting is None:
            return
        led = self._replicas.led.get(place)
        still = []
        for end, epoch, done in waiting:
            if done.done():
                continue
            code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if led is not None and led.leader.epoch == epoch:
                code = led.leader.parked(led.half, end)
            if code is None:
                still.append((end, epoch, done))
            else:
                done.set_result(code)
        if still:
            self._waiting[place] = still

    def end(self) -> None:
        """This node stops: whoever waits hears that it leads no more."""
        waiting, self._waiting = self._waiting, {}
        for waits in waiting.values():
            for _, _, done in waits:
                if not done.done():
                    done.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
