"""AddOffsetsToTxn and TxnOffsetCommit for groups of ours, as APIs of Kafka's door (KB-E1, KB-E2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from muster.coordinator.core.txn.events import TxnOffsetCommit
from muster.coordinator.core.types import Position
from muster.coordinator.edge.catalog import exists
from muster.coordinator.edge.positions import here_or_off_the_loop
from muster.coordinator.engine.transactions.committing import NO_RIGHT, NOT_AVAILABLE, Committed, Committing
from muster.coordinator.engine.upstream import producers
from muster.coordinator.engine.upstream.errors import UpstreamError, named_code
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import KafkaCall, Written
from muster.coordinator.kafka.groups.asking import Groups
from muster.coordinator.kafka.groups.offsets import coded
from muster.coordinator.kafka.groups.request_limits import short, short_or_none
from muster.coordinator.ownership.facts import Client, Producer

ANSWER: Final = "TxnOffsetCommitResponse"
UNKNOWN_TOPIC: Final = 3
GROUP_AUTHORIZATION_FAILED: Final = 30

log = structlog.get_logger("muster.engine")


class TransactionHandlers:
    """Of the ports of one kind: `committing` asks their groups, which on a broker's port are nobody's. state_topic: the
    partition of it that has a group's shard goes into the client's transaction."""

    def __init__(
        self,
        groups: Groups,
        committing: Committing,
        upstream: Upstream,
        state_topic: str,
        partitions: Callable[[], Mapping[str, int]],
    ) -> None:
        self._groups = groups
        self._committing = committing
        self._upstream = upstream
        self._state_topic = state_topic
        self._partitions = partitions

    async def add_offsets_to_txn(self, request: Any, call: KafkaCall) -> Any:
        place = self._state_topic, self._groups.shard_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        try:
            code = await producers.add_partition(
                self._upstream, request.transactional_id, producer, place, call.peer.stands_for
            )
        except UpstreamError as error:
            log.debug("a transaction's coordinator cannot be asked", why=str(error))
            code = NOT_AVAILABLE
        if code in NO_RIGHT:
            log.warning(
                f"the upstream says {named_code(code)} where positions are to go into a client's transaction; `muster "
                "engine acls` prints what Muster's login has to be allowed",
                group=request.group_id,
                transactional_id=request.transactional_id,
            )
            code = GROUP_AUTHORIZATION_FAILED
        return struct("AddOffsetsToTxnResponse")(error_code=NOT_AVAILABLE if code == UNKNOWN_TOPIC else code)

    async def txn_offset_commit(self, request: Any, call: KafkaCall) -> Any:
        """Partitions that cannot be are refused one by one; the core judges the rest. What is read and made of very
        many is so in threads."""
        rows, catalog = sum(len(topic.partitions) for topic in request.topics), self._partitions()
        kept, refused = await here_or_off_the_loop(lambda: positions_of(request, catalog), rows)
        try:
            event = event_of(request, self._groups.next_id(), kept)
        except CoordinatorError as refusal:
            return await answer(request, call, rows, Committed(refusal.code))
        if refused and not event.offsets:
            return await answer(request, call, rows, Committed(partitions=refused))
        producer = Producer(request.producer_id, request.producer_epoch)
        committed = await self._committing.commit(event, Client(request.transactional_id, producer))
        return await answer(request, call, rows, replace(committed, partitions={**committed.partitions, **refused}))


def positions_of(
    request: Any, catalog: Mapping[str, int]
) -> tuple[dict[tuple[str, int], Position], dict[tuple[str, int], int]]:
    """What can be committed; and what cannot be, with codes."""
    kept: dict[tuple[str, int], Position] = {}
    refused: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            if not exists(catalog, *place):
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif each.committed_offset < 0:
                refused[place] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            else:
                epoch = max(each.committed_leader_epoch, -1)
                kept[place] = (each.committed_offset, epoch, each.committed_metadata or "")
    return kept, refused


def event_of(request: Any, request_id: int, positions: Mapping[tuple[str, int], Position]) -> TxnOffsetCommit:
    """Raises CoordinatorError for a name that is too long."""
    return TxnOffsetCommit(
        request_id,
        short("group_id", request.group_id),
        short("member_id", request.member_id),
        short_or_none("group_instance_id", request.group_instance_id),
        request.generation_id,
        positions,
    )


async def answer(request: Any, call: KafkaCall, rows: int, committed: Committed) -> Written:
    """A row for each of the request's, of which there are so many."""
    told = partial(coded, ANSWER, request.topics, committed.partitions, committed.code)
    return await here_or_off_the_loop(lambda: Written(encode(ANSWER, call.api_version, told())), rows)
