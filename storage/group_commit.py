"""Many callers, one fsync: whoever asks while a flush runs shares the next one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from storage.broker import Broker
from storage.errors import StorageError
from storage.types import TopicPartition


class GroupCommit:
    """Flushes partitions off the event loop, one round at a time; each round serves all who waited for it."""

    def __init__(self, broker: Broker, *, workers: int = 4) -> None:
        self._broker = broker
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="fsync")
        self._workers = workers
        self._next: dict[TopicPartition, list[asyncio.Future[None]]] = {}
        self._running: asyncio.Task[None] | None = None

    async def flushed(self, partition: TopicPartition) -> None:
        """Return once all appended to the partition before this call is as durable as its settings promise.

        Raises the StorageError of the flush, or UnknownTopicOrPartition when the topic went meanwhile.
        """
        if not self._broker.log(*partition).waits_for_flush:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._next.setdefault(partition, []).append(done)
        if self._running is None:
            self._running = loop.create_task(self._rounds())
        await done

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while self._next:
            # One turn of the loop lets everybody who is ready join this round.
            await asyncio.sleep(0)
            waiting, self._next = self._next, {}
            partitions = list(waiting)
            shares = [partitions[start :: self._workers] for start in range(min(self._workers, len(partitions)))]
            outcomes = await asyncio.gather(
                *(loop.run_in_executor(self._pool, self._flush_each, share) for share in shares)
            )
            for outcome in outcomes:
                for partition, error in outcome.items():
                    for done in waiting[partition]:
                        self._settle(done, error)
        self._running = None

    def _flush_each(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Exception | None]:
        outcomes: dict[TopicPartition, Exception | None] = {}
        for partition in partitions:
            try:
                self._broker.flush([partition])
                outcomes[partition] = None
            except (StorageError, OSError) as error:
                outcomes[partition] = error
        return outcomes

    @staticmethod
    def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
        if done.done():
            return  # Whoever waited has gone.
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    async def close(self) -> None:
        """Finish the rounds under way and let the threads go."""
        if self._running:
            await self._running
        self._pool.shutdown(wait=False)
