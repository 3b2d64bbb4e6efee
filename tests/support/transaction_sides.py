"""Three nodes of a cluster in one process, each with an engine for groups and one for transactional ids, and producers
that keep to Kafka's rules for clients of level 0 or 2."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.effects import OffsetFetchReply, TxnOffsetCommitReply
from muster.coordinator.core.model.events import OffsetFetch, TxnOffsetCommit
from muster.coordinator.edge.cluster_view import wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker
from muster.coordinator.kafka.handlers.transactions import REFUSALS, TransactionGate, refusal_code
from muster.coordinator.replication.io.remote_transactions import RemoteTransactions
from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.io.wire.node_links import NodeLinks, address_in
from muster.coordinator.replication.protocol.cluster_metadata import (
    ABORTS,
    OFFSETS,
    TRANSACTIONS,
    ClusterTopic,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.cluster_backend.cluster_aborts import ClusterAbortLog
from muster.coordinator.server.cluster_backend.cluster_transactions import ClusterTransactionCoordinator
from muster.coordinator.transactions.effects import AddPartitionsReply, EndTxnReply, InitProducerIdReply
from muster.coordinator.transactions.events import AddPartitions, EndTxn, InitProducerId, PartitionAddition
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import read_marker
from muster.storage.records.batch import encode_written, read_batches
from muster.storage.types import TopicPartition as Place
from tests.support.shard_sides import CONFIGS, DIARY, GROUPS, SESSION_MS, SHARDS, ShardNode, ShardSides
from tests.support.sides import SideNode, unheard

FIRST = (ReplicaAssignment((1, 2, 3)), ReplicaAssignment((2, 3, 1)), ReplicaAssignment((3, 1, 2)))
IDS = ClusterTopic(TRANSACTIONS, b"i" * 16, FIRST, CONFIGS, version=0)
DATA = ClusterTopic("t", b"t" * 16, FIRST, {"min.insync.replicas": "2"}, version=0)
NOTES = ClusterTopic(ABORTS, b"x" * 16, (ReplicaAssignment((1, 2, 3)),), {"min.insync.replicas": "2"}, version=0)
SETTINGS = load_settings(overrides={"log.dirs": "/nowhere"})
TIMEOUT_MS = 60_000
PAUSE_S = 0.02

NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class TransactionNode:
    """What a node has for transactional ids, for one life."""

    def __init__(self, sides: "TransactionSides", node: SideNode, shards: ShardNode) -> None:
        self.coordinating = ShardCoordination(
            node.side, session_ms=SESSION_MS, on_refusal=True, failed=unheard, now_ms=node.now_ms, topic=TRANSACTIONS
        )
        node.led._new_ids = sides.new_ids
        self.others = OtherNodes(sides, node)

        self.abort_log = ClusterAbortLog(
            node.broker,
            node.side,
            NodeLinks(node.side.calling, lambda other: address_in(node.side.image, other)),
            lambda: node.requests,
            len(FIRST),
            wall_ms,
        )

        async def read_count() -> int:
            return len(IDS.partitions)

        self.service = ClusterTransactionCoordinator(
            SETTINGS,
            node.broker,
            node.led,
            lambda: node.requests,
            shards.driver,
            shards.clock,
            unheard,
            side=node.side,
            coordinating=self.coordinating,
            others=self.others,
            abort_log=self.abort_log,
            read_count=read_count,
        )
        node.side.desk.transactions = self.service
        self.gate = TransactionGate(node.led, self.service, verifies=True, together=False)
        self.conditions: Any = Conditions()

    async def start(self) -> None:
        await self.service.open(self.conditions)

    async def stop(self) -> None:
        with suppress(TimeoutError):
            await self.service.close(0.05)
        await self.others.close()


class Conditions:
    def __init__(self) -> None:
        self.reported: dict[str, str] = {}

    def report(self, key: str, sentence: str) -> None:
        self.reported[key] = sentence

    def clear(self, key: str) -> None:
        self.reported.pop(key, None)


class OtherNodes:
    """Asks other nodes by their doors. What is lost arrives nowhere, or its answer does not."""

    def __init__(self, sides: "TransactionSides", me: SideNode) -> None:
        self._sides = sides
        self._me = me.id
        self._real = RemoteTransactions(me.side.calling, lambda node: address_in(me.side.image, node), unheard)
        self.nodes_changed = self._real.nodes_changed
        self.close = self._real.close

    async def ask_additions(self, node: int, addition: PartitionAddition) -> Mapping[Place, int]:
        if self._sides.lost(self._me, node):
            return dict.fromkeys(addition.partitions, 13)
        answer = await self._real.ask_additions(node, addition)
        return dict.fromkeys(addition.partitions, 13) if self._sides.lost(node, self._me) else answer

    async def write_markers(self, node: int, marker: NodeMarker, partitions: Sequence[Place]) -> Mapping[Place, int]:
        if self._sides.lost(self._me, node):
            return dict.fromkeys(partitions, 6)
        answer = await self._real.write_markers(node, marker, partitions)
        return dict.fromkeys(partitions, 6) if self._sides.lost(node, self._me) else answer


class TransactionSides(ShardSides):
    """`ids[node id]` is there while the node is up. lost: whether what one node says to another does not arrive."""

    def __init__(self, directory: Path, **settings: int) -> None:
        super().__init__(directory, **settings)
        self.ids: dict[int, TransactionNode] = {}
        self.lost: Callable[[int, int], bool] = lambda sender, receiver: False
        self._ids = count(100)

    def new_ids(self, known: int, epoch: int) -> tuple[int, int]:
        return next(self._ids), 0

    async def start(self, node: SideNode) -> None:
        await super().start(node)
        self.ids[node.id] = made = TransactionNode(self, node, self.of[node.id])
        await made.start()

    async def stop(self, node: SideNode) -> None:
        await self.ids.pop(node.id).stop()
        await super().stop(node)

    async def kill(self, node: SideNode) -> None:
        gone = self.ids.pop(node.id)
        await super().kill(node)
        await gone.stop()

    async def __aexit__(self, *error: object) -> None:
        for each in self.ids.values():
            await each.stop()
        await super().__aexit__(*error)

    async def coordinator_of(self, transactional_id: str) -> SideNode:
        return await self.leader(shard_of(transactional_id))

    async def committed(self, place: TopicPartition) -> list[bytes]:
        """What a reader of committed records gets of all that its leader shows now."""
        node = await self.leader(place)
        return read_committed(node, place)

    async def position(self, group_id: str, place: Place, *, stable: bool = False) -> int:
        """The group's position, -1 for none; with `stable` a code that says why it cannot be told."""
        while True:
            node = self.of[(await self.leader(group_shard(group_id))).id]
            event = OffsetFetch(node.driver.next_id(), group_id, (place,), require_stable=stable)
            with suppress(*REFUSALS):
                reply = await node.driver.ask_shard(group_shard(group_id).partition, event, OffsetFetchReply)
                if reply.code not in NOT_YET:
                    break
            await asyncio.sleep(PAUSE_S)
        assert not reply.code, reply
        if place in reply.refused:
            return reply.refused[place]
        found = reply.offsets[place]
        return -1 if found is None else found.offset

    async def until_stable(self, *places: TopicPartition) -> None:
        """No transaction is open in these."""
        for place in places:
            while True:
                node = await self.leader(place)
                log = node.log(place)
                if log.last_stable_offset == log.high_watermark == log.end_offset:
                    break
                await asyncio.sleep(PAUSE_S)


