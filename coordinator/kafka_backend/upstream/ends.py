"""Where logs of the upstream begin and end, asked of their leaders by whoever plans or looks at a group (KB-T5, KB-T6).

What was asked for within the last second is not asked for again, and what is being asked for is waited for. A leader
that does not answer is left alone for a while; what was last known of its partitions is told as that.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from muster.coordinator.kafka_backend.upstream import records
from muster.coordinator.kafka_backend.upstream.errors import WAIT_FOR_LEADER, UpstreamError
from muster.coordinator.kafka_backend.upstream.records import EARLIEST, LATEST, TopicPartition
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.upstream.view import NO_LEADER
from muster.coordinator.runtime.ports import LastKnownExtent, LogFailed, LogNotReady

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

    async def look(self) -> None: ...

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

        Raises NotYet until it was asked for, and LogFailed where nobody has ever said.
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
                    await self._topics.look()
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
                    moved += await self._told(leader, some[begin : begin + AT_ONCE], timestamp)
            answered = True
        except UpstreamError:
            pass
        finally:  # it may have been cancelled, by the time that is over
            if not answered:
                self._silent[leader] = self._now_ms() + SILENT_MS
                self._topics.look_soon()
        return list(dict.fromkeys(moved))

    async def _told(self, leader: int, places: Sequence[TopicPartition], timestamp: int) -> list[TopicPartition]:
        told = await records.list_offsets(self._upstream, leader, places, timestamp, purpose=ENDS)
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
