"""Counts the interesting things, so that a run can show that they really happened."""

from muster.client.members import actions as act
from muster.coordinator.core.consumer.group import ConsumerMemberState
from muster.coordinator.core.model.effects import Effects, JoinReply
from muster.coordinator.core.model.events import (
    Event,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    Planned,
    SyncGroup,
    TimerFired,
)
from muster.coordinator.core.model.records import (
    CurrentStored,
    DelayStored,
    GroupDeleted,
    GroupEpochStored,
    GroupStored,
)
from muster.coordinator.core.model.types import GroupState
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.members.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World


class Census(Checker):
    """No invariant of its own; `WANTED` is what the runs of a test must have met."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.members = 0
        self.state: GroupState | None = None
        self.knew: set[str] = set()
        self.kinds: dict[str, bool] = {}
        """group -> whether it is a KIP-848 group"""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        group = core.groups.get(group_of(event))
        self.state = group.state if group else None
        self.members = len(group.members) if group else 0
        self.knew = set(group.static) if group else set()

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        group = core.groups.get(group_of(event))
        count = self.world.census
        self._count_consumers(core, event, effects)
        if isinstance(event, TimerFired) and event.key[0] == "session" and group and len(group.members) < self.members:
            count[f"sessions expired while {self.state.value if self.state else 'gone'}"] += 1
        if isinstance(event, JoinGroup) and not event.member_id and event.group_instance_id in self.knew:
            calm = any(isinstance(record, GroupStored) for record in effects.records)
            count["static members replaced calmly" if calm else "static members replaced in a rebalance"] += 1
        if isinstance(event, SyncGroup) and event.snapshot and self.state is GroupState.PREPARING_REBALANCE:
            count["plans that came too late"] += 1
        if isinstance(event, OffsetCommit) and any(reply.code for _, reply in effects.replies):
            count[f"commits refused: {effects.replies[0][1].code.name}"] += 1
        if isinstance(event, LeaveGroup) and event.operator:
            count["removals by an operator"] += 1
        count["groups deleted"] += sum(isinstance(record, GroupDeleted) for record in effects.records)
        count["leaders told to skip their plan"] += sum(
            isinstance(reply, JoinReply) and reply.code is ErrorCode.NONE and reply.skip_assignment
            for _, reply in effects.replies
        )

    def _count_consumers(self, core: Shard, event: Event, effects: Effects) -> None:
        count = self.world.census
        for record in effects.records:
            if isinstance(record, CurrentStored):
                count[f"KIP-848 members become {ConsumerMemberState(record.state).name}"] += 1
            elif isinstance(record, GroupEpochStored | GroupStored):
                self._count_kind(core, record.group_id)
            elif isinstance(record, DelayStored) and record.until_ms is not None:
                count["delays kept"] += 1
        if isinstance(event, TimerFired) and event.key[0] in ("rebalance", "rejoin", "fetch") and effects.records:
            count[f"KIP-848 {event.key[0]} timeouts"] += 1
        if isinstance(event, Planned) and not effects.records:
            count["plans of the coordinator that were of no use"] += 1
        if isinstance(event, JoinGroup) and group_of(event) in core.consumer_groups:
            count["classic members that join a KIP-848 group"] += bool(effects.records)

    def _count_kind(self, core: Shard, group_id: str) -> None:
        """What the group is after the step; it may have changed there and back in it."""
        consumer = group_id in core.consumer_groups
        group = core.consumer_groups.get(group_id) or core.groups.get(group_id)
        if group is None or self.kinds.setdefault(group_id, consumer) == consumer:
            return
        self.kinds[group_id] = consumer
        change = "upgraded" if consumer else "downgraded"
        self.world.census[f"groups {change}{' with members' if group.members else ''}"] += 1

    def acted(self, process: Process, action: act.Action) -> None:
        if isinstance(action, act.Revoke | act.Lost | act.Assign):
            kind = "KIP-848" if process.consumer else "cooperative" if process.cooperative else "eager"
            self.world.census[f"callbacks {type(action).__name__} ({kind})"] += 1


def group_of(event: Event) -> str:
    key: tuple[str, ...] = getattr(event, "key", ())
    group_id: str = getattr(event, "group_id", "")
    return key[1] if len(key) > 1 else group_id


WANTED = (
    "plans by a setting",
    "groups at rest that are planned by a setting",
    "steps of frozen groups",
    "steps with shares that wait",
    "pins that counted",
    "plans of calm groups",
    "shares that found an heir",
    "holds after a crash",
    "freeze through a conversion to KIP-848",
    "freeze through a conversion to classic",
    "deploy through a conversion to classic",
    "drain through a conversion to KIP-848",
    "drain through a conversion to classic",
    "pin through a conversion to KIP-848",
    "pin through a conversion to classic",
    "clocks set back",
    "plans with drained members",
    "rebalance cause THAW",
    "rebalance cause DEPLOY_OVER",
    "rebalance cause DRAINED",
    "rebalance cause PIN_CHANGED",
    "verbs: GROUP_PLANS_ITSELF",
    "told of operators: group_deleted",
    "told of operators: positions_changed",
    "claims: NONE",
    "claims: INVALID_PRODUCER_EPOCH",
    "records of zombies refused",
    "rebalances superseded",
    "rebalances emptied",
    "rebalance cause SYNC_TIMEOUT",
    "rebalance cause SESSION_EXPIRED",
    "rebalance cause REVOCATION_FOLLOW_UP",
    "rebalance cause STATIC_MEMBER_REPLACED",
    "rebalance cause PARTITIONS_CHANGED",
    "rebalance cause SUBSCRIPTION_CHANGED",
    "rebalance cause POLL_TIMEOUT",
    "sessions expired while PreparingRebalance",
    "sessions expired while CompletingRebalance",
    "sessions expired while Stable",
    "crashes between append and flush",
    "power lost between append and flush (groups)",
    "appends failed half way",
    "flushes failed",
    "reads failed",
    "shards unloaded",
    "static members replaced calmly",
    "static members replaced in a rebalance",
    "leaders told to skip their plan",
    "plans that withheld partitions",
    "plans that came too late",
    "commits refused: UNKNOWN_MEMBER_ID",
    "commits refused: ILLEGAL_GENERATION",
    "commits refused: FENCED_INSTANCE_ID",
    "commits refused: REBALANCE_IN_PROGRESS",
    "callbacks Lost (cooperative)",
    "members paused beyond their session",
    "members with a twin",
    "requests that came after their call was over",
    "groups deleted",
    "KIP-848 members become UNREVOKED",
    "KIP-848 members become UNRELEASED",
    "KIP-848 rebalance timeouts",
    "KIP-848 rejoin timeouts",
    "KIP-848 fetch timeouts",
    "ConsumerHeartbeat: FENCED_MEMBER_EPOCH",
    "ConsumerHeartbeat: UNRELEASED_INSTANCE_ID",
    "callbacks Lost (KIP-848)",
    "commits refused: STALE_MEMBER_EPOCH",
    "commits taken in part",
    "groups upgraded with members",
    "groups downgraded with members",
    "classic members that join a KIP-848 group",
    "plans put off",
    "plans of the coordinator that were of no use",
    "plans that failed at once",
    "work that failed",
    "work that overran its deadline",
    "rebalance cause ASSIGNOR_FAILED",
    "delayed plans that wait",
    "rebalance cause DELAY_OVER",
    "pushes",
    "heartbeats that crossed a push",
    "session streams broken",
    "heartbeats taken past the queue",
    "processes with a clock of their own",
    "node stalls",
    "node stalls beyond every session",
    "requests that waited for a node that stood still",
    "words at the last moment",
    "members deafened",
    "logs fenced",
    "shards that fell for their log",
    "parts of a ledger that cannot be read",
    "records of a ledger that say nothing",
    "strangers with much to say: INVALID_REQUEST",
    "strangers with much to say: NONE",
    "shards that fell for want of room",
    "shards that had room again",
    "groups that owed facts",
    "requests answered without room",
    "explanations that found no room",
    "groups whose records are damaged",
    "records of groups that say nothing: a position",
    "records of groups that say nothing: a classic group",
    "records of KIP-848 groups that say nothing",
    "shadows planned",
    "shadows that failed",
    "canaries promoted",
    "canaries rolled back",
    "canaries waiting",
    "canaries that survived a crash",
)
