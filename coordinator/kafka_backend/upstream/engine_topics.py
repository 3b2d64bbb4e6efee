"""The topics of the upstream: how many partitions they have, their ids, who leads them (KB-T1 to KB-T4).

Asked for every so often, at once where somebody knows of a change, and told as `TopicsChanged`, each change once. What
an answer means, `ownership.topics_seen` says. All in the thread of the loop, but for what says otherwise.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from types import MappingProxyType
from typing import Final

from muster.coordinator.core.model.core_events import TopicsChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import (
    NO_ID,
    TopicChange,
    TopicPresence,
    TopicQuestion,
    UpstreamTopic,
)
from muster.coordinator.kafka_backend.upstream.catalog import TopicKnowledge, ask_about_topics, fetch_all_topics
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream import MOST_TOPICS, Upstream
from muster.coordinator.kafka_backend.upstream.view import NO_LEADER, UpstreamMetadata

SOON_MS: Final = 500
"""Between two looks at least, whoever wants one."""


class UpstreamTopics:
    """`look` once, then `start`; `stop` ends it."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        now_ms: Callable[[], int],
        refresh_ms: int = 5_000,
        gone_after_ms: int = 60_000,
        private: Collection[str] = (),
        on_bug: Callable[[BaseException], None] = lambda error: None,
        on_trouble: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """now_ms: a clock that never goes back. refresh_ms, gone_after_ms: `engine.kafka.metadata.refresh.ms` and
        `engine.kafka.topic.gone.after.ms`. private: Muster's own topics, which match no pattern. on_trouble hears, as a
        sentence, why there was no answer, and of "" with the next one."""
        self._upstream = upstream
        self._now_ms = now_ms
        self._refresh_ms = refresh_ms
        self._private = frozenset(private)
        self._on_bug = on_bug
        self._on_trouble = on_trouble
        self._seen = TopicPresence(gone_after_ms)
        self._mark = b""
        self._view = UpstreamMetadata()
        self._internal: frozenset[str] = frozenset()
        self._event = TopicsChanged({})
        self._listeners: list[Callable[[TopicsChanged], None]] = []
        self._wanted = asyncio.Event()
        self._looked_ms: int | None = None
        self._looking: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._troubled = False

    # -- what is known --------------------------------------------------------------------------------------------

    def partitions(self) -> Mapping[str, int]:
        """How many each topic has; the same object until there is a change."""
        return self._event.partitions

    def ids(self) -> Mapping[str, bytes]:
        """16 bytes each, Kafka's (KB-T2). What matches no pattern has none here."""
        return self._event.ids

    def topic(self, name: str) -> UpstreamTopic | None:
        """Whatever its name, Muster's own too; None: there is none (KB-T4)."""
        return self._seen.topics.get(name)

    def event(self) -> TopicsChanged:
        """All that there is, for an engine that has not heard of it yet."""
        return TopicsChanged(self._event.partitions, ids=self._event.ids)

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None:
        """From here on it hears of each change."""
        self._listeners.append(listener)

    @property
    def internal(self) -> frozenset[str]:
        """Topics that are not there for applications: Kafka's own, and Muster's."""
        return self._internal | self._private

    @property
    def known(self) -> bool:
        """Whether the upstream has told of its topics at all."""
        return self._looked_ms is not None

    def unseen(self) -> Mapping[str, int]:
        """Topics that answers leave out and that are still planned with: for how many milliseconds (KB-T4)."""
        return self._seen.unseen(self._now_ms())

    def leader(self, topic: str, partition: int) -> int:
        """-1: nobody leads it, as far as is known. Any thread."""
        return self._view.leader(topic, partition)

    def recalled(self, core: object, orphans: Iterable[tuple[str, bytes]]) -> TopicsChanged:
        """A shard was read that has positions in topics which no answer has told of: see `TopicPresence.recalled`. All
        that there is, with them. It is what a `LedEngine` wants as `on_orphans`."""
        if isinstance(core, Shard):
            self._changed(self._seen.recalled(topics_with_offsets(core, orphans), self._now_ms()))
            self.look_soon()
        return self.event()

    # -- looking --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        under_way = [task for task in (self._task, self._looking) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def look_soon(self) -> None:
        """Topics were made, deleted or widened, or somebody's answers say that leaders have moved."""
        self._wanted.set()

    def wanted(self, names: Iterable[str]) -> None:
        """Members read these. What is not known of them is looked for soon: it may have been made just now."""
        if any(name not in self._event.partitions for name in names):
            self._wanted.set()

    async def look(self) -> None:
        """Ask for all topics. Who wants that while it is done gets the same answer. Raises UpstreamError."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        self._wanted.clear()
        told = await fetch_all_topics(self._upstream, self._view, self._mark)
        if told is not None:
            self._mark, self._view, self._internal = told.mark, told.view, told.internal
            self._changed(self._seen.heard(told.topics, self._now_ms()), first=self._looked_ms is None)
        self._looked_ms = self._now_ms()
        await self._ask()

    async def _run(self) -> None:
        while True:
            await self._due()
            try:
                await self.look()
            except UpstreamError as error:
                self._troubled = True
                self._on_trouble(f"the upstream does not tell of its topics: {error}")
            else:
                if self._troubled:
                    self._troubled = False
                    self._on_trouble("")

    async def _due(self) -> None:
        """Return when it is time to look: after a while, when a question is due, or sooner when somebody wants it."""
        await asyncio.sleep(min(SOON_MS, self._refresh_ms) / 1_000)
        ask_ms = self._seen.wish()
        rest_ms = self._refresh_ms - SOON_MS
        if ask_ms is not None:
            rest_ms = min(rest_ms, ask_ms - self._now_ms())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(rest_ms, 0) / 1_000):
                await self._wanted.wait()

    # -- what is gone ---------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Ask brokers about the topics that were left out. Who does not answer is asked again later."""
        questions = sorted(self._seen.questions(self._now_ms()), key=lambda question: question.besides)
        for besides, group in groupby(questions, key=lambda question: question.besides):
            broker, only = self._another_than(besides)
            same = list(group) if broker != NO_LEADER else []
            for begin in range(0, len(same), MOST_TOPICS):
                with suppress(UpstreamError):
                    told = await ask_about_topics(self._upstream, broker, same[begin : begin + MOST_TOPICS])
                    self._answered(broker, told, only=only)

    def _another_than(self, besides: int) -> tuple[int, bool]:
        """A broker to ask, one without failures before others, and whether it is the only one there is."""
        brokers = self._upstream.view.brokers
        if brokers.keys() <= {besides}:
            return (besides, True) if brokers else (NO_LEADER, False)
        others = sorted(brokers.keys() - {besides}, key=lambda broker: self._upstream.lines.failures(brokers[broker]))
        return others[0], len(brokers) == 1

    def _answered(self, broker: int, heard: Mapping[TopicQuestion, TopicKnowledge], *, only: bool) -> None:
        now_ms = self._now_ms()
        for question, told in heard.items():
            if told.now is not None:
                self._changed(self._seen.learn_some({question.name: told.now}))
            codes = told.name_code, told.id_code
            if 0 in codes:
                self._mark = b""  # an answer that still leaves it out is to be read again
            self._changed(self._seen.answered(question, broker, *codes, now_ms, only=only))

    def _changed(self, change: TopicChange, *, first: bool = False) -> None:
        if not change and not first:
            return
        topics = self._seen.topics
        partitions = {name: topic.partitions for name, topic in topics.items()}
        ids = {name: topic.id for name, topic in topics.items() if name not in self._private and any(topic.id)}
        self._event = TopicsChanged(MappingProxyType(partitions), tuple(sorted(change.gone)), MappingProxyType(ids))
        for listener in self._listeners:
            listener(self._event)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)


def topics_with_offsets(core: Shard, orphans: Iterable[tuple[str, bytes]]) -> dict[str, UpstreamTopic]:
    """These topics as the positions of a shard know them. Of two topics of one name the one with an id."""
    ids: dict[str, bytes] = {}
    for name, topic_id in orphans:
        ids[name] = topic_id if any(topic_id) else ids.get(name, NO_ID)
    counts = dict.fromkeys(ids, 0)
    for stored in core.state.offsets.values():
        for name, partition in stored:
            if name in counts and partition >= counts[name]:
                counts[name] = partition + 1
    return {name: UpstreamTopic(topic_id, counts[name]) for name, topic_id in ids.items()}
