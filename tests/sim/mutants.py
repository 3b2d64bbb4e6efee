"""Parts that are broken on purpose, one for each checker: a checker that catches nothing proves nothing."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from muster.assignors.api import TopicPartition
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine, HeartbeatReport
from muster.client.members.member_types import MemberSettings
from muster.client.members.subscription import AssignmentChange, CooperativeProtocol, Subscriber
from muster.coordinator.core.classic import replanning, server_side_assignment
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.consumer.group import ConsumerMember as MemberOfGroup
from muster.coordinator.core.control.balance import group_balance
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import Effects, HeartbeatReply, JoinReply, Reply, SyncReply, refusal_reply
from muster.coordinator.core.model.events import (
    AlterSettings,
    ConsumerHeartbeat,
    Event,
    JoinGroup,
    Loaded,
    OffsetCommit,
    SessionHeartbeat,
    SyncGroup,
)
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.records import (
    CurrentStored,
    Epochs,
    FenceStored,
    GroupEpochStored,
    GroupStored,
    OffsetsStored,
    RebalanceDecided,
    Record,
    SettingsStored,
    Shares,
    TargetEpochStored,
    TopicId,
)
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.shapes import BalanceRules
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import KeyValue, LogFailed
from muster.coordinator.runtime.shards import ReleasedAnswers, is_request
from muster.coordinator.runtime.stepper import NO_ROOM, FlushJob, LoadJob
from tests.sim.node.crashing_log import CrashingLog


class GenerousShard(Shard):
    """Gives the largest share of a plan to everybody."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if isinstance(event, SyncGroup) and event.assignments:
            largest = max((share for _, share in event.assignments), key=len)
            event = replace(event, assignments=tuple((member, largest) for member, _ in event.assignments))
        return super().step(event, now_ms)


class ForgetfulShard(Shard):
    """Reads an older generation from the log than the one that was written."""

    def apply(self, record: Record) -> None:
        if isinstance(record, GroupStored) and record.generation > 1:
            record = replace(record, generation=1)
        super().apply(record)


class HastyEngine(Engine):
    """Answers before what it says is on disk."""

    def take_released(self) -> ReleasedAnswers:
        for slot in self._slots:
            while slot.held:
                held = slot.held.popleft()
                self._answers.release(slot, held.replies, held.notices)
        return super().take_released()


class HurriedEngine(Engine):
    """Fires what is due before it steps what is queued."""

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        self._fire_timers(now_ms, now_ms)
        super().turn(now_ms, heard_ms)


class PanickyEngine(Engine):
    """Takes a flush that failed for some shards for one that failed for all."""

    def flush_failed(self, job: FlushJob, error: Exception, now_ms: int = 0) -> None:
        super().flush_failed(job, LogFailed(str(error)), now_ms)


class ResignedEngine(Engine):
    """Looks at the log of a shard that fell once more, and never again."""

    def load_failed(self, job: LoadJob, error: Exception) -> None:
        super().load_failed(job, error)
        self._loads.fallen.clear()


class FastidiousEngine(Engine):
    """Takes no shard of whose ledger a part is spoilt."""

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        if job.report.malformed:
            self.load_failed(job, LogFailed("a part of the ledger is spoilt"))
        else:
            super().loaded(job, now_ms)


