"""The driver's questions to nodes: topics, log ends, start positions, and record sizes.

Spark asks for the latest offset every ten milliseconds, so a background task keeps a view current. The length of
records is taken from one batch header per partition and measured again after ten seconds.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from muster.client.calls.methods import METADATA, MULTI_FETCH
from muster.client.calls.topic_calls import EARLIEST, LATEST, list_offsets
from muster.client.calls.transport import Transport, now_ms
from muster.client.errors import ClientError, NoOffset, UnknownTopic, Unreachable, refusal
from muster.client.twins import shared_loop
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.spark.planning import OffsetRange
from muster.spark.read_options import DataLoss, OptionError, PartitionNumbers, ReadOptions, ReadPosition, settle_in
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.calls.group_calls import GroupCalls


# Topics and offsets
# ------------------

log = logging.getLogger("muster.spark")

UNKNOWN_TOPIC = 3
MAX_REMEMBERED_WARNINGS = 1_000
T = TypeVar("T")
LookupKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LookedUpTopic:
    """A topic as it is now; `id` is hexadecimal and never comes again."""

    id: str
    partitions: int


class LogBounds(NamedTuple):
    """The first offset that a log still holds, and the one its next record gets."""

    start: int
    end: int


REFUSED_MS: Final = 10_000
REFUSED: Final = "Connection refused"
"""What gRPC's detail says of a port at which nothing listens."""


