"""Positions in transactions at the node that coordinates their group: the gate, then the group (TX-G1, TX-G2)."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH
from muster.coordinator.runtime.ports import LogFailed, TxnProducer
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.transactions.events import AddPartitions
from tests.sim.replication.groups.coordinator import SHARDS, SimGroups
from tests.sim.replication.transactions.data_logs import numbered
from tests.sim.replication.transactions.messages import IdAsk, PositionsAsk
from tests.sim.transactions.group_node import AS_COMMIT, PositionCommit
from tests.sim.transactions.logs import Guard
from tests.sim.transactions.node import NOT_AVAILABLE, NOT_COORDINATOR, Refused

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

Told = Callable[[Refused], None]


class PositionsDesk:
    """Of one life of a node. ask_coordinator: of a transactional id, wherever that is."""

    def __init__(
        self,
        node: "SimNode",
        groups: SimGroups,
        ask_coordinator: Callable[[IdAsk, Callable[[Any], None]], None],
    ) -> None:
        self._node = node
        self._groups = groups
        self._ask = ask_coordinator
        self._newest: dict[tuple[int, int], int] = {}
        """By producer and epoch, the newest connection that brought positions (TX-C12)."""

    def commit(self, asked: PositionsAsk, reply: Told) -> None:
        request, who = asked.commit, TxnProducer(asked.commit.producer_id, asked.commit.epoch)
        self._node.trace(f"{self._node.name} positions {request}")
        if request.level < 2:
            newest = self._newest[who] = max(self._newest.get(who, 0), asked.connection)
            if asked.connection < newest:
                self._node.world.census["positions overtaken"] += 1
                reply(Refused(NOT_AVAILABLE, close_connection=True))
                return
        shard = partition_for(request.group_id, SHARDS)
        epoch = self._leader_epoch(shard)
        reply = partial(self._tell, request, shard, epoch, reply)
        try:
            refusal, guard = self._make_guard(shard, who)
        except LogFailed:
            reply(Refused(NOT_COORDINATOR))
            return
        if refusal:
            reply(Refused(refusal))
        elif guard is None:
            self._keep(shard, request, None, reply)
        else:
            place: Any = tuple(shard_unit(shard))
            add = AddPartitions(
                0, request.transactional_id, *who, (place,), request.level, verify_only=request.level < 2
            )
            question = IdAsk(request.transactional_id, partial(numbered, add))
            self._ask(question, lambda answer: self._decided(shard, request, guard, answer, reply))

    def _make_guard(self, shard: int, who: TxnProducer) -> tuple[int, Guard | None]:
        """None: the transaction is open there. Raises LogFailed."""
        known = self._groups.log.known(shard)
        of_producer = known.producers.get(who.id)
        if of_producer is not None and who.epoch < of_producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        return 0, None if known.is_open(*who) else known.guard(*who)

    def _decided(self, shard: int, request: PositionCommit, guard: Guard, answer: Any, reply: Told) -> None:
        code = int(answer.code) or int(getattr(answer, "partitions", {}).get(tuple(shard_unit(shard)), 0))
        if code:
            guard.valid = False
            reply(Refused(AS_COMMIT.get(code, code)))
        else:
            self._keep(shard, request, guard, reply)

    def _keep(self, shard: int, request: PositionCommit, guard: Guard | None, reply: Told) -> None:
        event = TxnOffsetCommit(
            0,
            request.group_id,
            request.member_id,
            None,
            request.generation,
            request.offsets,
            request.producer_id,
            request.epoch,
            guard,
        )

        def kept(answer: Any) -> None:
            if guard is not None:
                guard.valid = False
            code = int(answer.code) or max(map(int, answer.partitions.values()), default=0)
            reply(Refused(code))

        self._groups.receive_at(shard, event, kept)

    def _leader_epoch(self, shard: int) -> int:
        leader = self._node.replicas.leaders.get(shard_unit(shard))
        return NO_EPOCH if leader is None else leader.epoch

    def _tell(self, request: PositionCommit, shard: int, epoch: int, reply: Told, answer: Refused) -> None:
        """What was let in under an earlier leader epoch is asked for again. 19: nobody of level 2 hears that the
        transaction is not open for any other reason than its end, which raises the epoch."""
        moved = self._leader_epoch(shard) != epoch
        if answer.code == ErrorCode.INVALID_TXN_STATE and moved:
            self._node.world.census["positions asked for again in a new leader epoch"] += 1
            answer = Refused(NOT_COORDINATOR)
        if answer.code == ErrorCode.INVALID_TXN_STATE and request.level >= 2:
            self._node.world.violated("19", f"{request} is refused as not open in {epoch}")
        self._node.world.census[f"positions {ErrorCode(answer.code).name}"] += 1
        reply(answer)