class HopelessEngine(Engine):
    """Takes a log that has no room for one that is broken."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._starved.refused = lambda *_: None  # type: ignore[method-assign]


class RelentlessEngine(Engine):
    """Lets deadlines run while there is no room."""

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        for starved in self._starved.by_shard.values():
            starved.since_ms = now_ms
        super().turn(now_ms, heard_ms)


class StubbornEngine(Engine):
    """Answers nothing while there is no room."""

    def submit(self, shard: int, event: Event) -> bool:
        if shard in self.starved and is_request(event):
            self._answers.answer(type(event), event.request_id, refusal_reply(event, NO_ROOM, "there is no room"))
            return True
        return super().submit(shard, event)


class TalkativeEngine(Engine):
    """Tells what is owed to a log that has no room."""

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        for starved in self._starved.by_shard.values():
            starved.closed.clear()
        super().turn(now_ms, heard_ms)


class MakeshiftShard(Shard):
    """Goes on with what is left of a group of which a record is damaged."""

    def step(self, event: Event, now_ms: int) -> Effects:
        return super().step(replace(event, damaged=()) if isinstance(event, Loaded) else event, now_ms)


class DiscouragedLog(CrashingLog):
    """Reads the groups up to the first record that says nothing."""

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        senseless = self.parts[shard, "groups"].senseless
        return takewhile(lambda record: record.offset not in senseless, super().read_groups(shard))


class OpenShard(Shard):
    """Has no ear for rights."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if isinstance(event, SessionHeartbeat):
            event = replace(event, heartbeat=replace(event.heartbeat, rights=None))
        elif isinstance(event, JoinGroup | ConsumerHeartbeat):
            event = replace(event, rights=None)
        return super().step(event, now_ms)


class UnboundedShard(Shard):
    """Takes whatever it is told, whether the log can keep it or not."""

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(replace(limits, max_group_bytes=2**31), index)


class RingingEngine(Engine):
    """Fires what is due before it looks at anything else."""

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        self._fire_timers(now_ms, now_ms)
        super().stood_still(stalled_ms, now_ms)

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        self._fire_timers(now_ms, now_ms)
        super().turn(now_ms, heard_ms)


class UnawareEngine(Engine):
    """Does not know that it stood still: its deadlines go on meanwhile."""

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        return


class LyingLog(CrashingLog):
    """Says that it has flushed."""

    def flush(self, shards: Sequence[int]) -> None:
        return


class VolatileShard(Shard):
    """Applies some commits without a record."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        if isinstance(event, OffsetCommit) and event.request_id % 5 == 0:
            effects.records = [record for record in effects.records if not isinstance(record, OffsetsStored)]
        return effects


class TrustingShard(Shard):
    """Takes every commit as one of a member in good standing."""

    def step(self, event: Event, now_ms: int) -> Effects:
        group = self.groups.get(event.group_id) if isinstance(event, OffsetCommit) else None
        if isinstance(event, OffsetCommit) and group is not None and group.members:
            member = next(iter(group.members.values()))
            event = replace(
                event, member_id=member.id, group_instance_id=member.group_instance_id, generation=member.generation
            )
        return super().step(event, now_ms)


class SilentShard(Shard):
    """Forgets to answer some heartbeats."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        effects.replies = [
            (request_id, reply)
            for request_id, reply in effects.replies
            if not isinstance(reply, HeartbeatReply) or request_id % 3
        ]
        return effects


class UnguardedShard(Shard):
    """Reads no fences from the log."""

    def apply(self, record: Record) -> None:
        if not isinstance(record, FenceStored):
            super().apply(record)


class UnexplainedShard(Shard):
    """Leaves the ledger out."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        effects.records = [record for record in effects.records if not isinstance(record, RebalanceDecided)]
        return effects


class Clumsy(CooperativeProtocol):
    """Gives everything up after each plan, and takes what it gets."""

    def after_sync(self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]) -> AssignmentChange:
        return AssignmentChange(revoked=tuple(sorted(owned)), added=tuple(sorted(assigned)), rejoin=False)


def clumsy_member(settings: MemberSettings, subscriber: Subscriber) -> ClassicMemberMachine:
    if isinstance(subscriber.handover, CooperativeProtocol):
        subscriber.handover = Clumsy()
    return ClassicMemberMachine(settings, subscriber)


class PompousShard(Shard):
    """Tells members of a leader where the coordinator plans."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        effects.replies = [(request, self.boasting(reply)) for request, reply in effects.replies]
        return effects

    def boasting(self, reply: Reply) -> Reply:
        if not isinstance(reply, JoinReply) or reply.code or reply.leader:
            return reply
        group = next((group for group in self.groups.values() if reply.member_id in group.members), None)
        return reply if group is None else replace(reply, leader=group.leader or "")