class NodeLookup:
    """The calls of one driver. Every method waits for its answer, at most default.api.timeout.ms."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loop = shared_loop()
        self.transport = Transport(options.connection)
        settle_in()
        self._warned: dict[str, None] = {}
        self._answered = False
        self.group = self._group_calls(options.group_id)

    def _group_calls(self, group_id: str | None) -> "GroupCalls | None":
        if group_id is None:
            return None
        from muster.client.calls.group_calls import GroupCalls

        return GroupCalls(self.transport, group_id)

    @property
    def address(self) -> str:
        return self.transport.bootstrap

    def warn(self, text: str) -> None:
        """Say it once: Spark asks the same question every ten milliseconds."""
        if text not in self._warned:
            self._warned[text] = None
            log.warning("%s", text)
        while len(self._warned) > MAX_REMEMBERED_WARNINGS:
            del self._warned[next(iter(self._warned))]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. Spark prints an error's frames above its sentence: those below this one are left out."""
        try:
            return self._loop.run(work)
        except ClientError as error:
            raise error.with_traceback(None) from None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin `work` in the background; it ends when it is cancelled, at the latest with the process."""
        return self._loop.submit(work)

    def close(self) -> None:
        self.run(self.transport.close())

    # What there is

    async def topics(self) -> dict[str, LookedUpTopic]:
        """The topics that the options mean and that exist."""
        options = self._options
        if options.subscribe_pattern is not None:
            pattern = re.compile(options.subscribe_pattern)
            everything = await self._metadata(pb.MetadataRequest(all_topics=True))
            return {name: topic for name, topic in everything.items() if pattern.fullmatch(name)}
        return await self._metadata(pb.MetadataRequest(topics=sorted(options.assign or options.topics)))

    async def _metadata(self, request: pb.MetadataRequest) -> dict[str, LookedUpTopic]:
        answer = await self._ask_metadata(request)
        found = {}
        for topic in answer.topics:
            if topic.error_code and topic.error_code != UNKNOWN_TOPIC:
                name = pb.ErrorCode.Name(topic.error_code)
                raise refusal(topic.error_code, name, topic.error_message, topic.name)
            if not topic.error_code:
                found[topic.name] = LookedUpTopic(topic.topic_id.hex(), len(topic.partitions))
        return dict(sorted(found.items()))

    async def _ask_metadata(self, request: pb.MetadataRequest) -> pb.MetadataResponse:
        """A query whose node refuses connections from the first says so after REFUSED_MS: nothing listens there. One
        that has been answered waits for its node to come back for as long as any call may take."""
        patience_ms = self._options.connection.default_api_timeout_ms
        if not self._answered and patience_ms > REFUSED_MS:
            try:
                return await self._metadata_within(request, REFUSED_MS)
            except Unreachable as error:
                if REFUSED in error.detail:
                    raise
                patience_ms -= REFUSED_MS
        return await self._metadata_within(request, patience_ms)

    async def _metadata_within(self, request: pb.MetadataRequest, timeout_ms: int) -> pb.MetadataResponse:
        answer = await self.transport.retried(METADATA, request, doing="looking up topics", timeout_ms=timeout_ms)
        self._answered = True
        return answer

    def partitions_of(self, topics: Mapping[str, LookedUpTopic]) -> list[LookupKey]:
        """The partitions that the options mean; UnknownTopic when one that is named does not exist."""
        options = self._options
        for name in sorted(options.assign or options.topics):
            if name not in topics:
                raise build_unknown_topic(f"there is no topic {name!r}; create it first")
        for name, numbers in (options.assign or {}).items():
            if max(numbers) >= topics[name].partitions:
                last = topics[name].partitions - 1
                raise build_unknown_topic(f"assign: {name} has partitions 0 to {last}; {max(numbers)} is not one")
        return self.existing(topics)

    def existing(self, topics: Mapping[str, LookedUpTopic]) -> list[LookupKey]:
        """Those partitions of them that exist."""
        assign = self._options.assign
        return [
            (name, number)
            for name, topic in sorted(topics.items())
            for number in range(topic.partitions)
            if assign is None or number in assign.get(name, ())
        ]

    async def bounds(self, partitions: Iterable[LookupKey]) -> dict[LookupKey, LogBounds]:
        """Where logs begin and end now: at the last stable offset when only committed data counts."""
        keys = [TopicPartition(*tp) for tp in partitions]
        committed = self._options.isolation_level == "read_committed"
        starts, ends = await asyncio.gather(
            list_offsets(self.transport, dict.fromkeys(keys, EARLIEST)),
            list_offsets(self.transport, dict.fromkeys(keys, LATEST), committed=committed),
        )
        # A log may be cut between the two answers.
        return {tp: LogBounds(starts[tp].offset, max(ends[tp].offset, starts[tp].offset)) for tp in keys}

    # Where to begin and to end

    async def positions(self, where: ReadPosition, bounds: Mapping[LookupKey, LogBounds]) -> dict[LookupKey, int]:
        """One offset per partition. Raises DataLoss, NoOffset, and OptionError by the name of the option."""
        option = where.option
        match where.kind:
            case "earliest":
                return {tp: known.start for tp, known in bounds.items()}
            case "latest":
                return {tp: known.end for tp, known in bounds.items()}
            case "committed":
                return await self._committed(bounds)
            case "offsets":
                given = number_every_partition(where.offsets, bounds, option)
                return {tp: self._explicit(tp, given[tp], bounds[tp], option) for tp in bounds}
            case "time":
                return await self._at_times(dict.fromkeys(bounds, where.time_ms), bounds, where.strategy, option)
            case _:
                times = number_every_partition(where.times, bounds, option)
                return await self._at_times(times, bounds, where.strategy, option)

    async def span(self) -> tuple[dict[LookupKey, int], dict[LookupKey, int]]:
        """Where a batch begins and where it ends, as of now. OptionError when it would begin behind its end."""
        options = self._options
        bounds = await self.bounds(self.partitions_of(await self.topics()))
        starts = await self.positions(options.starting, bounds)
        ends = await self.positions(options.ending, bounds)
        for tp, start in sorted(starts.items()):
            if start > ends[tp]:
                first, last = options.starting.option, options.ending.option
                raise OptionError(
                    f"{tp[0]}-{tp[1]}: {first} gives {start}, which is beyond {ends[tp]}, where {last} ends the read; "
                    f"move {first} back, or {last} on"
                )
        return starts, ends

    def _explicit(self, tp: LookupKey, offset: int, known: LogBounds, option: str) -> int:
        if offset in (EARLIEST, LATEST):
            return known.start if offset == EARLIEST else known.end
        return self.held(tp, offset, known, option)

    def held(self, tp: LookupKey, offset: int, known: LogBounds, what: str) -> int:
        """The offset, if the log goes so far back and so far on; else DataLoss, or the nearest one it holds."""
        nearest = min(max(offset, known.start), known.end)
        if nearest != offset:
            loss = DataLoss(
                f"{tp[0]}-{tp[1]}: {what} is {offset}, but the log at {self.address} holds {known.start} to {known.end}"
            )
            if self._options.fail_on_data_loss:
                raise loss
            self.warn(f"{loss.brief}; going on from {nearest}")
        return nearest

    async def _committed(self, bounds: Mapping[LookupKey, LogBounds]) -> dict[LookupKey, int]:
        found = await self.committed(bounds)
        fallback = self._options.starting_offsets_fallback
        positions = {}
        for tp, known in bounds.items():
            if (offset := found.get(tp)) is not None:
                positions[tp] = self.held(tp, offset, known, f"the offset committed by {self._options.group_id!r}")
            elif fallback == "error":
                raise NoOffset(
                    f"group {self._options.group_id!r} has committed nothing for {tp[0]}-{tp[1]}, and "
                    "startingOffsetsFallback is error; set it to earliest or latest, or commit an offset first"
                )
            else:
                positions[tp] = known.start if fallback == "earliest" else known.end
        return positions

    async def committed(self, partitions: Collection[LookupKey]) -> dict[LookupKey, int]:
        """What the group has committed, for those partitions where it has."""
        return {tp: entry.offset for tp, entry in (await self.committed_entries(partitions)).items()}

    async def committed_entries(self, partitions: Collection[LookupKey]) -> dict[LookupKey, OffsetAndMetadata]:
        """The same with the notes beside them."""
        assert self.group is not None, "the options were checked: committed offsets need a group"
        found = await self.group.committed([TopicPartition(*tp) for tp in partitions])
        return {(tp.topic, tp.partition): entry for tp, entry in found.items() if entry is not None}

    async def _at_times(
        self, times: Mapping[LookupKey, int], bounds: Mapping[LookupKey, LogBounds], strategy: str, option: str
    ) -> dict[LookupKey, int]:
        asked = {TopicPartition(*tp): times[tp] for tp in bounds}
        found = await list_offsets(self.transport, asked)
        positions = {}
        for tp, known in bounds.items():
            offset = found[TopicPartition(*tp)].offset
            if offset < 0 and strategy == "error":
                raise OptionError(
                    f"{option}: {tp[0]}-{tp[1]} has no record from {times[tp]} ms on; choose an earlier time, or "
                    "startingOffsetsByTimestampStrategy=latest"
                )
            positions[tp] = known.end if offset < 0 else min(max(offset, known.start), known.end)
        return positions


def build_unknown_topic(what: str) -> UnknownTopic:
    return UnknownTopic(UNKNOWN_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION", what)


def number_every_partition(
    numbers: PartitionNumbers, partitions: Collection[LookupKey], option: str
) -> dict[LookupKey, int]:
    """A number for each partition, as Spark wants it; OptionError names what is missing and what is too much."""
    given = {(topic, number): value for topic, row in numbers.items() for number, value in row.items()}
    missing = sorted(set(partitions) - set(given))
    unknown = sorted(set(given) - set(partitions))
    if missing or unknown:
        told = [f"it lacks {name_partitions(missing)}"] * bool(missing) + [
            f"{name_partitions(unknown)} is not read here"
        ] * bool(unknown)
        raise OptionError(f"{option} must name every partition that is read and no other: {'; '.join(told)}")
    return given


def name_partitions(partitions: Collection[LookupKey]) -> str:
    shown = [f"{topic}-{number}" for topic, number in list(partitions)[:5]]
    more = len(partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


# The view that is kept current in the background
# -----------------------------------------------

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
        return self.watch_log()

    def watch_log(self) -> LogView:
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


# Record sizes
# ------------

FRESH_MS = 10_000
SAMPLE_BYTES = 1 << 10
AT_ONCE = 200
MAX_KNOWN = 100_000


class RecordSizes:
    """Bytes per record as they lie in the log, by partition; asked for again after ten seconds."""

    def __init__(self, lookup: NodeLookup, options: ReadOptions) -> None:
        self._lookup = lookup
        self._patience_ms = options.connection.default_api_timeout_ms
        self._known: dict[LookupKey, tuple[float, int]] = {}

    def of(self, ranges: Collection[OffsetRange]) -> dict[LookupKey, float]:
        """Partitions that could not be measured are left out."""
        stale = [wanted for wanted in ranges if self._age_ms(wanted.tp) >= FRESH_MS]
        for place in range(0, len(stale), AT_ONCE):
            self._lookup.run(self._measure(stale[place : place + AT_ONCE]))
        return {wanted.tp: self._known[wanted.tp][0] for wanted in ranges if wanted.tp in self._known}

    def _age_ms(self, tp: LookupKey) -> int:
        known = self._known.get(tp)
        return FRESH_MS if known is None else now_ms() - known[1]

    async def _measure(self, ranges: list[OffsetRange]) -> None:
        transport = self._lookup.transport
        by_leader, _ = transport.leaders.routed(TopicPartition(*wanted.tp) for wanted in ranges)
        wanted = {TopicPartition(*each.tp): each for each in ranges}
        lots = [(address, [wanted[tp] for tp in led]) for address, led in by_leader.items()]
        await asyncio.gather(*(self._measure_at(address, lot) for address, lot in lots))
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    async def _measure_at(self, address: str, ranges: list[OffsetRange]) -> None:
        """What is led elsewhere by now is not measured, this time."""
        request = pb.MultiFetchRequest(max_bytes=AT_ONCE * SAMPLE_BYTES)
        for wanted in ranges:
            request.fetches.add(
                topic=wanted.topic,
                partition=wanted.partition,
                fetch_offset=wanted.start,
                partition_max_bytes=SAMPLE_BYTES,
            )
        answer = await self._lookup.transport.retried(
            MULTI_FETCH, request, doing="measuring records", address=address or None, timeout_ms=self._patience_ms
        )
        for wanted, found in zip(ranges, answer.results, strict=True):
            if (size := measure_record_size(found.result.records)) is not None:
                self._known.pop(wanted.tp, None)
                self._known[wanted.tp] = (size, now_ms())


def measure_record_size(data: bytes) -> float | None:
    """The mean of the first batch, of which the header is enough; None when there is none, or nothing in it.

    >>> measure_record_size(b"") is None
    True
    """
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        return None
    fields = HEADER.unpack_from(data)
    length, count = fields[1], fields[-1]
    return (length + LENGTH_OVERHEAD) / count if count > 0 else None
