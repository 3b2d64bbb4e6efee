"""A node of the simulator that has groups as well: one shard of them beside the one of transactional ids.

Their log takes part in transactions like any: guards, markers, and the search for what is open after a load.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.coordinator.core.model.events import TxnEnded, TxnOffsetCommit
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.transactions.effects import OrphanVerdict, SendMarkers
from muster.coordinator.transactions.events import AddPartitions, OrphanFound
from muster.storage.errors import StorageError
from muster.storage.logs.transactions import TransactionGuard
from tests.sim.transactions.group_side import GroupsSide, MakeGroupShard
from tests.sim.transactions.logs import LAST_EPOCH, LogModel
from tests.sim.transactions.node import NOT_AVAILABLE, NOT_COORDINATOR, Node, Refused
from tests.sim.transactions.positions import GROUP_PLACE

INPUT = "in"
"""The topic that groups read."""
NOT_LEADER = 6
AS_COMMIT = {90: 47}


@dataclass(slots=True, frozen=True)
class PositionCommit:
    """A TxnOffsetCommit, from the client's side. who: generation, member id; -1 and nothing says nothing of oneself."""

    transactional_id: str
    level: int
    producer_id: int
    epoch: int
    group_id: str
    offsets: Mapping[tuple[str, int], CommittedOffset]
    generation: int = -1
    member_id: str = ""


@dataclass(slots=True, eq=False)
class PositionLeave:
    """Leave of the coordinator, from when it is decided to when its record is durable."""

    position: int
    guard: TransactionGuard | None
    answered: Callable[[Any], None]
    reply: Any = None
    over: bool = False


