"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, Protocol

from muster.coordinator.core import effects, events
from muster.coordinator.core.observed.group import ZOOKEEPER
from muster.coordinator.core.types import Position
from muster.coordinator.edge.catalog import exists
from muster.coordinator.edge.elsewhere import with_elsewhere
from muster.coordinator.edge.positions import Places, delete_known, fetch_in_slices, here_or_off_the_loop
from muster.coordinator.edge.words import operator
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import Aside, KafkaCall, Written
from muster.coordinator.kafka.groups.asking import Groups
from muster.coordinator.kafka.groups.commits import ANSWER, Commit, CommitReader, Said, Shape, all_well
from muster.coordinator.kafka.groups.request_limits import short, short_or_none
from muster.storage.errors import StorageError

KNOWS_GROUP_ID_NOT_FOUND: Final = 9
"""OffsetCommit may be refused with that code from this version on."""

GROUP_CODE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""

BATCHED: Final = 8
"""OffsetFetch asks for several groups from this version on."""

NO_RETENTION: Final = -1
LONGEST_RETENTION_MS: Final = 1 << 62
"""For ever: with the time of day added, it still fits the 64 bits of a stored time."""

NO_OFFSET: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
"""The protocol's words for a log's beginning and end: kafkajs resets a group by committing them."""


class Elsewhere(Protocol):
    """Groups that keep their positions in ZooKeeper."""

    def knows(self, group_id: str) -> bool: ...

    async def positions(self, group_id: str) -> Mapping[tuple[str, int], int]:
        """Raises CoordinatorError while they cannot be read."""
        ...


