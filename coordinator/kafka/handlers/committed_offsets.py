"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple, Protocol

from muster.coordinator.core.groups.group import ZOOKEEPER
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import Position
from muster.coordinator.edge.committed_offsets import (
    PartitionCounts,
    PartitionTuple,
    delete_existing,
    fetch_in_slices,
    merge_zookeeper_positions,
    partition_exists,
)
from muster.coordinator.edge.request_limits import name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, ThreadedAnswer
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.offset_commit_reader import (
    ANSWER,
    CommitHeader,
    CommitReader,
    CommitShape,
    OffsetCommitRequest,
    success_answer,
)
from muster.coordinator.kafka.protocol import check_length, check_optional_length
from muster.long_work import AT_ONCE, make_aside, sort_in_runs, work_through
from muster.storage.errors import StorageError

KNOWS_GROUP_ID_NOT_FOUND: Final = 9
"""OffsetCommit may be refused with that code from this version on."""

GROUP_CODE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""

BATCHED: Final = 8
"""OffsetFetch asks for several groups from this version on."""

IN_ZOOKEEPER: Final = 0
"""The version of OffsetCommit and OffsetFetch whose positions lie in ZooKeeper, where the node has one."""
NEWEST_OF_ERA: Final = 2
"""The newest OffsetFetch of ZooKeeper-based consumers: 1 until 0.10.1, 2 in 0.10.2 to 1.1. They name partitions."""

NO_RETENTION: Final = -1
LONGEST_RETENTION_MS: Final = 1 << 62
"""For ever: with the time of day added, it still fits the 64 bits of a stored time."""

NO_OFFSET: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
"""The protocol's words for a log's beginning and end: kafkajs resets a group by committing them."""


class ZooKeeperOffsets(Protocol):
    """Groups that keep their positions in ZooKeeper."""

    def knows(self, group_id: str) -> bool: ...

    async def positions(self, group_id: str) -> Mapping[tuple[str, int], int]:
        """Raises CoordinatorError while they cannot be read."""
        ...

    async def commit_positions(
        self, group_id: str, positions: Mapping[tuple[str, int], int]
    ) -> effects.OffsetCommitReply: ...