class GroupNode(Node):
    make_group_shard: MakeGroupShard = Shard
    asks_leave = True
    """Whether the coordinator is asked on behalf of positions."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.boot, self.skew_ms = 0, 0
        options = world.options
        limits = Limits(
            min_session_timeout_ms=100,
            initial_rebalance_delay_ms=world.rng.choice((0, 100, 500)),
            new_member_join_timeout_ms=5_000,
            offsets_retention_ms=options.retention_ms,
            offsets_retention_check_ms=500,
            consumer_session_timeout_ms=options.session_ms,
            consumer_min_session_timeout_ms=100,
            consumer_heartbeat_interval_ms=options.session_ms // 3,
            consumer_min_heartbeat_interval_ms=100,
            consumer_assignment_interval_ms=world.rng.choice((0, 200)),
        )
        self.groups = GroupsSide(self, limits, {INPUT: options.inputs}, type(self).make_group_shard)
        super().__init__(world)

    # -- lives ----------------------------------------------------------------------------------------------

    def die(self) -> None:
        super().die()
        self.leaves: list[PositionLeave] = []
        self.commit_connections: dict[tuple[int, int], int] = {}

    def crash(self, *, power: bool) -> None:
        super().crash(power=power)
        self.groups.crash(power=power)
        self.world.broken()

    def start(self) -> None:
        self.up = True
        self.groups.start()
        self.world.judge.cut(GROUP_PLACE, self.groups.group_log.end_offset)
        super().start()

    def drop(self) -> None:
        leaves, self.leaves = self.leaves, []
        for leave in leaves:
            leave.over = True
            if self.voids_guards and leave.guard is not None:
                self.groups.group_log.drop_guard(leave.guard)
            leave.answered(Refused(NOT_COORDINATOR))
        super().drop()

    def search_orphans(self) -> None:
        super().search_orphans()
        for producer_id, epoch, _ in self.groups.group_log.open_transactions():
            verdicts: list[Any] = []
            self.ask(lambda number, p=producer_id, e=epoch: OrphanFound(number, p, e, GROUP_PLACE), verdicts.append)
            verdict = verdicts[0]
            self.world.met[f"positions orphaned {verdict.verdict.name}"] += 1
            if verdict.verdict is not OrphanVerdict.TAKEN:
                hanging = verdict.verdict is OrphanVerdict.HANGING
                marker_epoch = verdict.marker_epoch if hanging else min(epoch + 1, LAST_EPOCH)
                ended = TxnEnded(0, producer_id, marker_epoch, False, self.coordinator_epoch, 0)
                self.groups.ask(ended, lambda reply: None)

    # -- positions ------------------------------------------------------------------------------------------

    def commit_positions(self, request: PositionCommit, connection: int, answered: Callable[[Any], None]) -> None:
        log, who = self.groups.group_log, (request.producer_id, request.epoch)
        if request.level < 2 and self.world.options.newest_connection and not self.is_newest(who, connection):
            answered(Refused(NOT_AVAILABLE, close_connection=True))
            return
        try:
            guard = log.make_guard(*who, level=request.level)
        except StorageError as error:
            answered(Refused(error.code))
            return
        if guard is None or not self.asks_leave:
            self.keep_positions(request, PositionLeave(0, guard, answered))
            return
        self.ask(
            lambda number: AddPartitions(
                number,
                request.transactional_id,
                *who,
                (GROUP_PLACE,),
                request.level,
                verify_only=request.level < 2,
            ),
            lambda reply: self.leave_decided(request, guard, reply, answered),
        )

    def leave_decided(
        self, request: PositionCommit, guard: TransactionGuard, reply: Any, answered: Callable[[Any], None]
    ) -> None:
        code = int(reply.code) or int(getattr(reply, "partitions", {}).get(GROUP_PLACE, 0))
        if code:
            self.groups.group_log.drop_guard(guard)
            answered(Refused(AS_COMMIT.get(code, code)))
            return
        leave = PositionLeave(len(self.records) if request.level >= 2 else 0, guard, answered)
        if request.level >= 2:
            self.leaves.append(leave)
        delay_ms = self.world.rng.choice((0, 0, 0, 3, 40, 600 if self.world.faulty else 0))
        if delay_ms:
            self.world.after(delay_ms, self.keep_asked, request, leave, self.boot)
        else:
            self.keep_positions(request, leave)

    def is_newest(self, who: tuple[int, int], connection: int) -> bool:
        """TX-C12: what is by an older connection than another of this producer and epoch has been overtaken."""
        newest = self.commit_connections[who] = max(self.commit_connections.get(who, 0), connection)
        return newest == connection

    def keep_asked(self, request: PositionCommit, leave: PositionLeave, boot: int) -> None:
        if self.up and boot == self.boot and not (leave.over and self.voids_guards):
            self.keep_positions(request, leave)

    def keep_positions(self, request: PositionCommit, leave: PositionLeave) -> None:
        event = TxnOffsetCommit(
            0,
            request.group_id,
            request.member_id,
            None,
            request.generation,
            request.offsets,
            request.producer_id,
            request.epoch,
            leave.guard,
        )

        def kept(reply: Any) -> None:
            if leave.guard is not None:
                self.groups.group_log.drop_guard(leave.guard)
            code = int(reply.code) or max(map(int, reply.partitions.values()), default=0)
            self.world.met[f"positions {ErrorCode(code).name}"] += 1
            leave.reply = Refused(code)
            self.settle_leaves([leave])

        self.groups.ask(event, kept)

    def settle_leaves(self, leaves: list[PositionLeave]) -> None:
        """Answer those whose addition is durable, and that the group has answered."""
        for leave in leaves:
            if leave.reply is not None and leave.position <= self.durable and not leave.over:
                leave.over = True
                self.leaves = [each for each in self.leaves if each is not leave]
                leave.answered(leave.reply)

    def release(self) -> None:
        super().release()
        self.settle_leaves(list(self.leaves))

    def ask_group(self, request: Any, answered: Callable[[Any], None]) -> int:
        if not self.groups.up:
            answered(Refused(NOT_AVAILABLE))
            return 0
        return self.groups.ask(request, answered)

    def quiet(self) -> bool:
        return not self.leaves and self.groups.quiet()

    # -- markers --------------------------------------------------------------------------------------------

    def write_marker(self, sent: SendMarkers, place: tuple[str, int], boot: int, to: LogModel | None) -> None:
        if place != GROUP_PLACE:
            super().write_marker(sent, place, boot, to)
            return
        if not self.up or boot != self.boot or self.is_void(sent, place, to):
            return
        if self.world.faulty and self.world.rng.random() < 0.06:
            self.report(sent, place, NOT_LEADER)
            return
        if sent.life == self.life:
            self.world.judge.marking(sent, self)
        ended = TxnEnded(0, sent.producer_id, sent.epoch, sent.commit, sent.coordinator_epoch, sent.level)

        def written(reply: Any) -> None:
            code = int(reply.code)
            if not code and self.world.faulty and self.world.rng.random() < 0.04:
                code = 7  # It is written, and its answer lost.
            refused = code in (NOT_COORDINATOR, NOT_AVAILABLE, 14)
            self.report(sent, place, NOT_LEADER if refused else code)

        self.end_positions(ended, written)

    def end_positions(self, ended: TxnEnded, written: Callable[[Any], None]) -> None:
        self.groups.ask(ended, written)