class OffsetHandlers:
    """`partitions` gives the catalog's partition counts: positions in a log that does not exist are refused.

    `log_span` gives a partition's first offset and its end. `elsewhere` are the groups of a ZooKeeper, if there is one.
    """

    def __init__(
        self,
        groups: Groups,
        partitions: Callable[[], Mapping[str, int]],
        log_span: Callable[[str, int], tuple[int, int]],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._elsewhere = elsewhere
        self._groups = groups
        self._partitions = partitions
        self._log_span = log_span

    def offset_commit_reader(self, version: int) -> CommitReader:
        return CommitReader(version)

    def offset_commit_now(self, commit: Commit, call: KafkaCall) -> Any:
        """Partitions that cannot be are refused one by one; the core judges the rest."""
        if commit.made is not None:
            return self._commit_many(commit, call)
        shape, version = commit.shape, call.api_version
        refused: dict[tuple[str, int], ErrorCode] = {}
        positions = self._positions(commit, refused)
        if refused and not positions:
            return commit_response(shape, version, refused, effects.OffsetCommitReply())
        return self._groups.begin(
            shape.request.group_id,
            lambda: commit_event(shape, call, self._groups.next_id(), positions),
            effects.OffsetCommitReply,
            lambda reply: commit_response(shape, version, refused, reply),
        )

    def _commit_many(self, commit: Commit, call: KafkaCall) -> Aside:
        """The same of a large request: it has been read in a thread, and another one makes the answer."""
        refused: dict[tuple[str, int], ErrorCode] = {}
        positions = self._positions(commit, refused)
        answer = partial(commit_response, commit.shape, call.api_version, refused)
        if refused and not positions:
            return Aside(partial(answer, effects.OffsetCommitReply()))
        begun = self._groups.begin(
            commit.shape.request.group_id,
            lambda: commit_event(commit.shape, call, self._groups.next_id(), positions),
            effects.OffsetCommitReply,
            lambda reply: partial(answer, reply),
        )
        return Aside(begun)

    async def offset_fetch(self, request: Any, call: KafkaCall) -> Any:
        """Rows by the thousand are made, and written, in a thread: the others' heartbeats do not wait for them."""
        if call.api_version < BATCHED:
            reply = await self._fetched(request, request.require_stable, None, -1)
            return await here_or_off_the_loop(lambda: fetched(request, call.api_version, reply), rows_of(reply))
        found = [
            (asked, await self._fetched(asked, request.require_stable, asked.member_id, asked.member_epoch))
            for asked in {each.group_id: each for each in request.groups}.values()
        ]
        entries = sum(rows_of(reply) for _, reply in found)
        return await here_or_off_the_loop(lambda: fetched_groups(found, call.api_version), entries)

    async def offset_delete(self, request: Any, call: KafkaCall) -> Any:
        """Partitions that do not exist are refused for themselves; for such alone no group is asked, as in Kafka."""
        asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
        reply = await delete_known(
            self._partitions(), asked, partial(self._deleted, request.group_id, operator(call.peer_host))
        )
        if reply.code is not ErrorCode.NONE:
            return struct("OffsetDeleteResponse")(error_code=reply.code)
        return await here_or_off_the_loop(lambda: deleted(request, call.api_version, reply.partitions), len(asked))

    async def _deleted(self, group_id: str, by: str, places: Places) -> effects.OffsetDeleteReply:
        return await self._groups.ask(
            group_id,
            lambda: events.OffsetDelete(self._groups.next_id(), short("group_id", group_id), places, by),
            effects.OffsetDeleteReply,
        )

    async def _fetched(
        self, asked: Any, require_stable: bool, member_id: str | None, epoch: int
    ) -> effects.OffsetFetchReply:
        def ask(places: Places | None) -> Awaitable[effects.OffsetFetchReply]:
            return self._groups.ask(
                asked.group_id,
                lambda: events.OffsetFetch(
                    self._groups.next_id(),
                    short("group_id", asked.group_id),
                    places,
                    require_stable,
                    member_id or None,
                    epoch,
                ),
                effects.OffsetFetchReply,
            )

        everything = asked.topics is None
        named = () if everything else (zip(repeat(topic.name), topic.partition_indexes) for topic in asked.topics)
        reply = await fetch_in_slices(None if everything else chain.from_iterable(named), ask)
        if reply.code is ErrorCode.NONE and self._elsewhere is not None and self._elsewhere.knows(asked.group_id):
            return await self._completed(self._elsewhere, asked.group_id, reply, everything=everything)
        return reply

    async def _completed(
        self, elsewhere: Elsewhere, group_id: str, reply: effects.OffsetFetchReply, *, everything: bool
    ) -> effects.OffsetFetchReply:
        """With what the group keeps in ZooKeeper, if it lives there; the larger counts where both have a position."""
        group = await self._groups.ask(
            group_id, lambda: events.DescribeGroup(self._groups.next_id(), group_id), effects.DescribeReply
        )
        if group.protocol_type != ZOOKEEPER:
            return reply
        try:
            positions = await elsewhere.positions(group_id)
        except CoordinatorError as error:
            return effects.OffsetFetchReply(code=error.code, message=error.message)
        return with_elsewhere(reply, positions, everything=everything)

    def _positions(
        self, commit: Commit, refused: dict[tuple[str, int], ErrorCode]
    ) -> Mapping[tuple[str, int], Position]:
        """What can be committed; what cannot be is put into `refused`."""
        positions, catalog = commit.positions(), self._partitions()
        if commit.shape.within(catalog) and min(commit.offsets, default=0) >= 0:
            return positions
        kept: dict[tuple[str, int], Position] = {}
        for place, position in positions.items():
            offset, leader_epoch, metadata = position
            if not exists(catalog, *place):
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif offset >= 0:
                kept[place] = position
            elif offset < EARLIEST:
                refused[place] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            else:
                try:
                    kept[place] = self._log_span(*place)[offset == LATEST], leader_epoch, metadata
                except StorageError:  # its directory is gone
                    refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return kept


def commit_event(
    shape: Shape, call: KafkaCall, request_id: int, positions: Mapping[tuple[str, int], Position]
) -> events.OffsetCommit:
    """Raises CoordinatorError for a name that is too long. Who commits is worked out once for all requests alike."""
    if shape.said is None:
        shape.said = said(shape.request, call)
    before, behind = shape.said
    return events.OffsetCommit(request_id, *before, positions, *behind)


def said(request: Any, call: KafkaCall) -> Said:
    """What an event takes of a request besides its positions."""
    generation, retention_ms = request.generation_id_or_member_epoch, request.retention_time_ms
    member = generation >= 0 or request.member_id
    before = (
        short("group_id", request.group_id),
        short("member_id", request.member_id),
        short_or_none("group_instance_id", request.group_instance_id),
        generation,
    )
    behind = (
        None if retention_ms == NO_RETENTION else min(retention_ms, LONGEST_RETENTION_MS),
        call.api_version < KNOWS_GROUP_ID_NOT_FOUND,
        "" if member else operator(call.peer_host),
    )
    return before, behind


def commit_response(
    shape: Shape, version: int, refused: Mapping[tuple[str, int], ErrorCode], reply: effects.OffsetCommitReply
) -> Written:
    """One row for each of the request."""
    topics = shape.request.topics
    if reply.code is ErrorCode.NONE and not refused and not reply.partitions:
        if shape.all_well is None:
            shape.all_well = all_well(shape, version)
        return shape.all_well
    return Written(encode(ANSWER, version, coded(ANSWER, topics, {**reply.partitions, **refused}, reply.code)))


def coded(name: str, topics: Any, codes: Mapping[tuple[str, int], int], rest: int) -> Any:
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


def deleted(request: Any, version: int, codes: Mapping[tuple[str, int], ErrorCode]) -> Written:
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
    return Written(encode("OffsetDeleteResponse", version, struct("OffsetDeleteResponse")(topics=topics)))


def rows_of(reply: effects.OffsetFetchReply) -> int:
    return len(reply.offsets) + len(reply.refused)


def fetched(request: Any, version: int, reply: effects.OffsetFetchReply) -> Written:
    topics = fetched_topics("OffsetFetchResponse.topics", request.topics, reply)
    code = reply.code if version >= GROUP_CODE else 0
    return Written(
        encode("OffsetFetchResponse", version, struct("OffsetFetchResponse")(topics=topics, error_code=code))
    )


def fetched_groups(found: Sequence[tuple[Any, effects.OffsetFetchReply]], version: int) -> Written:
    made = struct("OffsetFetchResponse.groups")
    groups = [
        made(
            group_id=asked.group_id,
            topics=fetched_topics("OffsetFetchResponse.groups.topics", asked.topics, reply),
            error_code=reply.code,
        )
        for asked, reply in found
    ]
    return Written(encode("OffsetFetchResponse", version, struct("OffsetFetchResponse")(groups=groups)))


def fetched_topics(path: str, asked: list[Any] | None, reply: effects.OffsetFetchReply) -> list[Any]:
    """Rows by topic, in the order asked, or in that of the names where everything was asked for."""
    if asked is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(reply.offsets):
            wanted.setdefault(topic, []).append(partition)
        pairs = list(wanted.items())
    else:
        pairs = [(topic.name, topic.partition_indexes) for topic in asked]
    made, row = struct(path), struct(f"{path}.partitions")
    return [
        made(name=name, partitions=[fetched_row(row, name, one, reply) for one in partitions])
        for name, partitions in pairs
    ]


def fetched_row(made: type[Any], topic: str, partition: int, reply: effects.OffsetFetchReply) -> Any:
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
