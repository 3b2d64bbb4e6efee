"""Looks whether the state topic is the one it was, for as long as a node runs, and has it remembered (`marks.py`)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from muster.coordinator.kafka_backend.marks import TopicMarks, id_text
from muster.coordinator.kafka_backend.shard_ownership import events as ev
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.starting import StateTopicSpec
from muster.coordinator.kafka_backend.upstream.engine_topics import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.errors import WAIT_FOR_COORDINATOR, UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.running import BackgroundTask
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

log = structlog.get_logger("muster.engine")

AGAIN: Final = "`muster engine init --again` says that it counts, once you have looked"


class StateTopicWatch:
    """`start` once the start checks are passed; `stop` ends it. That the topic is gone, or another one, says
    `UpstreamTopics`
    (KB-T4); `tell` hears of it as `TopicLost` and `TopicFound`."""

    def __init__(
        self,
        upstream: Upstream,
        topics: UpstreamTopics,
        wanted: StateTopicSpec,
        *,
        tell: Callable[[ev.TopicLost | ev.TopicFound], None],
        now_ms: Callable[[], int],
        refresh_ms: int,
        mark_ms: int,
        on_bug: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """refresh_ms: how often it is looked, at least. mark_ms: how often it is remembered anew."""
        self._topics, self._wanted, self._tell = topics, wanted, tell
        self._marks = TopicMarks(upstream, wanted.cluster, wanted.topic)
        self._now_ms, self._refresh_ms, self._mark_ms = now_ms, refresh_ms, mark_ms
        self._mine: UpstreamTopic | None = None
        self._marked_ms: int | None = None
        self._lost = self._refused = ""
        self._changed = asyncio.Event()
        self._running = BackgroundTask(on_bug)

    def start(self) -> None:
        self._mine = self._topics.topic(self._wanted.topic)
        self._topics.on_change(lambda change: self._changed.set())
        self._running.start(self._run())

    async def stop(self) -> None:
        await self._running.stop()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._look()
            except UpstreamError as error:  # asked again
                self._tell_refusal(error)
            else:
                self._refused = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_ms / 1_000):
                    await self._changed.wait()

    def _tell_refusal(self, error: UpstreamError) -> None:
        """That nobody answers is told elsewhere; that a right is missing is not, where shards have theirs. Once."""
        if (
            isinstance(error, UpstreamRefused)
            and error.code not in WAIT_FOR_COORDINATOR
            and str(error) != self._refused
        ):
            self._refused = str(error)
            log.warning(
                f"the upstream does not remember the state topic {self._wanted.topic}: where it is deleted, a node "
                "that starts would make it anew, empty; `muster engine acls` prints what Muster's login has to be "
                "allowed",
                why=self._refused,
            )

    async def _look(self) -> None:
        found = self._topics.topic(self._wanted.topic)
        if found is not None and found != self._mine and await self._marks.knows(found):
            another = self._mine is None or found.id != self._mine.id
            self._mine, self._marked_ms, self._lost = found, None, ""
            self._tell(ev.TopicFound(another))
        why = self._why(found)
        if why != self._lost:
            self._lost = why
            self._tell(ev.TopicLost(why) if why else ev.TopicFound())
        if found is not None and not why:
            await self._mark(found)

    def _why(self, found: UpstreamTopic | None) -> str:
        """Why nothing may be served from it; "": it may."""
        name, mine = self._wanted.topic, self._mine
        if mine is None or found == mine:
            return ""
        was = f"the state topic {name} (id {id_text(mine.id)})"
        if found is None:
            return (
                f"{was} is deleted, and groups and positions with it; `muster engine init --again` makes it anew, empty"
            )
        if found.id != mine.id:
            return f"{was} is deleted, and another one of that name (id {id_text(found.id)}) is there; {AGAIN}"
        return f"{was} has {found.partitions} partitions, and had {mine.partitions}; {AGAIN}"

    async def _mark(self, found: UpstreamTopic) -> None:
        if self._marked_ms is None or self._now_ms() - self._marked_ms >= self._mark_ms:
            await self._marks.write(found)
            self._marked_ms = self._now_ms()