def group_shard(group_id: str) -> TopicPartition:
    return TopicPartition(OFFSETS, partition_for(group_id, SHARDS))


def shard_of(transactional_id: str) -> TopicPartition:
    return TopicPartition(TRANSACTIONS, partition_for(transactional_id, len(IDS.partitions)))


def read_committed(node: SideNode, place: TopicPartition) -> list[bytes]:
    fetched = node.log(place).fetch(0, 1 << 24, committed=True)
    aborted = sorted(fetched.aborted, key=lambda each: each.first_offset)
    dropping: set[int] = set()
    values: list[bytes] = []
    for batch in read_batches(fetched.records):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            dropping.add(aborted.pop(0).producer_id)
        if batch.control:
            marker = read_marker(batch)
            if marker is not None and marker.aborted:
                dropping.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in dropping):
            values += [record.value or b"" for record in batch.records()]
    return values


class StoryProducer:
    """One instance of a transactional id. What is not answered for good is asked again, as clients do."""

    def __init__(self, sides: TransactionSides, transactional_id: str, level: int = 2) -> None:
        self._sides = sides
        self.id = transactional_id
        self.level = level
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    async def init(self) -> int:
        """The code; with NONE it has a producer id and an epoch."""

        def make(number: int) -> InitProducerId:
            return InitProducerId(number, self.id, TIMEOUT_MS, next(self._sides._ids))

        reply = await self._ask(make, InitProducerIdReply)
        if not reply.code:
            self.producer_id, self.epoch = reply.producer_id, reply.epoch
            self._sequences.clear()
        return int(reply.code)

    async def add(self, *places: TopicPartition) -> int:
        """What clients of level 0 do before they send."""

        def make(number: int) -> AddPartitions:
            return AddPartitions(number, self.id, self.producer_id, self.epoch, tuple(places))

        return int((await self._ask(make, AddPartitionsReply)).code)

    async def send(self, place: TopicPartition, *values: bytes) -> int:
        """Kafka's code, 0 once they are committed by all in sync."""
        if self.level < 2 and (code := await self.add(place)):
            return code
        sequence = self._sequences.get(place, 0)
        data = encode_written(
            [(b"", value, ()) for value in values],
            wall_ms(),
            producer=(self.producer_id, self.epoch, sequence),
            transactional=True,
        )
        while True:
            code = await self._send_once(place, data)
            if code not in NOT_YET:
                break
            await asyncio.sleep(PAUSE_S)
        if not code:
            self._sequences[place] = sequence + len(values)
        return code

    async def _send_once(self, place: TopicPartition, data: bytes) -> int:
        node = await self._sides.leader(place)
        there = self._sides.ids.get(node.id)
        if there is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        parts = [(*place, memoryview(data))]

        def begin(let_in: Any, guards: Any) -> Any:
            return node.requests.begin_produce(let_in, -1, 3_000, guards)

        (outcome,) = await there.gate.append_first(self.id, parts, 12 if self.level >= 2 else 10, begin)
        return outcome.code if isinstance(outcome, StorageError) else 0

    async def send_offset(self, group_id: str, place: Place, offset: int) -> int:
        shard = group_shard(group_id)
        if self.level < 2 and (code := await self.add(shard)):
            return code
        while True:
            node = await self._sides.leader(shard)
            there, groups = self._sides.ids.get(node.id), self._sides.of.get(node.id)
            code = ErrorCode.NOT_COORDINATOR
            if there is not None and groups is not None:
                code = await self._commit_once(there, groups, group_id, {place: (offset, -1, "")})
            if code not in NOT_YET:
                return code
            await asyncio.sleep(PAUSE_S)

    async def _commit_once(
        self, there: TransactionNode, groups: ShardNode, group_id: str, positions: Mapping[Place, tuple[int, int, str]]
    ) -> ErrorCode:
        shard, who = group_shard(group_id), (self.producer_id, self.epoch)
        guard = None
        try:
            guard = (await there.gate.ask_for(self.id, *who, shard, self.level)).guard
            event = TxnOffsetCommit(groups.driver.next_id(), group_id, "", None, -1, positions, *who, guard)
            reply = await groups.driver.ask_shard(shard.partition, event, TxnOffsetCommitReply)
        except REFUSALS as error:
            return ErrorCode(refusal_code(error))
        finally:
            there.gate.drop(shard, guard)
        return reply.code or next(iter(reply.partitions.values()), ErrorCode.NONE)

    async def end(self, *, commit: bool) -> int:
        def make(number: int) -> EndTxn:
            return EndTxn(number, self.id, self.producer_id, self.epoch, commit, level=self.level)

        reply = await self._ask(make, EndTxnReply)
        if not reply.code and self.level >= 2:
            self.producer_id, self.epoch = reply.producer_id, reply.epoch
            self._sequences.clear()
        return int(reply.code)

    async def _ask(self, make: Callable[[int], Any], wanted: type[Any]) -> Any:
        while True:
            node = await self._sides.coordinator_of(self.id)
            there = self._sides.ids.get(node.id)
            if there is not None:
                try:
                    reply: Any = await there.service.ask(self.id, make, wanted)
                except REFUSALS as error:
                    reply = wanted(code=ErrorCode(refusal_code(error)))
                if reply.code not in NOT_YET:
                    return reply
            await asyncio.sleep(PAUSE_S)


def play(
    directory: Path,
    story: Callable[[TransactionSides], Awaitable[None]],
    *,
    notes: ClusterTopic = NOTES,
    **settings: int,
) -> None:
    """notes: `__aborts`, and where its copies lie."""

    async def run() -> None:
        async with TransactionSides(directory, **settings) as sides:
            sides.standing.make(GROUPS, DIARY, IDS, DATA, notes)
            await story(sides)

    asyncio.run(run())
