"""Many callers, one fsync: whoever asks while a flush runs shares the next one."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from storage.broker import Broker
from storage.errors import StorageError
from storage.types import TopicPartition

Waiting = dict[TopicPartition, list["asyncio.Future[None]"]]


class GroupCommit:
    """Flushes partitions off the event loop, one round at a time; each round serves all who waited for it."""

    def __init__(self, broker: Broker, *, workers: int = 4) -> None:
        self._broker = broker
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="fsync")
        self._workers = workers
        self._waiting: Waiting = {}
        # Shares of the round under way that are not back yet; the round that is about to begin counts as one.
        self._under_way = 0
        self._quiet: asyncio.Future[None] | None = None

    def flushed(self, partition: TopicPartition) -> "asyncio.Future[None]":
        """Done once all appended to the partition before this call is as durable as its settings promise.

        Fails with the StorageError of the flush, or UnknownTopicOrPartition when the topic went meanwhile. Whoever
        loses interest may cancel it.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        try:
            log = self._broker.log(*partition)
        except StorageError as error:
            done.set_exception(error)
            return done
        if not log.waits_for_flush:
            done.set_result(None)
            return done
        others = self._waiting.get(partition)
        if others is None:
            self._waiting[partition] = [done]
        else:
            others.append(done)
        if not self._under_way:
            self._begin_soon(loop)
        return done

    def _begin_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        # Whoever is ready to run now comes first, and can join the round.
        self._under_way = 1
        loop.call_soon(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, {}
        partitions = list(waiting)
        self._under_way = min(self._workers, len(partitions))
        for start in range(self._under_way):
            share = {partition: waiting[partition] for partition in partitions[start :: self._workers]}
            self._pool.submit(self._flush, loop, share)

    def _flush(self, loop: asyncio.AbstractEventLoop, share: Waiting) -> None:
        """In a thread of the pool."""
        outcomes = [(waiting, self._outcome(partition)) for partition, waiting in share.items()]
        loop.call_soon_threadsafe(self._settle, loop, outcomes)

    def _outcome(self, partition: TopicPartition) -> Exception | None:
        try:
            self._broker.flush([partition])
        except Exception as error:
            # Whatever it is, those who wait must hear of it.
            return error
        return None

    def _settle(
        self,
        loop: asyncio.AbstractEventLoop,
        outcomes: Iterable[tuple[list["asyncio.Future[None]"], Exception | None]],
    ) -> None:
        for waiting, error in outcomes:
            for done in waiting:
                if done.done():
                    continue  # Whoever waited has gone.
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)
        self._under_way -= 1
        if self._under_way:
            return
        if self._waiting:
            self._begin_soon(loop)
        elif self._quiet:
            self._quiet.set_result(None)

    async def close(self) -> None:
        """Finish the rounds under way and let the threads go."""
        if self._under_way:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet
        self._pool.shutdown(wait=False)