class WordlessShard(Shard):
    """Says nothing to whoever gets nothing."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        effects.replies = [(request, wordless(reply)) for request, reply in effects.replies]
        return effects


def wordless(reply: Reply) -> Reply:
    nothing = isinstance(reply, SyncReply) and not reply.code and not assignment_of(reply.assignment)
    return replace(reply, assignment=b"") if nothing else reply  # type: ignore[arg-type, call-arg]


class UnheedingShard(Shard):
    """Keeps settings, and tells no group of them."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if not isinstance(event, AlterSettings):
            return super().step(event, now_ms)
        hidden, self.state.groups = self.state.groups, {}
        try:
            return super().step(event, now_ms)
        finally:
            self.state.groups = hidden


class SnatchingShard(Shard):
    """Gives classic members at once what others still hold."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, server_side_assignment.hand_over = (
            server_side_assignment.hand_over,
            lambda _snapshot, target, _besides: target,
        )
        try:
            return super().step(event, now_ms)
        finally:
            server_side_assignment.hand_over = honest


class AmnesiacShard(Shard):
    """Does not look, once loaded, who made the last plan."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if not isinstance(event, Loaded):
            return super().step(event, now_ms)
        honest, server_side_assignment.restore_last_plan = (
            server_side_assignment.restore_last_plan,
            lambda _group, _step: None,
        )
        aware, replanning.replan_after_load = replanning.replan_after_load, lambda _group, _step: None
        try:
            return super().step(event, now_ms)
        finally:
            server_side_assignment.restore_last_plan, replanning.replan_after_load = honest, aware


class OldFashionedShard(Shard):
    """Reads what was set first from the log, and no change of it."""

    def apply(self, record: Record) -> None:
        if not (isinstance(record, SettingsStored) and record.version > 1):
            super().apply(record)


class GreedyShard(Shard):
    """Gives KIP-848 members what others still hold."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, heartbeat.available_partitions = heartbeat.available_partitions, everything_new
        try:
            return super().step(event, now_ms)
        finally:
            heartbeat.available_partitions = honest


def everything_new(
    _group: ConsumerGroup, _member: MemberOfGroup, target: Shares, keep: Epochs
) -> tuple[dict[TopicId, frozenset[int]], bool]:
    return {topic: frozenset(partitions - keep.get(topic, {}).keys()) for topic, partitions in target.items()}, False


class ImpatientShard(Shard):
    """Takes every heartbeat of a KIP-848 member for a sign that it has let go."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if isinstance(event, ConsumerHeartbeat) and event.member_epoch > 0:
            event = replace(event, owned={})
        return super().step(event, now_ms)


class HurriedMember(ConsumerMemberMachine):
    """Says that it has let go before its application has."""

    def _report(self) -> HeartbeatReport:
        return HeartbeatReport(self._wish, tuple(sorted(self.owned)))


class EpochBlindShard(Shard):
    """Takes a commit of a KIP-848 member under any epoch."""

    def step(self, event: Event, now_ms: int) -> Effects:
        group = self.consumer_groups.get(event.group_id) if isinstance(event, OffsetCommit) else None
        if isinstance(event, OffsetCommit) and group is not None and event.member_id in group.members:
            event = replace(event, generation=group.members[event.member_id].epoch)
        return super().step(event, now_ms)


class RestlessShard(Shard):
    """Forgets what has moved before it evens out the load."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, group_balance.recent_moves = group_balance.recent_moves, nothing_moved
        try:
            return super().step(event, now_ms)
        finally:
            group_balance.recent_moves = honest


def nothing_moved(_group_id: str, _rules: BalanceRules, _step: Step) -> dict[tuple[str, int], int]:
    return {}


class StuckShard(Shard):
    """Reads older epochs from the log than those that were written."""

    def apply(self, record: Record) -> None:
        if isinstance(record, GroupEpochStored | TargetEpochStored):
            record = replace(record, epoch=min(record.epoch, 3))
        super().apply(record)


class AbsentMindedShard(Shard):
    """Forgets to write down what KIP-848 members have."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        effects.records = [record for record in effects.records if not isinstance(record, CurrentStored)]
        return effects
