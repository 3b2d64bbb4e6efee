"""Topics that come into being because a client asked for them: by ZooKeeper, which may take its time or be away."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from muster.coordinator.kafka.errors import LeaderNotAvailable
from muster.storage.broker.topic_requests import NewTopic
from muster.storage.errors import RequestTimedOut, StorageError, TopicAlreadyExists
from muster.storage.types import Topic

CREATION_WAIT_S: Final = 1.0
"""How long an answer waits for its topics. Its client asks again soon; its connection waits meanwhile."""

MAX_CREATIONS: Final = 1_000

CreateTopicsCall = Callable[[Sequence[NewTopic]], Awaitable[Sequence[Topic | StorageError]]]


class TopicCreations:
    """What is asked for again while it is under way is not begun a second time."""

    def __init__(self, create: CreateTopicsCall, patience_s: float = CREATION_WAIT_S) -> None:
        self._create = create
        self._patience_s = patience_s
        self.under_way: dict[str, asyncio.Task[dict[str, StorageError]]] = {}

    async def make(self, wanted: Sequence[NewTopic]) -> dict[str, StorageError]:
        """Why topics are not there yet, or will not be: by name; those that were made have none."""
        room = MAX_CREATIONS - len(self.under_way)
        new = [topic for topic in wanted if topic.name not in self.under_way][: max(0, room)]
        if new:
            self._begin(new)
        names = [topic.name for topic in wanted]
        tasks = {self.under_way[name] for name in names if name in self.under_way}
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience_s)
        refused: dict[str, StorageError] = {name: creation_in_progress(name) for name in names}
        for task in tasks:
            if task.done():
                refused |= task.result()
        return refused

    def _begin(self, new: Sequence[NewTopic]) -> None:
        names = [topic.name for topic in new]
        task = asyncio.create_task(self._made(new))
        self.under_way |= dict.fromkeys(names, task)
        task.add_done_callback(lambda _: self._forget(names))

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self.under_way[name]

    async def _made(self, wanted: Sequence[NewTopic]) -> dict[str, StorageError]:
        results = await self._create(wanted)
        return {
            topic.name: result
            for topic, result in zip(wanted, results, strict=True)
            if isinstance(result, StorageError) and not isinstance(result, RequestTimedOut | TopicAlreadyExists)
        }


def creation_in_progress(name: str) -> LeaderNotAvailable:
    return LeaderNotAvailable(f"Topic '{name}' is being made: nobody leads its partitions yet.")
