"""Watches the topics of the upstream: partition counts, ids, leaders, and where their logs begin and end.

Topics are read periodically, and soon after a change is known of; each change is published once as `TopicsChanged`
(KB-T1 to KB-T4). `kafka_backend/shard_ownership/topic_presence.py` decides what an answer means. Everything runs in
the thread of the loop, except where a docstring says otherwise.

Log ends are asked of the leaders on behalf of whoever plans or describes a group (KB-T5, KB-T6). An answer of the
last second is used again, and a question in flight is shared. A leader that does not answer is left alone for a
while; the last known ends of its partitions are returned as `LastKnownExtent`.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import (
    NO_ID,
    TopicPresence,
    TopicPresenceChange,
    TopicQuestion,
    UpstreamTopic,
)
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import WAIT_FOR_LEADER, UpstreamError
from muster.coordinator.kafka_backend.upstream.record_requests import EARLIEST, LATEST
from muster.coordinator.kafka_backend.upstream.topic_requests import TopicKnowledge, ask_about_topics, fetch_all_topics
from muster.coordinator.kafka_backend.upstream.upstream_client import MOST_TOPICS, NO_LEADER, Upstream, UpstreamMetadata
from muster.coordinator.runtime.ports import LastKnownExtent, LogFailed, LogNotReady

# Topics, partitions, ids and leaders (KB-T1 to KB-T4)
# ----------------------------------------------------

SOON_MS: Final = 500
"""Between two looks at least, whoever wants one."""

MOST_LATE_MS: Final = 15_000
"""How long before the node reads of a change clients may be said to have noticed it."""


class UpstreamTopics:
    """`refresh_topics` once, then `start`; `stop` ends it."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        now_ms: Callable[[], int],
        refresh_ms: int = 5_000,
        gone_after_ms: int = 60_000,
        private: Collection[str] = (),
        on_trouble: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """now_ms: a clock that never goes back. refresh_ms, gone_after_ms: `engine.kafka.metadata.refresh.ms` and
        `engine.kafka.topic.gone.after.ms`. private: Muster's own topics, which match no pattern. on_trouble hears, as a
        sentence, why there was no answer, and of "" with the next one."""
        self._upstream = upstream
        self._now_ms = now_ms
        self._refresh_ms = refresh_ms
        self._private = frozenset(private)
        self._on_trouble = on_trouble
        self._seen = TopicPresence(gone_after_ms)
        self._mark = b""
        self._view = UpstreamMetadata()
        self._internal: frozenset[str] = frozenset()
        self._event = TopicsChanged({})
        self._listeners: list[Callable[[TopicsChanged], None]] = []
        self._wanted = asyncio.Event()
        self._looked_ms: int | None = None
        self._looks_ms: tuple[int, int] | None = None
        """When the last two looks began, older first."""
        self._looking: asyncio.Future[None] | None = None
        self._running = RestartedTask("topics of the Kafka", self._run)
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
        return TopicsChanged(self._event.partitions, ids=self._event.ids, disowned=self._event.disowned)

    @property
    def late_ms(self) -> int:
        """How long before it was told the last change may have happened."""
        return self._event.late_ms

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
        that there is, with them. It is what a `LeasedEngine` wants as `on_orphans`."""
        if isinstance(core, Shard):
            self._changed(self._seen.recalled(topics_with_offsets(core, orphans), self._now_ms()))
            self.look_soon()
        return self.event()

    # -- looking --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running.start()

    async def stop(self) -> None:
        self._running.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._running.stop()

    def look_soon(self) -> None:
        """Topics were made, deleted or widened, or somebody's answers say that leaders have moved."""
        self._wanted.set()

    def wanted(self, names: Iterable[str]) -> None:
        """Members read these. What is not known of them is looked for soon: it may have been made just now."""
        if any(name not in self._event.partitions for name in names):
            self._wanted.set()

    async def refresh_topics(self) -> None:
        """Ask for all topics. Who wants that while it is done gets the same answer. Raises UpstreamError."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._fetch_topics())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._looking)

    async def _fetch_topics(self) -> None:
        self._wanted.clear()
        begun_ms = self._now_ms()
        told = await fetch_all_topics(self._upstream, self._view, self._mark)
        if told is not None:
            self._mark, self._view, self._internal = told.mark, told.view, told.internal
            self._changed(self._seen.heard(told.topics, self._now_ms()), first=self._looked_ms is None)
        self._looked_ms = self._now_ms()
        await self._ask_about_missing()
        self._looks_ms = (begun_ms if self._looks_ms is None else self._looks_ms[1], begun_ms)

    async def _run(self) -> None:
        while True:
            await self._due()
            try:
                await self.refresh_topics()
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

    async def _ask_about_missing(self) -> None:
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

    def _changed(self, change: TopicPresenceChange, *, first: bool = False) -> None:
        disowned = self._seen.disowned
        if not change and not first and disowned == self._event.disowned:
            return
        topics = self._seen.topics
        # A broker may have been behind when it was asked last: the look before that one counts.
        late_ms = 0 if self._looks_ms is None else min(self._now_ms() - self._looks_ms[0], MOST_LATE_MS)
        partitions = {name: topic.partitions for name, topic in topics.items()}
        ids = {name: topic.id for name, topic in topics.items() if name not in self._private and any(topic.id)}
        self._event = TopicsChanged(
            MappingProxyType(partitions),
            tuple(sorted(change.gone)),
            MappingProxyType(ids),
            disowned=disowned,
            late_ms=late_ms,
        )
        for listener in self._listeners:
            listener(self._event)


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


# Where logs begin and end (KB-T5, KB-T6)
# ---------------------------------------

ENDS: Final = "ends"
"""The purpose of the connections: no heartbeat waits behind a question about thousands of logs."""

FRESH_MS: Final = 1_000
"""KB-T5: so old an answer may be."""

STARTS_MS: Final = 10_000
"""Where logs begin changes seldom."""

SILENT_MS: Final = 5_000
"""So long a leader is left alone that did not answer."""

MOST: Final = 200_000
"""Partitions that are kept in mind; those that somebody asked about first are forgotten first."""

AT_ONCE: Final = 20_000
"""Partitions in one request."""

UNKNOWN: Final = -1
LONG_AGO: Final = -(1 << 60)


class KnownSpan(NamedTuple):
    """What is known of one log. start, end: UNKNOWN where nobody has said. Moments in ms: start_ms, when the start was
    told; told_ms, when the end was; asked_ms, over_ms: when the last round about it began, and was over."""

    start: int = UNKNOWN
    end: int = UNKNOWN
    start_ms: int = LONG_AGO
    told_ms: int = LONG_AGO
    asked_ms: int = LONG_AGO
    over_ms: int = LONG_AGO

    def fresh(self, now_ms: int) -> bool:
        """Whether it need not be asked for: it was, and that is no use again so soon."""
        return now_ms - (self.told_ms if self.told_ms >= self.asked_ms else self.over_ms) <= FRESH_MS

    @property
    def span(self) -> tuple[int, int] | LastKnownExtent | None:
        if self.start == UNKNOWN or self.end == UNKNOWN:
            return None
        both = min(self.start, self.end), self.end
        return both if self.told_ms >= self.asked_ms else LastKnownExtent(*both)


NOTHING: Final = KnownSpan()


class KnowsLeaders(Protocol):
    """`Topics`, as far as it is asked here."""

    def leader(self, topic: str, partition: int) -> int: ...

    async def refresh_topics(self) -> None: ...

    def look_soon(self) -> None: ...


class UpstreamLogEnds:
    """Made in the loop that it lives in."""

    def __init__(
        self, upstream: Upstream, topics: KnowsLeaders, *, now_ms: Callable[[], int], patience_ms: int
    ) -> None:
        """patience_ms: `group.assignor.deadline.ms`: how long a question may take."""
        self._upstream = upstream
        self._topics = topics
        self._now_ms = now_ms
        self._patience_s = patience_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._known: dict[TopicPartition, KnownSpan] = {}
        self._asking: dict[TopicPartition, asyncio.Future[None]] = {}
        self._silent: dict[int, int] = {}

    # -- for any thread -----------------------------------------------------------------------------------------------

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a log, and the one after its last; a `LastKnownExtent` where its leader does not answer.

        Raises LogNotReady until it was asked for, and LogFailed where nobody has ever said.
        """
        place = (topic, partition)
        found = self._known.get(place, NOTHING)
        if not found.fresh(self._now_ms()):
            raise LogNotReady(f"where {topic}-{partition} ends is asked of its leader", lambda: self._wait([place]))
        if (span := found.span) is None:
            raise LogFailed(f"where {topic}-{partition} ends is not known: its leader does not answer")
        return span

    def ends(self, places: Iterable[TopicPartition]) -> list[int]:
        """As last told; -1: never. `ahead` sees to it that they are fresh."""
        return [self._known.get(place, NOTHING).end for place in places]

    def starts(self, places: Iterable[TopicPartition]) -> list[int]:
        return [self._known.get(place, NOTHING).start for place in places]

    def measured(self, places: Sequence[TopicPartition]) -> list[tuple[int, int] | LastKnownExtent | None]:
        """The spans of now, as far as leaders answer in time; None where nobody has ever said. Not for the loop's
        thread: it waits."""
        self._wait(places)
        return [self._known.get(place, NOTHING).span for place in places]

    def _wait(self, places: Sequence[TopicPartition]) -> None:
        with suppress(concurrent.futures.CancelledError, RuntimeError, TimeoutError):  # the node is being stopped
            asyncio.run_coroutine_threadsafe(self.ahead(places), self._loop).result(3 * self._patience_s)

    # -- asking, in the loop ------------------------------------------------------------------------------------------

    async def ahead(self, places: Sequence[TopicPartition]) -> None:
        """Return when the leaders were asked for what is not fresh of these, or have taken too long."""
        begun_ms = self._now_ms()
        lacking = [place for place in places if not self._known.get(place, NOTHING).fresh(begun_ms)]
        others = {self._asking[place] for place in lacking if place in self._asking}
        mine = [place for place in lacking if place not in self._asking]
        if mine:
            await self._round(mine, begun_ms)
        if others:
            await asyncio.wait(others, timeout=self._patience_s)

    async def _round(self, places: list[TopicPartition], begun_ms: int) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        self._make_room(len(places))
        for place in places:
            self._asking[place] = over
            self._known[place] = self._known.get(place, NOTHING)._replace(asked_ms=begun_ms)
        try:
            async with asyncio.timeout(self._patience_s):
                if moved := await self._by_leaders(places):
                    await self._topics.refresh_topics()
                    await self._by_leaders(moved)
        except (TimeoutError, UpstreamError):
            pass  # what they did not say is not known
        finally:
            over_ms = self._now_ms()
            for place in places:
                del self._asking[place]
                self._known[place] = self._known.get(place, NOTHING)._replace(over_ms=over_ms)
            over.set_result(None)

    async def _by_leaders(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Ask each leader for its partitions; those that turned out to be led by another one."""
        led: dict[int, list[TopicPartition]] = {}
        for place in places:
            led.setdefault(self._topics.leader(*place), []).append(place)
        if led.pop(NO_LEADER, None):
            self._topics.look_soon()
        now_ms = self._now_ms()
        awake = [leader for leader in led if self._silent.get(leader, now_ms) <= now_ms]
        told = await asyncio.gather(*(self._asked(leader, led[leader]) for leader in awake))
        return [place for moved in told for place in moved]

    async def _asked(self, leader: int, places: list[TopicPartition]) -> list[TopicPartition]:
        """A leader that does not answer holds up nobody else's partitions, and no further round for a while."""
        moved: list[TopicPartition] = []
        answered = False
        try:
            now_ms = self._now_ms()
            begins = [place for place in places if now_ms - self._known.get(place, NOTHING).start_ms > STARTS_MS]
            for timestamp, some in ((EARLIEST, begins), (LATEST, places)):
                for begin in range(0, len(some), AT_ONCE):
                    moved += await self._list_ends(leader, some[begin : begin + AT_ONCE], timestamp)
            answered = True
        except UpstreamError:
            pass
        finally:  # it may have been cancelled, by the time that is over
            if not answered:
                self._silent[leader] = self._now_ms() + SILENT_MS
                self._topics.look_soon()
        return list(dict.fromkeys(moved))

    async def _list_ends(self, leader: int, places: Sequence[TopicPartition], timestamp: int) -> list[TopicPartition]:
        told = await record_requests.list_offsets(self._upstream, leader, places, timestamp, purpose=ENDS)
        now_ms = self._now_ms()
        for place, written in told.items():
            known = self._known.get(place)
            if known is None or written.code:
                continue
            if timestamp == EARLIEST:
                self._known[place] = known._replace(start=written.offset, start_ms=now_ms)
            else:
                self._known[place] = known._replace(end=written.offset, told_ms=now_ms)
        self._silent.pop(leader, None)
        return [place for place in places if place in told and told[place].code in WAIT_FOR_LEADER]

    def _make_room(self, more: int) -> None:
        for place in list(self._known)[: max(len(self._known) + more - MOST, 0)]:
            if place not in self._asking:
                del self._known[place]

    def forget(self, topics: Iterable[str]) -> None:
        """They are gone: what is made anew under their names has other ends."""
        gone = frozenset(topics)
        for place in [place for place in self._known if place[0] in gone and place not in self._asking]:
            del self._known[place]


def partitions_of(counts: Mapping[str, int]) -> list[TopicPartition]:
    """All partitions of these topics."""
    return [(topic, partition) for topic, count in counts.items() for partition in range(count)]
