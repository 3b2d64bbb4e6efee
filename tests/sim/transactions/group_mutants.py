"""Runs with groups, and shards and nodes of groups that break one rule each."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.events import DeleteGroup, ExpireOffsets, OffsetFetch, TxnEnded, TxnOffsetCommit
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.transactions.group_judge import PositionsJudge
from tests.sim.transactions.group_members import CONSUMER
from tests.sim.transactions.group_node import GroupNode
from tests.sim.transactions.group_side import MakeGroupShard
from tests.sim.transactions.workers import GroupsOperator, PositionProducer, Worker
from tests.sim.transactions.world import DEFAULTS, Options

EVERY_KIND = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    (CONSUMER, "uniform"),
    (CONSUMER, "range"),
)
POSITIONS = replace(
    DEFAULTS,
    node=GroupNode,
    judge=PositionsJudge,
    client=PositionProducer,
    retention_ms=1_500,
    operator=GroupsOperator,
)
EXACTLY_ONCE = replace(
    DEFAULTS, node=GroupNode, judge=PositionsJudge, client=Worker, workers=3, member_kinds=EVERY_KIND
)


class LastPendingShard(Shard):
    """TX-G4: the last pending position wins, over a plain commit that came behind it."""

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(limits, index)
        self.state.pending = UnmovedPositions()


class UnmovedPositions(PendingPositions):
    def overtaken(self, group_id: str, places: Mapping[Any, int] | Iterable[Any]) -> None:
        """What is written behind does not matter."""


class KeptPendingShard(Shard):
    """TX-G4: what an abort ends is pending ever after."""

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(limits, index)
        self.state.pending = StickyPositions()

    def step(self, event: Any, now_ms: int) -> Any:
        pending: Any = self.state.pending
        pending.aborts = isinstance(event, TxnEnded) and not event.commit
        return super().step(event, now_ms)


class StickyPositions(PendingPositions):
    __slots__ = ("aborts",)

    def ended(self, producer_id: int, before: int) -> Any:
        return {} if getattr(self, "aborts", False) else super().ended(producer_id, before)


class AbortCountsShard(Shard):
    """TX-G4: an abort is taken for a commit."""

    def step(self, event: Any, now_ms: int) -> Any:
        return super().step(replace(event, commit=True) if isinstance(event, TxnEnded) else event, now_ms)


class UnstableTakenShard(Shard):
    """TX-G5: nobody is told to wait for a transaction."""

    def step(self, event: Any, now_ms: int) -> Any:
        return super().step(replace(event, require_stable=False) if isinstance(event, OffsetFetch) else event, now_ms)


class AllUnstableShard(Shard):
    """TX-G5: whoever waits for one partition is told to wait for all."""

    def step(self, event: Any, now_ms: int) -> Any:
        effects = super().step(event, now_ms)
        for number, (request_id, reply) in enumerate(effects.replies):
            if isinstance(reply, OffsetFetchReply) and reply.refused:
                refused = dict.fromkeys(reply.offsets, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                told = replace(reply, refused=refused, offsets=dict.fromkeys(reply.offsets))
                effects.replies[number] = request_id, told  # type: ignore[index]
        return effects


class AnyGenerationShard(Shard):
    """TX-G2: nobody looks at who commits."""

    def step(self, event: Any, now_ms: int) -> Any:
        if isinstance(event, TxnOffsetCommit):
            event = replace(event, generation=-1, member_id="", group_instance_id=None)
        return super().step(event, now_ms)


class ExpiringPendingShard(Shard):
    """TX-G6: what a transaction may yet move expires like any."""

    def step(self, event: Any, now_ms: int) -> Any:
        if not isinstance(event, ExpireOffsets):
            return super().step(event, now_ms)
        pending, self.state.pending = self.state.pending, PendingPositions()
        effects = super().step(event, now_ms)
        self.state.pending = pending
        return effects


class ForgetfulDeletionShard(Shard):
    """TX-G7: who deletes a group leaves what is pending."""

    def step(self, event: Any, now_ms: int) -> Any:
        if not isinstance(event, DeleteGroup):
            return super().step(event, now_ms)
        pending, self.state.pending = self.state.pending, PendingPositions()
        effects = super().step(event, now_ms)
        self.state.pending = pending
        return effects


class HastyPositions(GroupNode):
    """TX-C10: a marker of positions counts before it is flushed."""

    def end_positions(self, ended: TxnEnded, written: Callable[[Any], None]) -> None:
        super().end_positions(ended, lambda reply: None)
        self.groups.turn_now()
        written(UNHEARD)


class Unheard:
    code = ErrorCode.NONE


UNHEARD = Unheard()


class UngatedPositions(GroupNode):
    """TX-L3: nobody asks whether the group's partition is in the transaction."""

    asks_leave = False


class LastingPositionsLeave(GroupNode):
    """TX-L12: a shard of transactional ids that is lost leaves the guards of positions."""

    voids_guards = False


class UnorderedPositions(GroupNode):
    """TX-C12: positions that their own repetition has overtaken are taken."""

    def is_newest(self, who: tuple[int, int], connection: int) -> bool:
        return True


class DeafOrphans(GroupNode):
    """TX-C14: what the groups' log has open is not looked for after a load."""

    def search_orphans(self) -> None:
        super(GroupNode, self).search_orphans()


def groups_with(make: MakeGroupShard) -> type[GroupNode]:
    return type(f"{make.__name__}Node", (GroupNode,), {"make_group_shard": staticmethod(make)})


GROUP_MUTANTS: dict[str, Options] = {
    "the last pending position wins": replace(POSITIONS, node=groups_with(LastPendingShard)),
    "positions wait on after an abort": replace(POSITIONS, node=groups_with(KeptPendingShard)),
    "an aborted position counts": replace(POSITIONS, node=groups_with(AbortCountsShard)),
    "88 is never told": replace(POSITIONS, node=groups_with(UnstableTakenShard)),
    "88 is told of all partitions": replace(POSITIONS, node=groups_with(AllUnstableShard)),
    "any generation may commit": replace(EXACTLY_ONCE, node=groups_with(AnyGenerationShard)),
    "pending positions expire": replace(POSITIONS, node=groups_with(ExpiringPendingShard)),
    "a deleted group leaves what is pending": replace(POSITIONS, node=groups_with(ForgetfulDeletionShard)),
    "positions' marker is told before it is durable": replace(POSITIONS, node=HastyPositions),
    "positions without leave": replace(POSITIONS, node=UngatedPositions),
    "positions let in by a shard that is lost": replace(POSITIONS, levels=(2,), node=LastingPositionsLeave),
    "overtaken positions are taken": replace(POSITIONS, levels=(0,), node=UnorderedPositions),
    "open positions are not looked for": replace(POSITIONS, node=DeafOrphans),
}
"""What is broken, and the run that shows it."""

GROUP_SOUND: dict[str, Options] = {
    "positions": POSITIONS,
    "positions, reigns": replace(POSITIONS, reigns=True, late_markers=True),
    "positions, killed at each step": replace(POSITIONS, kill_rate=0.04),
    "exactly once": EXACTLY_ONCE,
    "exactly once, level 2": replace(EXACTLY_ONCE, levels=(2,)),
}
"""Runs in which nothing is broken."""