class CommittedOffsetHandlers:
    """`partitions` gives the catalog's partition counts: positions in a log that does not exist are refused.

    `log_span` gives a partition's first offset and its end. `elsewhere` are the groups of a ZooKeeper, if there is one.
    """

    def __init__(
        self,
        groups: GroupRequests,
        partitions: Callable[[], Mapping[str, int]],
        log_span: Callable[[str, int], tuple[int, int]],
        elsewhere: ZooKeeperOffsets | None = None,
    ) -> None:
        self._elsewhere = elsewhere
        self._groups = groups
        self._partitions = partitions
        self._log_span = log_span

    def offset_commit_reader(self, version: int) -> CommitReader:
        return CommitReader(version)

    def offset_commit_now(self, commit: OffsetCommitRequest, call: KafkaCall) -> Any:
        """Partitions that cannot be are refused one by one; the core judges the rest."""
        shape, version = commit.shape, call.api_version
        if version == IN_ZOOKEEPER and self._elsewhere is not None:
            return None
        if commit.made is not None:
            return self._commit_many(commit, call) if can_all_be_committed(commit, self._partitions()) else None
        refused: dict[tuple[str, int], ErrorCode] = {}
        positions = self._positions(commit, refused)
        if refused and not positions:
            return make_commit_response(shape, version, refused, effects.OffsetCommitReply())
        return self._groups.begin_request(
            shape.request.group_id,
            lambda: make_commit_event(shape, call, self._groups.next_id(), positions),
            effects.OffsetCommitReply,
            lambda reply: make_commit_response(shape, version, refused, reply),
        )

    async def offset_commit(self, commit: OffsetCommitRequest, call: KafkaCall) -> EncodedAnswer:
        """What takes its time. Positions of a client of Kafka 0.8 that goes by ZooKeeper are kept where whoever reads
        them there finds them. Very many of which some cannot be committed are looked at one by one, in a thread."""
        rows = len(commit.offsets)
        judged = await work_through(partial(judge_positions, commit, self._partitions()), rows)
        await self._look_up_ends(judged)
        shape, reply = commit.shape, effects.OffsetCommitReply()
        if judged.kept and call.api_version == IN_ZOOKEEPER and self._elsewhere is not None:
            positions = {place: offset for place, (offset, _, _) in judged.kept.items()}
            group_id = check_length("group_id", shape.request.group_id)
            reply = await self._elsewhere.commit_positions(group_id, positions)
        elif judged.kept:
            reply = await self._groups.ask_group(
                shape.request.group_id,
                lambda: make_commit_event(shape, call, self._groups.next_id(), judged.kept),
                effects.OffsetCommitReply,
            )
        return await work_through(partial(make_commit_response, shape, call.api_version, judged.refused, reply), rows)

    def _commit_many(self, commit: OffsetCommitRequest, call: KafkaCall) -> ThreadedAnswer:
        """The same of a large request, all of which can be committed: it has been read in a thread, and another one
        makes the answer."""
        positions = commit.positions()
        answer = partial(make_commit_response, commit.shape, call.api_version, {})
        begun = self._groups.begin_request(
            commit.shape.request.group_id,
            lambda: make_commit_event(commit.shape, call, self._groups.next_id(), positions),
            effects.OffsetCommitReply,
            lambda reply: partial(answer, reply),
        )
        return ThreadedAnswer(begun)

    async def offset_fetch(self, request: Any, call: KafkaCall) -> Any:
        """Rows by the thousand are made, and written, in a thread: the others' heartbeats do not wait for them."""
        if call.api_version < BATCHED:
            if call.api_version == IN_ZOOKEEPER:
                reply = await self._fetched_of_old(request)
            elif call.api_version <= NEWEST_OF_ERA and request.topics is not None:
                reply = await self._fetched_in_log(request, False, None, -1)
            else:
                reply = await self._fetched(request, request.require_stable, None, -1)
            aside = make_aside if request.topics is None else work_through
            return await aside(lambda: make_fetch_response(request, call.api_version, reply), offset_rows(reply))
        found = [
            (asked, await self._fetched(asked, request.require_stable, asked.member_id, asked.member_epoch))
            for asked in {each.group_id: each for each in request.groups}.values()
        ]
        entries = sum(offset_rows(reply) for _, reply in found)
        aside = make_aside if any(asked.topics is None for asked, _ in found) else work_through
        return await aside(lambda: make_batched_fetch_response(found, call.api_version), entries)

    async def _fetched_of_old(self, request: Any) -> effects.OffsetFetchReply:
        """As Kafka 0.8 told it: from ZooKeeper, where the node has one; what has no position is not known."""
        if self._elsewhere is None:
            reply = await self._fetched(request, False, None, -1)
        else:
            reply = await self._elsewhere_fetched(self._elsewhere, request.group_id)
        asked = ((topic.name, number) for topic in request.topics for number in topic.partition_indexes)
        unknown = dict.fromkeys(
            (place for place in asked if reply.offsets.get(place) is None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return reply if reply.code else replace(reply, refused={**unknown, **reply.refused})

    async def _elsewhere_fetched(self, elsewhere: ZooKeeperOffsets, group_id: str) -> effects.OffsetFetchReply:
        try:
            positions = await elsewhere.positions(check_length("group_id", group_id))
        except CoordinatorError as error:
            return effects.OffsetFetchReply(code=error.code, message=error.message)
        return merge_zookeeper_positions(effects.OffsetFetchReply(), positions, everything=True)

    async def offset_delete(self, request: Any, call: KafkaCall) -> Any:
        """Partitions that do not exist are refused for themselves; for such alone no group is asked, as in Kafka."""
        asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
        reply = await delete_existing(
            self._partitions(), asked, partial(self._deleted, request.group_id, name_operator(call.peer_host))
        )
        if reply.code is not ErrorCode.NONE:
            return struct("OffsetDeleteResponse")(error_code=reply.code)
        return await work_through(lambda: make_delete_response(request, call.api_version, reply.partitions), len(asked))

    async def _deleted(self, group_id: str, by: str, places: PartitionTuple) -> effects.OffsetDeleteReply:
        return await self._groups.ask_group(
            group_id,
            lambda: events.OffsetDelete(self._groups.next_id(), check_length("group_id", group_id), places, by),
            effects.OffsetDeleteReply,
        )

    async def _fetched(
        self, asked: Any, require_stable: bool, member_id: str | None, epoch: int
    ) -> effects.OffsetFetchReply:
        reply = await self._fetched_in_log(asked, require_stable, member_id, epoch)
        if reply.code is ErrorCode.NONE and self._elsewhere is not None and self._elsewhere.knows(asked.group_id):
            return await self._completed(self._elsewhere, asked.group_id, reply, everything=asked.topics is None)
        return reply

    async def _fetched_in_log(
        self, asked: Any, require_stable: bool, member_id: str | None, epoch: int
    ) -> effects.OffsetFetchReply:
        """Whatever ZooKeeper has of the group (GC-O6)."""

        def ask(places: PartitionTuple | None) -> Awaitable[effects.OffsetFetchReply]:
            return self._groups.ask_group(
                asked.group_id,
                lambda: events.OffsetFetch(
                    self._groups.next_id(),
                    check_length("group_id", asked.group_id),
                    places,
                    require_stable,
                    member_id or None,
                    epoch,
                ),
                effects.OffsetFetchReply,
            )

        everything = asked.topics is None
        named = () if everything else (zip(repeat(topic.name), topic.partition_indexes) for topic in asked.topics)
        return await fetch_in_slices(None if everything else chain.from_iterable(named), ask)

    async def _completed(
        self, elsewhere: ZooKeeperOffsets, group_id: str, reply: effects.OffsetFetchReply, *, everything: bool
    ) -> effects.OffsetFetchReply:
        """With what the group keeps in ZooKeeper, if it lives there; the larger counts where both have a position."""
        group = await self._groups.ask_group(
            group_id, lambda: events.DescribeGroup(self._groups.next_id(), group_id), effects.DescribeReply
        )
        if group.protocol_type != ZOOKEEPER:
            return reply
        try:
            positions = await elsewhere.positions(group_id)
        except CoordinatorError as error:
            return effects.OffsetFetchReply(code=error.code, message=error.message)
        return merge_zookeeper_positions(reply, positions, everything=everything)

    def _positions(
        self, commit: OffsetCommitRequest, refused: dict[tuple[str, int], ErrorCode]
    ) -> Mapping[tuple[str, int], Position]:
        """What can be committed, of a few; what cannot be is put into `refused`."""
        catalog = self._partitions()
        if commit.shape.within(catalog) and min(commit.offsets, default=0) >= 0:  # a call less
            return commit.positions()
        judged = judge_positions(commit, catalog)
        self._look_up_some(judged, judged.by_word)
        refused |= judged.refused
        return judged.kept

    async def _look_up_ends(self, judged: "JudgedPositions") -> None:
        """So many between two turns of the loop."""
        left = iter(judged.by_word)
        while some := tuple(islice(left, AT_ONCE)):
            self._look_up_some(judged, some)
            await asyncio.sleep(0)

    def _look_up_some(self, judged: "JudgedPositions", places: Iterable[tuple[str, int]]) -> None:
        for place in places:
            offset, leader_epoch, metadata = judged.by_word[place]
            try:
                judged.kept[place] = self._log_span(*place)[offset == LATEST], leader_epoch, metadata
            except StorageError:  # its directory is gone
                judged.refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class JudgedPositions(NamedTuple):
    """Of one commit. by_word: those that name an end of their log, which is still to be looked up."""

    kept: dict[tuple[str, int], Position]
    refused: dict[tuple[str, int], ErrorCode]
    by_word: dict[tuple[str, int], Position]


def can_all_be_committed(commit: OffsetCommitRequest, catalog: PartitionCounts) -> bool:
    return commit.shape.within(catalog) and min(commit.offsets, default=0) >= 0


def judge_positions(commit: OffsetCommitRequest, catalog: PartitionCounts) -> JudgedPositions:
    """One by one. In any thread."""
    judged = JudgedPositions({}, {}, {})
    for place, position in commit.positions().items():
        if not partition_exists(catalog, *place):
            judged.refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif position[0] >= 0:
            judged.kept[place] = position
        elif position[0] < EARLIEST:
            judged.refused[place] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        else:
            judged.by_word[place] = position
    return judged


def make_commit_event(
    shape: CommitShape, call: KafkaCall, request_id: int, positions: Mapping[tuple[str, int], Position]
) -> events.OffsetCommit:
    """Raises CoordinatorError for a name that is too long. Who commits is worked out once for all requests alike."""
    if shape.said is None:
        shape.said = commit_header(shape.request, call)
    before, behind = shape.said
    return events.OffsetCommit(request_id, *before, positions, *behind)


def commit_header(request: Any, call: KafkaCall) -> CommitHeader:
    """What an event takes of a request besides its positions."""
    generation, retention_ms = request.generation_id_or_member_epoch, request.retention_time_ms
    member = generation >= 0 or request.member_id
    before = (
        check_length("group_id", request.group_id),
        check_length("member_id", request.member_id),
        check_optional_length("group_instance_id", request.group_instance_id),
        generation,
    )
    behind = (
        None if retention_ms == NO_RETENTION else min(retention_ms, LONGEST_RETENTION_MS),
        call.api_version < KNOWS_GROUP_ID_NOT_FOUND,
        "" if member else name_operator(call.peer_host),
    )
    return before, behind


def make_commit_response(
    shape: CommitShape, version: int, refused: Mapping[tuple[str, int], ErrorCode], reply: effects.OffsetCommitReply
) -> EncodedAnswer:
    """One row for each of the request."""
    topics = shape.request.topics
    if reply.code is ErrorCode.NONE and not refused and not reply.partitions:
        if shape.all_well is None:
            shape.all_well = success_answer(shape, version)
        return shape.all_well
    return EncodedAnswer(
        encode(ANSWER, version, answer_with_codes(ANSWER, topics, {**reply.partitions, **refused}, reply.code))
    )


def answer_with_codes(name: str, topics: Any, codes: Mapping[tuple[str, int], int], rest: int) -> Any:
    """The answer of that name with a code for each partition of these topics: its own, or that of the `rest`."""
    made, row = struct(f"{name}.topics"), struct(f"{name}.topics.partitions")
    return struct(name)(
        topics=[
            made(
                name=topic.name,
                partitions=[
                    row(
                        partition_index=one.partition_index,
                        error_code=codes.get((topic.name, one.partition_index), rest),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def make_delete_response(request: Any, version: int, codes: Mapping[tuple[str, int], ErrorCode]) -> EncodedAnswer:
    made, row = struct("OffsetDeleteResponse.topics"), struct("OffsetDeleteResponse.topics.partitions")
    topics = [
        made(
            name=topic.name,
            partitions=[
                row(partition_index=one.partition_index, error_code=codes[topic.name, one.partition_index])
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return EncodedAnswer(encode("OffsetDeleteResponse", version, struct("OffsetDeleteResponse")(topics=topics)))


def offset_rows(reply: effects.OffsetFetchReply) -> int:
    return len(reply.offsets) + len(reply.refused)


def make_fetch_response(request: Any, version: int, reply: effects.OffsetFetchReply) -> EncodedAnswer:
    topics = fetched_topic_rows("OffsetFetchResponse.topics", request.topics, reply)
    code = reply.code if version >= GROUP_CODE else 0
    return EncodedAnswer(
        encode("OffsetFetchResponse", version, struct("OffsetFetchResponse")(topics=topics, error_code=code))
    )


def make_batched_fetch_response(found: Sequence[tuple[Any, effects.OffsetFetchReply]], version: int) -> EncodedAnswer:
    made = struct("OffsetFetchResponse.groups")
    groups = [
        made(
            group_id=asked.group_id,
            topics=fetched_topic_rows("OffsetFetchResponse.groups.topics", asked.topics, reply),
            error_code=reply.code,
        )
        for asked, reply in found
    ]
    return EncodedAnswer(encode("OffsetFetchResponse", version, struct("OffsetFetchResponse")(groups=groups)))


def fetched_topic_rows(path: str, asked: list[Any] | None, reply: effects.OffsetFetchReply) -> list[Any]:
    """Rows by topic, in the order asked, or in that of the names where everything was asked for."""
    if asked is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in sort_in_runs(reply.offsets):
            wanted.setdefault(topic, []).append(partition)
        pairs = list(wanted.items())
    else:
        pairs = [(topic.name, topic.partition_indexes) for topic in asked]
    made, row = struct(path), struct(f"{path}.partitions")
    return [
        made(name=name, partitions=[fetched_offset_row(row, name, one, reply) for one in partitions])
        for name, partitions in pairs
    ]


def fetched_offset_row(made: type[Any], topic: str, partition: int, reply: effects.OffsetFetchReply) -> Any:
    stored = reply.offsets.get((topic, partition))
    code = reply.refused.get((topic, partition), reply.code)
    if stored is None:
        return made(partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code)
    return made(
        partition_index=partition,
        committed_offset=stored.offset,
        committed_leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        error_code=code,
    )
