"""Calls about one group, sent to its coordinator.

The coordinator is looked up again after it has moved. Commits, committed positions and lags, and recent moves of
partitions.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from muster.assignors.data.values import readable_lag
from muster.client.calls.coordinator_search import (
    ELSEWHERE,
    LOADING,
    UNSTABLE,
    ask_patiently,
    check_code,
    search_for_group,
)
from muster.client.calls.methods import EXPLAIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, ClientMethod
from muster.client.calls.transport import CallRetry, Transport
from muster.client.errors import ClientError, ConfigError, Refused, Unreachable
from muster.client.members.subscription import group_by_topic
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.observability.read_model.commit_history import CommitHistory
from muster.coordinator.observability.read_model.group_mapper import log_span_of, map_commits
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

log = logging.getLogger("muster.client")

T = TypeVar("T")
Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")
TRY_AGAIN = ELSEWHERE | {LOADING, UNSTABLE}
STILL_OPEN = (
    "an open transaction holds an offset of this partition; it ends with its producer, or when "
    "transaction.timeout.ms is over; `muster transactions list` names it"
)
NO_OFFSET = -1
REMEMBERED_REBALANCES = 50
LEAVE_PATIENCE_MS = 5_000
MAX_GROUP_ID_CHARS = 4_096
"""What a node accepts as a name."""


def check_group_id(group_id: str) -> None:
    """Raise ConfigError for what no node would take, before it is asked, with enough of it to know it again."""
    if len(group_id) > MAX_GROUP_ID_CHARS:
        raise ConfigError(
            f"the group id {group_id[:20] + '...'!r} has {len(group_id):,} characters; expected at most "
            f"{MAX_GROUP_ID_CHARS:,}; choose a shorter one"
        )


class GroupAnswer(Protocol):
    """What the answers about one group have in common."""

    @property
    def error_code(self) -> Any: ...

    @property
    def error_message(self) -> str: ...


Answered = TypeVar("Answered", bound=GroupAnswer)


class GroupPosition(NamedTuple):
    """Where a group stands in one partition; `committed` is None when nothing is.

    `log_start` and `log_end` are -1 where nobody knows them, as of copies of a broker's segments.
    """

    committed: int | None
    log_start: int
    log_end: int
    committed_at_ms: int | None = None

    def lag(self, reset: str = "earliest") -> int:
        """Records that can still be read, never negative. Without a commit: none for `latest`, else all that the log
        has."""
        if self.committed is None and reset == "latest":
            return 0
        return readable_lag(self.committed, self.log_start, self.log_end)


class GroupCalls:
    """Finds the coordinator of one group and talks to it."""

    def __init__(
        self, transport: Transport, group_id: str, group_protocol: str = "", coordinator: str | None = None
    ) -> None:
        """Raises ConfigError when the id is too long. `group_protocol`: one that has a coordinator of its own.

        `coordinator`: where it was last, HOST:PORT, if that is known; it is looked up when it is there no longer.
        """
        check_group_id(group_id)
        self.group_id = group_id
        self._transport = transport
        self.search = search_for_group(transport, group_id, group_protocol, coordinator)

    @property
    def members_per_stream(self) -> int:
        """How many sessions one stream may carry (SharedSession), as was told with the coordinator; 0: not offered."""
        return self.search.members_per_stream

    async def coordinator(self) -> str:
        """HOST:PORT of the coordinator, looked up when it is not known."""
        return await self.search.find()

    def forget_coordinator(self) -> None:
        self.search.forget()

    async def _call(
        self, method: ClientMethod[Request, Response], request: Request, doing: str, address: str
    ) -> Response:
        """What is answered as soon as it is durable."""
        patience_ms = self._transport.leaders.answer_ms
        return await self._transport.call(method, request, doing=doing, address=address, timeout_ms=patience_ms)

    async def once(self, method: ClientMethod[Request, Answered], request: Request, doing: str) -> Answered:
        """A call whose answer says of itself whether it was refused; raises that.

        Made again where it was not taken in: by a node that does not coordinate the group (yet), or by one of a cluster
        that cannot be reached, unless what is asked might be done twice.
        """
        patience = CallRetry(self._transport)
        while True:
            asked = False
            try:
                address = await self.coordinator()
                asked = True
                answer = await self._transport.call(method, request, doing=doing, address=address)
                check_code(answer.error_code, answer.error_message, self.group_id)
                return answer
            except (Refused, Unreachable) as error:
                self.forget_coordinator()
                again = (
                    error.code in TRY_AGAIN
                    if isinstance(error, Refused)
                    else self._transport.leaders.shared and (method.idempotent or not asked)
                )
                if not again or not await patience.another_try(error):
                    raise

    async def say_goodbye(self, method: ClientMethod[Any, Any], request: Any) -> None:
        """Tell the coordinator, not for long, that a member leaves: once, or in a cluster a second time if it moved."""
        doing, patience_ms = f"leaving group {self.group_id!r}", LEAVE_PATIENCE_MS
        for _ in range(2 if self._transport.leaders.shared else 1):
            try:
                address = await self.coordinator()
                answer = await self._transport.call(
                    method, request, doing=doing, address=address, timeout_ms=patience_ms
                )
                if answer.error_code not in ELSEWHERE:
                    return
            except ClientError as error:
                # The group notices when the session ends; there is nothing better to do here.
                log.warning("%s", error)
            self.forget_coordinator()

    async def patiently(self, attempt: Callable[[str], Awaitable[T]], timeout_ms: int | None = None) -> T:
        """Repeat `attempt(address)` with back-off while the coordinator moves, loads or cannot be reached."""
        return await ask_patiently(
            self._transport, self.search, lambda address, _: attempt(address), TRY_AGAIN, timeout_ms
        )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
        *,
        include_zookeeper: bool = False,
        reason: str = "",
    ) -> None:
        """Commit as a member, or with None as a simple consumer. The first refused partition raises.

        `include_zookeeper` is for tools: a group that keeps positions in ZooKeeper gets these there, and the ledger
        tells of the change and its `reason`.
        """
        request = build_commit_request(self.group_id, offsets, identity)
        request.include_zookeeper, request.reason = include_zookeeper, reason

        async def attempt(address: str) -> None:
            doing = f"committing offsets of group {self.group_id!r}"
            answer = await self._call(OFFSET_COMMIT, request, doing, address)
            for topic in answer.topics:
                for partition in topic.partitions:
                    about = f"{topic.name}-{partition.partition_index}"
                    check_code(partition.error_code, partition.error_message, about)
            check_code(answer.error_code, answer.error_message, self.group_id)

        await self.patiently(attempt, timeout_ms)

    def forget_start(self) -> None:
        """Nothing is kept: each question is asked."""

    async def committed(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        include_zookeeper: bool = False,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; None asks for everything the group has, and partitions without are left out then.

        `include_zookeeper` adds what a group that the node watches in ZooKeeper keeps there. `require_stable`: while a
        transaction that holds an offset of one of the partitions is open, ask again (KIP-447), up to
        default.api.timeout.ms; Refused (UNSTABLE_OFFSET_COMMIT) then. Otherwise what was committed before it counts.
        """
        request = pb.OffsetFetchRequest(
            group_id=self.group_id,
            all_topics=partitions is None,
            require_stable=require_stable,
            include_zookeeper=include_zookeeper,
        )
        for topic, numbers in group_by_topic(partitions or ()).items():
            request.topics.add(name=topic, partition_indexes=numbers)

        async def attempt(address: str) -> pb.OffsetFetchResponse:
            doing = f"fetching offsets of group {self.group_id!r}"
            answer = await self._call(OFFSET_FETCH, request, doing, address)
            check_code(answer.error_code, answer.error_message, self.group_id)
            for topic in answer.topics:
                for partition in topic.partitions:
                    why = STILL_OPEN if partition.error_code == UNSTABLE else ""
                    check_code(partition.error_code, why, f"{topic.name}-{partition.partition_index}")
            return answer

        return read_offsets(await self.patiently(attempt), partitions or ())

    async def recall_moves(self) -> dict[TopicPartition, int]:
        """When the ledger last saw each partition change its owner, in epoch milliseconds."""
        request = pb.ExplainGroupRequest(group_id=self.group_id, limit=REMEMBERED_REBALANCES)

        async def attempt(address: str) -> pb.ExplainGroupResponse:
            doing = f"reading the ledger of group {self.group_id!r}"
            answer = await self._transport.call(EXPLAIN_GROUP, request, doing=doing, address=address)
            check_code(answer.error_code, answer.error_message, self.group_id)
            return answer

        answer = await self.patiently(attempt)
        return {
            TopicPartition(move.topic, move.partition): entry.ended_at_ms
            for entry in reversed(answer.rebalances)
            for move in entry.moves
            if move.source and move.target
        }

    async def positions(
        self, partitions: Collection[TopicPartition], *, committed: bool = False, include_zookeeper: bool = False
    ) -> dict[TopicPartition, GroupPosition]:
        """Committed offsets and log ends of one moment; partitions that do not exist are left out.

        `committed`: of every partition where the group has committed something, as well.
        """
        request = pb.OffsetFetchRequest(
            group_id=self.group_id,
            all_topics=committed,
            include_log_offsets=True,
            include_zookeeper=include_zookeeper,
        )
        for topic, numbers in group_by_topic(partitions).items():
            request.topics.add(name=topic, partition_indexes=numbers)

        async def attempt(address: str) -> pb.OffsetFetchResponse:
            doing = f"measuring the lag of group {self.group_id!r}"
            answer = await self._call(OFFSET_FETCH, request, doing, address)
            check_code(answer.error_code, answer.error_message, self.group_id)
            return answer

        answer = await self.patiently(attempt)
        return {
            TopicPartition(topic.name, row.partition_index): GroupPosition(
                row.committed_offset if row.committed_offset >= 0 else None,
                *log_span_of(row),
                row.commit_timestamp_ms or None,
            )
            for topic in answer.topics
            for row in topic.partitions
            if row.HasField("log_end_offset") or row.log_offsets_unknown
        }

    async def commit_history(self) -> CommitHistory:
        """How positions moved and how often they are committed, as far as the coordinator knows."""
        request = pb.OffsetFetchRequest(group_id=self.group_id, all_topics=True, include_commits=True)

        async def attempt(address: str) -> pb.OffsetFetchResponse:
            doing = f"asking how group {self.group_id!r} commits"
            answer = await self._call(OFFSET_FETCH, request, doing, address)
            check_code(answer.error_code, answer.error_message, self.group_id)
            return answer

        return map_commits(await self.patiently(attempt))


def build_commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], identity: GroupMetadata | None
) -> pb.OffsetCommitRequest:
    request = pb.OffsetCommitRequest(group_id=group_id)
    if identity is not None:
        request.generation_id_or_member_epoch = identity.generation
        request.member_id = identity.member_id
        if identity.group_instance_id is not None:
            request.group_instance_id = identity.group_instance_id
    for topic, numbers in group_by_topic(offsets).items():
        line = request.topics.add(name=topic)
        for number in numbers:
            offset = offsets[TopicPartition(topic, number)]
            line.partitions.add(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
    return request


def read_offsets(
    answer: pb.OffsetFetchResponse, asked: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    found: dict[TopicPartition, OffsetAndMetadata | None] = {TopicPartition(*tp): None for tp in asked}
    for topic in answer.topics:
        for line in topic.partitions:
            if line.committed_offset != NO_OFFSET:
                offset = OffsetAndMetadata(line.committed_offset, line.metadata, line.committed_leader_epoch)
                found[TopicPartition(topic.name, line.partition_index)] = offset
    return found
