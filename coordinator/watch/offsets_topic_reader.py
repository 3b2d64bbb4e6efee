"""Reads a Kafka's `__consumer_offsets` from its begin and follows it: one fetch at a time of each leader, for all
partitions that it leads.

Each partition is a `WatchedPartition`. One whose log does not have any more what was read of it (the topic was made
anew, or a leader lost records) is read again from its begin.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.record_requests import (
    EARLIEST,
    LATEST,
    OUT_OF_RANGE,
    fetch_log_sizes,
    list_offsets,
)
from muster.coordinator.kafka_backend.upstream.upstream_client import NO_LEADER, TopicMetadata, Upstream
from muster.coordinator.watch.fetch_session import NO_EPOCH, FetchPlace, TopicFetchSession
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.long_work import PieceSize

OFFSETS_TOPIC: Final = "__consumer_offsets"

UNKNOWN_TOPIC: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29
IDLE_S: Final = 2.0
"""Between two fetches of a broker once all has been read. The broker keeps none of them open: it would look at all that
is asked for with each commit that comes."""

CALM_S: Final = 30.0
CALM_IDLE_S: Final = 5.0
"""Between two where nothing has happened for so long but commits: whoever sees something happen stirs the reader."""

MUCH_BYTES: Final = 256 << 10
"""Of one partition in an answer: then it is asked again at once."""

PAUSE_S: Final = 0.5
"""After an answer that brought nothing but trouble."""

LONG_PAUSE_S: Final = 10.0
"""Until it is tried again to read what nobody may read."""

SAME_S: Final = 30.0
"""Between two looks at whether the topic is still the same, where nothing that is read says that it is not."""


# What is not allowed
# -------------------


def grant_command(bootstrap: str, user: str, operations: Iterable[str], resource: str) -> str:
    """The command of Kafka's that lets this user do that.

    >>> grant_command("b1:9092", "ann", ["Read", "Describe"], "--topic __consumer_offsets")
    'kafka-acls.sh --bootstrap-server b1:9092 --add --allow-principal User:ann --operation Read --operation Describe \
--topic __consumer_offsets'
    """
    allowed = " ".join(f"--operation {each}" for each in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal User:{user or 'NAME'} "
        f"{allowed} {resource}"
    )


GRANT: Final = "this user lacks READ and DESCRIBE on the topic; to grant them: " + grant_command(
    "HOST:PORT", "", ("Read", "Describe"), f"--topic {OFFSETS_TOPIC}"
)


# The reader
# ----------


class ReadingProgress(NamedTuple):
    """Of one partition. records: that may be between where reading began and where it is; behind: between there and
    where the log ended when reading began; 0: caught up. size_bytes: how much lies between where it began and where
    it ended; 0: its leader does not tell."""

    records: int
    behind: int
    read_bytes: int = 0
    size_bytes: int = 0


class ReaderListener(Protocol):
    """Hears what the reader does."""

    def made_partition(self, partition: int, again: bool = False) -> WatchedPartition:
        """A partition is read from its begin. again: it may not have any more what was read of it, or of others before
        the topic was made anew."""

    def took_batches(self, partition: int) -> None:
        """Some batches were taken: what they say can be passed on. The loop waits."""

    def progressed(self, partition: int, progress: ReadingProgress) -> None:
        """It was read so far."""

    def found_partitions(self, count: int) -> Iterable[int]:
        """The topic has so many; which of them are to be read."""

    def may_read(self, allowed: bool) -> None:
        """Whether the Kafka lets us read the topic; the reader goes on trying."""

    def troubled(self, partition: int, why: str) -> None:
        """It cannot be read now; why, as a sentence, or "" where it can again."""

    def changed(self, what: str) -> None:
        """The topic has not any more what it had; what happened, as a sentence."""


@dataclass(slots=True)
class WatchedPosition:
    """Of one partition. started, goal: where its log began, and ended, when reading began; -1: not known yet."""

    watched: WatchedPartition
    started: int = -1
    next: int = -1
    goal: int = -1
    read_bytes: int = 0
    size_bytes: int = 0
    trouble: str = ""
    names_epoch: bool = True
    """Of the last batch, to its leader. Not to one that does not know the epochs of its own batches."""
    piece: PieceSize = field(default_factory=PieceSize)
    """Of batches that are taken at once: the loop has others to serve, and a record of very many members takes long."""

    @property
    def place(self) -> FetchPlace:
        return FetchPlace(self.next, self.watched.leader_epoch if self.names_epoch else NO_EPOCH)

    @property
    def progress(self) -> ReadingProgress:
        behind = max(0, self.goal - self.next)
        size_bytes = max(self.size_bytes, self.read_bytes) if self.size_bytes else 0
        return ReadingProgress(self.next - self.started, behind, self.read_bytes, size_bytes)


def describe_refusal(code: int) -> str:
    """Why its leader gives no records, and what to do about missing rights."""
    return GRANT if code == TOPIC_AUTHORIZATION_FAILED else f"its leader says {describe_code(code)}"


def describe_missing(code: int) -> str:
    """Why no leader is known. code: what the Kafka says of the topic."""
    if code == TOPIC_AUTHORIZATION_FAILED:
        return GRANT
    if code == UNKNOWN_TOPIC:
        return f"the Kafka has no such topic yet, since no group has committed anything, or {GRANT}"
    return "no broker leads it now"


class OffsetsTopicReader:
    """`start` in the loop it lives in; `stop` ends it."""

    def __init__(self, upstream: Upstream, partitions: Iterable[int], listener: ReaderListener) -> None:
        self._upstream = upstream
        self._listener = listener
        self._positions = {each: WatchedPosition(listener.made_partition(each)) for each in partitions}
        self._following: dict[int, RestartedTask] = {}
        self._looking = RestartedTask("leaders of watched partitions", self._look_for_leaders)
        self._hurried: dict[int, asyncio.Event] = {}
        """By leader: set, its next fetch is wanted at once."""
        self._sessions: dict[int, TopicFetchSession] = {}
        """By leader."""
        self._flowing: dict[int, bool] = {}
        """By leader, whether its last answer was so large that there is likely to be more."""
        self._stirred_s = -CALM_S
        """When something happened last, by the loop's time."""
        self._stale = asyncio.Event()
        self._topic_id = b""
        self._unknown_epochs: dict[int, int] = {}
        """By partition, the last epoch that its leader did not know."""
        self._allowed = True

    def start(self) -> None:
        self._looking.start()

    def read_again(self, partition: int) -> None:
        """From its begin: what was said of it is lost."""
        if partition in self._positions:
            self._positions[partition] = WatchedPosition(self._listener.made_partition(partition, again=True))

    def stir(self) -> None:
        """Something has happened, and more is likely to: from now on fetches are frequent for a while."""
        self._stirred_s = asyncio.get_running_loop().time()

    def hurry(self) -> None:
        """Something has happened that records will tell of."""
        self.stir()
        for hurried in self._hurried.values():
            hurried.set()

    async def stop(self) -> None:
        await self._looking.stop()
        for task in self._following.values():
            await task.stop()
        await asyncio.gather(*(session.close() for session in self._sessions.values()))

    # -- leaders ------------------------------------------------------------------------------------------------------

    async def _look_for_leaders(self) -> None:
        """Have each leader followed, and look again when one turns out to lead no longer what was asked of it."""
        while True:
            self._stale.clear()
            try:
                view = await self._upstream.refresh([OFFSETS_TOPIC])
            except UpstreamError as error:
                self._trouble(self._positions, f"the Kafka cannot be reached: {error}")
                await asyncio.sleep(PAUSE_S)
                continue
            self._look_at_topic(view.topics.get(OFFSETS_TOPIC))
            leaders = {view.leader(OFFSETS_TOPIC, each) for each in self._positions}
            for leader in leaders - self._following.keys() - {NO_LEADER}:
                self._following[leader] = RestartedTask(
                    f"reading {OFFSETS_TOPIC} of broker {leader}", partial(self._follow, leader)
                )
                self._following[leader].start()
            for leader in self._following.keys() - leaders:
                self._following.pop(leader).cancel()
                self._sessions.pop(leader, None)
            lost = [each for each in self._positions if view.leader(OFFSETS_TOPIC, each) == NO_LEADER]
            topic = view.topics.get(OFFSETS_TOPIC)
            self._trouble(lost, describe_missing(0 if topic is None else topic.code))
            with suppress(TimeoutError):
                async with asyncio.timeout(LONG_PAUSE_S if not self._allowed else PAUSE_S if lost else SAME_S):
                    await self._stale.wait()
            await asyncio.sleep(PAUSE_S)

    def _look_at_topic(self, topic: TopicMetadata | None) -> None:
        """Whether it may be seen, is another one than before, or has other partitions."""
        if topic is not None and topic.code == TOPIC_AUTHORIZATION_FAILED:
            self._allow(False)
        if topic is None or topic.code or not topic.parts:
            return
        anew = bool(self._topic_id) and topic.topic_id != self._topic_id
        if anew:
            self._listener.changed(f"{OFFSETS_TOPIC} was deleted and made anew: it is read again from its begin")
        self._topic_id = topic.topic_id
        wanted = set(self._listener.found_partitions(len(topic.parts)))
        for each in self._positions.keys() - wanted:
            self._trouble([each], "")
            del self._positions[each]
        for each in sorted(wanted):
            if anew or each not in self._positions:
                self._positions[each] = WatchedPosition(self._listener.made_partition(each, again=anew))

    def _allow(self, allowed: bool) -> None:
        if allowed != self._allowed:
            self._allowed = allowed
            self._listener.may_read(allowed)

    def _led_by(self, leader: int) -> list[int]:
        view = self._upstream.view
        return [each for each in self._positions if view.leader(OFFSETS_TOPIC, each) == leader]

    async def _follow(self, leader: int) -> None:
        while True:
            led = self._led_by(leader)
            try:
                moved = not led or await self._read_once(leader, led)
            except Unreached as error:
                self._trouble(led, f"broker {leader} cannot be reached: {error}")
                moved = True
            except UpstreamError as error:
                self._trouble(led, f"broker {leader} lets nobody read it: {error}")
                moved = True
            if moved:
                self._stale.set()
                await asyncio.sleep(PAUSE_S if self._allowed else LONG_PAUSE_S)
            elif not self._flowing.get(leader) and all(position.next >= position.goal for position in self._known(led)):
                await self._rest(leader)

    def _known(self, partitions: Iterable[int]) -> list[WatchedPosition]:
        return [self._positions[each] for each in partitions if each in self._positions]

    async def _rest(self, leader: int) -> None:
        """Until the next fetch of all that a leader has is due, or wanted."""
        hurried = self._hurried.setdefault(leader, asyncio.Event())
        calm = asyncio.get_running_loop().time() - self._stirred_s >= CALM_S
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM_IDLE_S if calm else IDLE_S):
                await hurried.wait()
        hurried.clear()

    async def _read_once(self, leader: int, led: Sequence[int]) -> bool:
        """Fetch once for all partitions of a leader. Whether leaders have to be looked for. Raises UpstreamError."""
        await self._find_begins(leader, [each for each in led if self._positions[each].next < 0])
        ready = {each: self._positions[each] for each in led if self._positions[each].next >= 0}
        if not ready:
            return True
        session = self._sessions.setdefault(leader, TopicFetchSession(self._upstream, leader, OFFSETS_TOPIC))
        told = await session.fetch({each: position.place for each, position in ready.items()})
        self._flowing[leader] = any(len(each.records or b"") >= MUCH_BYTES for each in told.values())
        return any([await self._take(each, told.get(each)) for each in ready if self._reads(each, ready)])

    def _reads(self, partition: int, asked: Mapping[int, WatchedPosition]) -> bool:
        """Whether it is still read as it was when it was asked for: the topic may be another one since."""
        return self._positions.get(partition) is asked[partition]

    def _trouble(self, partitions: Iterable[int], why: str) -> None:
        for each in partitions:
            if self._positions[each].trouble != why:
                self._positions[each].trouble = why
                self._listener.troubled(each, why)

    # -- one partition ------------------------------------------------------------------------------------------------

    async def _find_begins(self, leader: int, partitions: Sequence[int]) -> None:
        """Where to begin, and where the past ends; what cannot be told now is asked again. Raises UpstreamError."""
        if not partitions:
            return
        places = [(OFFSETS_TOPIC, each) for each in partitions]
        ends = await list_offsets(self._upstream, leader, places, LATEST)
        begins = await list_offsets(self._upstream, leader, places, EARLIEST)
        sizes: dict[int, int] = {}
        with suppress(UpstreamError):  # one who may not ask is told how many records it is
            sizes = await fetch_log_sizes(self._upstream, leader, OFFSETS_TOPIC, partitions)
        for each, place in zip(partitions, places, strict=True):
            code = begins[place].code or ends[place].code
            if code:
                self._allow(code != TOPIC_AUTHORIZATION_FAILED)
                self._trouble([each], f"broker {leader} does not tell where it begins and ends: {describe_code(code)}")
                continue
            position, first = self._positions[each], begins[place].offset
            position.started = position.next = first
            position.goal = ends[place].offset
            position.size_bytes = sizes.get(each, 0)
            self._tell_progress(each)

    async def _take(self, partition: int, came: Any) -> bool:
        """Whether its leader has to be looked for. came: its part of a Fetch answer, or None."""
        position = self._positions[partition]
        if came is None:
            return True
        if came.error_code == OUT_OF_RANGE:
            await self._find_place(partition)
            return False
        if came.error_code:
            self._allow(came.error_code != TOPIC_AUTHORIZATION_FAILED)
            self._trouble([partition], describe_refusal(came.error_code))
            return True
        self._allow(True)
        self._trouble([partition], "")
        parted = came.diverging_epoch
        if parted is not None and parted.end_offset >= 0:
            self._read_parted(partition, parted.end_offset)
            return False
        data = came.records or b""
        await self._take_batches(partition, memoryview(data))
        if not data and position.next < position.goal:
            position.goal = came.high_watermark
            self._tell_progress(partition)
        return False

    async def _take_batches(self, partition: int, data: memoryview) -> None:
        """So many bytes at a time that the loop has turns in between. Half a batch at the end is fetched again."""
        position, at = self._positions[partition], 0
        size = position.piece.bytes
        while at < len(data):
            taken = self._take_slice(position, data[at : at + size])
            if not taken and at + size >= len(data):
                return
            at, size = at + taken, position.piece.bytes if taken else 4 * size
            self._listener.took_batches(partition)
            self._tell_progress(partition)
            await asyncio.sleep(0)
            if self._positions.get(partition) is not position:
                return  # it is read again meanwhile

    def _take_slice(self, position: WatchedPosition, data: memoryview) -> int:
        """How many bytes of it were whole batches."""
        began_s = perf_counter()
        try:
            taken = position.watched.take_batches(data)
        except Exception:
            position.next = max(position.watched.next_offset, position.next + 1)  # not to meet it for ever
            raise
        position.next = max(position.watched.next_offset, position.next)
        position.read_bytes += taken
        if taken:
            position.piece.note(taken, perf_counter() - began_s)
        return taken

    def _tell_progress(self, partition: int) -> None:
        self._listener.progressed(partition, self._positions[partition].progress)

    async def _find_place(self, partition: int) -> None:
        """It was asked for an offset that is not there: its begin was removed meanwhile, or it is another log now.
        Or the offset is there, and its leader knows nothing of the epoch of the batch before it."""
        position = self._positions[partition]
        place = (OFFSETS_TOPIC, partition)
        leader = self._upstream.leader(*place)
        begins = (await list_offsets(self._upstream, leader, [place], EARLIEST))[place]
        ends = (await list_offsets(self._upstream, leader, [place], LATEST))[place]
        if begins.code or ends.code:
            return
        if ends.offset < position.next:
            self._read_parted(partition, ends.offset)
        elif begins.offset > position.next:
            self._listener.changed(
                f"{OFFSETS_TOPIC}-{partition} begins at offset {begins.offset} now, and had been read up to "
                f"{position.next}: what was between was removed before it was read, so rebalances may be missing"
            )
            position.next = begins.offset
        elif (epoch := position.place.leader_epoch) != NO_EPOCH:
            if self._unknown_epochs.get(partition) == epoch:
                position.names_epoch = False
            else:
                self._unknown_epochs[partition] = epoch
                self._read_parted(partition)

    def _read_parted(self, partition: int, offset: int | None = None) -> None:
        """Of what was read of it, the leader has nothing from there on. None: it does not tell from where."""
        where = "" if offset is None else f" at offset {offset}"
        self._listener.changed(
            f"{OFFSETS_TOPIC}-{partition} was truncated{where}, and had been read up to "
            f"{self._positions[partition].next}: it is read again, and rebalances that were told from the rest are no "
            "longer in its records"
        )
        self.read_again(partition)
        self._stale.set()  # it may be another topic by now
