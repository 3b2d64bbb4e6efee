"""Where logs begin and end of which this node has no copy in sync: asked of their leaders, and cached.

Only what is asked about is fetched: all of it once a second, and sooner what is asked about for the first time. What
is no longer asked about is forgotten. A caller gets what is known, immediately. The same connections ask other nodes
which of their groups have settings.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import GroupsWithSettings, LogEndsQuery
from muster.coordinator.replication.io.wire.node_links import LinkError, LinkSettings, NodeLinks, address_in
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, ClusterImage
from muster.storage.errors import NotKnownYet

# The cache, and who asks when
# ----------------------------


PERIOD_MS: Final = 1_000
STALE_MS: Final = 30_000
"""An answer of so long ago is told no more: its leader is away."""

FORGET_MS: Final = 120_000
"""Longer than any sampler waits."""

MOST: Final = 50_000
"""Partitions that are kept; of further ones nothing is known."""

A_SECOND: Final = 2_000
"""Partitions that are asked for in a second, on the average: where they are more, rounds come further apart."""

AT_ONCE: Final = 1_000
"""Partitions in one question: to write five thousand takes 10 ms, and so does the answer."""

LOOKED_AT_ONCE: Final = 1_000
"""Partitions that are looked through before others have their turn, in less than a millisecond."""

STARTS_EVERY_MS: Final = 10_000
"""Where logs begin changes seldom."""

SOON_S: Final = 0.1
"""Between two rounds at least."""

PATIENCE_S: Final = 3.0
"""For who waits; the question to a leader ends sooner."""

LATEST: Final = -1
EARLIEST: Final = -2


class LogSpan(NamedTuple):
    """The first offset of a log, and its high watermark."""

    start: int
    end: int


class AskLogEnds(Protocol):
    """Asks the leader of partitions where they begin (EARLIEST) or end (LATEST). What it does not tell is left out,
    and all of it where it does not answer in time."""

    def __call__(
        self, node: int, places: Sequence[TopicPartition], timestamp: int
    ) -> Awaitable[Mapping[TopicPartition, int]]: ...


class WantedEnds:
    """A partition that somebody asked about."""

    __slots__ = ("asked_ms", "end", "end_ms", "start", "start_ms", "tried")

    def __init__(self, asked_ms: int) -> None:
        self.asked_ms = asked_ms
        self.tried = False
        self.start = self.end = -1
        self.start_ms = self.end_ms = -STALE_MS

    def span(self, now_ms: int) -> LogSpan | None:
        if self.start < 0 or self.end < 0 or now_ms - self.end_ms >= STALE_MS:
            return None
        return LogSpan(min(self.start, self.end), self.end)


class LeaderQuestions(NamedTuple):
    """For one leader."""

    ends: list[TopicPartition]
    starts: list[TopicPartition]


class LogEndCache:
    """What is wanted, and what is known of it. Pure: moments in ms come as arguments."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._wanted: dict[TopicPartition, WantedEnds] = {}
        self._untried = 0

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def period_ms(self) -> int:
        """Between two rounds about everything."""
        return max(PERIOD_MS, len(self._wanted) * 1_000 // A_SECOND)

    def request_span(self, place: TopicPartition, now_ms: int) -> LogSpan | None:
        """What is known of it now; it is asked for from here on."""
        wanted = self._wanted.get(place)
        if wanted is not None:
            wanted.asked_ms = now_ms
            return wanted.span(now_ms)
        if len(self._wanted) < self._most:
            self._wanted[place] = WantedEnds(now_ms)
            self._untried += 1
        return None

    def wanted(self) -> list[TopicPartition]:
        """All that no round was about yet."""
        return [place for place, wanted in self._wanted.items() if not wanted.tried] if self._untried else []

    @property
    def untried(self) -> bool:
        """Whether there is any such."""
        return self._untried > 0

    def tried(self, places: Iterable[TopicPartition]) -> None:
        """A round about them is over, whoever has answered."""
        for place in places:
            wanted = self._wanted.get(place)
            if wanted is not None and not wanted.tried:
                wanted.tried = True
                self._untried -= 1

    def places(self) -> list[TopicPartition]:
        """All that is wanted."""
        return list(self._wanted)

    def due(
        self,
        leader_of: Callable[[TopicPartition], int],
        now_ms: int,
        *,
        everything: bool = True,
        among: Iterable[TopicPartition] | None = None,
        found: dict[int, LeaderQuestions] | None = None,
    ) -> dict[int, LeaderQuestions]:
        """What to ask whom; only what is not known, unless `everything` is to be asked for.

        among: only of these; None: of all that is wanted. found: what others of this round are asked about, to which
        it is added.
        """
        found = {} if found is None else found
        for place in self.places() if among is None else among:
            wanted = self._wanted.get(place)
            if wanted is None:
                continue
            if now_ms - wanted.asked_ms >= FORGET_MS:
                del self._wanted[place]
                self._untried -= not wanted.tried
            elif (everything or wanted.span(now_ms) is None) and (leader := leader_of(place)) != NO_NODE_ID:
                questions = found.setdefault(leader, LeaderQuestions([], []))
                questions.ends.append(place)
                if wanted.start < 0 or now_ms - wanted.start_ms >= STARTS_EVERY_MS:
                    questions.starts.append(place)
        return found

    def store_offsets(self, timestamp: int, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        for place, offset in offsets.items():
            wanted = self._wanted.get(place)
            if wanted is None:
                continue
            if timestamp == EARLIEST:
                wanted.start, wanted.start_ms = offset, now_ms
            else:
                wanted.end, wanted.end_ms = offset, now_ms


class RemoteLogEnds:
    """Made in the loop it lives in. `leader_of` is NOBODY where nobody leads; `failed` hears of mistakes."""

    def __init__(
        self,
        leader_of: Callable[[TopicPartition], int],
        ask: AskLogEnds,
        now_ms: Callable[[], int],
        failed: TaskFailed,
        *,
        soon_s: float = SOON_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._leader_of = leader_of
        self._ask = ask
        self._now_ms = now_ms
        self._soon_s = soon_s
        self._patience_s = patience_s
        self._cache = LogEndCache()
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._rounds: list[asyncio.Future[None]] = []
        self._next_ms = 0
        self._tasks = SupervisedTasks(failed)

    def start(self) -> None:
        self._tasks.start(self._run())

    async def stop(self) -> None:
        self._tasks.stop()
        await self._tasks.ended()
        for each in self._rounds:
            each.cancel()

    def spans(self, places: Iterable[TopicPartition]) -> list[LogSpan | None]:
        """What is known of each now; None: nothing yet, or nothing any more."""
        now_ms = self._now_ms()
        with self._lock:
            before = len(self._cache)
            found = [self._cache.request_span(place, now_ms) for place in places]
            new = len(self._cache) > before
        if new and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)
        return found

    def span(self, place: TopicPartition) -> LogSpan:
        """Raises NotKnownYet, with which a thread may wait."""
        [found] = self.spans([place])
        if found is None:
            why = f"where partition {place[0]}-{place[1]} ends is not known here yet; its leader is asked"
            raise NotKnownYet(why, self._wait)
        return found

    @property
    def untried(self) -> bool:
        """Whether somebody asked about what no leader was asked for: it is worth to wait. A leader that did not answer
        once may be away for long."""
        return self._cache.untried

    async def known(self) -> None:
        """Return when all leaders have been asked for what is not known by now, or have taken too long."""
        asked = self._loop.create_future()
        self._rounds.append(asked)
        self._news.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await asked

    def _wait(self) -> None:
        """`known`, for a thread."""
        with suppress(concurrent.futures.CancelledError, RuntimeError, TimeoutError):  # the node is being stopped
            asyncio.run_coroutine_threadsafe(self.known(), self._loop).result(2 * self._patience_s)

    async def _run(self) -> None:
        while True:
            if not self._cache and not self._rounds:
                await self._news.wait()
            self._news.clear()
            rounds, self._rounds = self._rounds, []
            now_ms = self._now_ms()
            everything = now_ms >= self._next_ms
            with self._lock:
                wanted = self._cache.wanted()
            due = await self._due(now_ms, everything=everything)
            if everything:
                self._next_ms = now_ms + self._cache.period_ms
            await asyncio.gather(*(self._asked(leader, questions) for leader, questions in due.items()))
            with self._lock:
                self._cache.tried(wanted)
            for each in rounds:
                if not each.done():
                    each.set_result(None)
            await asyncio.sleep(self._soon_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, self._next_ms - self._now_ms()) / 1_000):
                    await self._news.wait()

    async def _due(self, now_ms: int, *, everything: bool) -> dict[int, LeaderQuestions]:
        """In slices: others have their turn in between."""
        found: dict[int, LeaderQuestions] = {}
        with self._lock:
            places = self._cache.places()
        for at in range(0, len(places), LOOKED_AT_ONCE):
            if at:
                await asyncio.sleep(0)
            among = places[at : at + LOOKED_AT_ONCE]
            with self._lock:
                self._cache.due(self._leader_of, now_ms, everything=everything, among=among, found=found)
        return found

    async def _asked(self, leader: int, questions: LeaderQuestions) -> None:
        for timestamp, places in ((EARLIEST, questions.starts), (LATEST, questions.ends)):
            for at in range(0, len(places), AT_ONCE):
                told = await self._ask(leader, places[at : at + AT_ONCE], timestamp)
                with self._lock:
                    self._cache.store_offsets(timestamp, told, self._now_ms())
                if not told:
                    return  # It is away, or leads none of them any more: the next round may know better.


# Asking leaders at the listener between nodes
# --------------------------------------------

CLIENT_PATIENCE_S: Final = 2.0

log = structlog.get_logger("muster.cluster")


class LogEndsClient:
    """Questions have links of their own: an answer may take its time."""

    def __init__(self, image: ClusterImage, calling: LinkSettings) -> None:
        self._image = image
        self._links = NodeLinks(calling, lambda node: address_in(image, node))

    def close(self) -> None:
        self._links.close()

    async def groups_with_settings(self, node: int) -> GroupsWithSettings:
        """Of those that the node coordinates; COORDINATOR_NOT_AVAILABLE where it does not say."""
        try:
            link = await self._links.to(node)
            return await link.groups_with_settings(deadline_s=CLIENT_PATIENCE_S)
        except LinkError as error:
            log.debug("a node does not say which groups have settings", node=node, why=str(error))
            return GroupsWithSettings(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def __call__(
        self, node: int, places: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, int]:
        topics = self._image.topics
        known = tuple((topics[topic].topic_id, number) for topic, number in places if topic in topics)
        try:
            link = await self._links.to(node)
            told = await link.log_ends(LogEndsQuery(timestamp == EARLIEST, known), deadline_s=CLIENT_PATIENCE_S)
        except LinkError as error:
            log.debug("a node does not say where logs end", node=node, why=str(error))
            return {}
        names = self._image.names
        return {(names[each.topic_id], each.partition): each.offset for each in told if each.topic_id in names}
