"""Where topics and their logs stand, looked up in the background: Spark asks every ten milliseconds."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from muster.client.calls.transport import now_ms
from muster.client.errors import UnknownTopic
from muster.spark.lookup import LogBounds, LookedUpTopic, LookupKey, NodeLookup

log = logging.getLogger("muster.spark")

TOPICS_EVERY_MS = 1_000
"""How often to ask which topics and partitions there are, unless where logs end is asked for less often."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What was so at one moment. Topics that are named but do not exist are left out."""

    topics: Mapping[str, LookedUpTopic]
    bounds: Mapping[LookupKey, LogBounds]

    def topic_ids(self, topics: "set[str] | frozenset[str]") -> dict[str, str]:
        return {name: self.topics[name].id for name in sorted(topics) if name in self.topics}


class LogWatch:
    """The latest view, at most about `refresh_ms` old while the node answers."""

    def __init__(self, lookup: NodeLookup, refresh_ms: int) -> None:
        self._lookup = lookup
        self._refresh_ms = refresh_ms
        self._lock = threading.Lock()
        self._view: LogView | None = None
        self._error: Exception | None = None
        self._topics: dict[str, LookedUpTopic] = {}
        self._topics_due_ms = 0
        self._task: Future[None] | None = None

    def view(self) -> LogView:
        """What is known; the first call asks and waits. Raises what the last look failed with, tries included."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._view is not None:
                return self._view
        return self.look()

    def look(self) -> LogView:
        """Ask now, and go on asking in the background from here on."""
        self._topics_due_ms = 0
        view = self._lookup.run(self._looked())
        self._keep(view, None)
        if self._task is None:
            self._task = self._lookup.start(self._look_again())
        return view

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _keep(self, view: LogView | None, error: Exception | None) -> None:
        with self._lock:
            self._view = view or self._view
            self._error = error

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_ms / 1000)
            try:
                self._keep(await self._looked(), None)
            except Exception as error:
                # A bug, too, is told by the next question; it must not end the looking in silence.
                self._keep(None, error)

    async def _looked(self) -> LogView:
        try:
            return await self._view_of_topics()
        except UnknownTopic:
            # A topic went between two answers; the next look knows that it is gone.
            self._topics_due_ms = 0
            return await self._view_of_topics()

    async def _view_of_topics(self) -> LogView:
        if now_ms() >= self._topics_due_ms:
            self._topics = await self._lookup.topics()
            self._topics_due_ms = now_ms() + max(TOPICS_EVERY_MS, self._refresh_ms)
        topics = self._topics
        return LogView(topics, await self._lookup.bounds(self._lookup.existing(topics)))
