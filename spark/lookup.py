"""What the driver asks a node: which partitions there are, where their logs begin and end, where to begin reading."""

import asyncio
import logging
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from muster.client.calls.log_calls import EARLIEST, LATEST, list_offsets
from muster.client.calls.methods import METADATA
from muster.client.calls.transport import Transport
from muster.client.errors import NoOffset, UnknownTopic, refusal
from muster.client.loop import shared_loop
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.spark.errors import DataLoss, OptionError
from muster.spark.kept import settle_in
from muster.spark.reading_options import ReadOptions
from muster.spark.starting import PartitionNumbers, ReadPosition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.calls.group_calls import GroupCalls

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


class NodeLookup:
    """The calls of one driver. Every method waits for its answer, at most default.api.timeout.ms."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loop = shared_loop()
        self.transport = Transport(options.connection)
        settle_in()
        self._warned: dict[str, None] = {}
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
        return self._loop.run(work)

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
        answer = await self.transport.retried(METADATA, request, doing="looking up topics")
        found = {}
        for topic in answer.topics:
            if topic.error_code and topic.error_code != UNKNOWN_TOPIC:
                name = pb.ErrorCode.Name(topic.error_code)
                raise refusal(topic.error_code, name, topic.error_message, topic.name)
            if not topic.error_code:
                found[topic.name] = LookedUpTopic(topic.topic_id.hex(), len(topic.partitions))
        return dict(sorted(found.items()))

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
                    "startingOffsetsFallback=error says not to guess"
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
