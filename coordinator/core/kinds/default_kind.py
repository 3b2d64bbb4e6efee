"""The answers to calls that do not concern a kind of group, and the kind of a group that does not exist.

Kinds inherit `DefaultKind` and override what they take part in: everything else changes nothing and knows no member.
`AbsentKind` opens a group where a request may, and refuses all others.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from muster.assignors.api import Snapshot
from muster.coordinator.core.central import registration
from muster.coordinator.core.central.registration import check_registration_form as registers_well
from muster.coordinator.core.classic import membership
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.consumer.members import check_heartbeat_form as beats_well
from muster.coordinator.core.groups.bookkeeping import forget_ledger
from muster.coordinator.core.groups.group import NOBODY_OWNS, GroupData, OwnedPartitions
from muster.coordinator.core.groups.kind import NO_FACTS, HeartbeatOutlook, Positions, RefusedPositions
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import (
    DeleteReply,
    DescribeConsumerReply,
    DescribeReply,
    LeaveReply,
    MemberReply,
)
from muster.coordinator.core.model.events import (
    ClaimFence,
    ConnectionClosed,
    ConsumerHeartbeat,
    DeleteGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LedgerFact,
    Listen,
    OffsetCommit,
    OffsetFetch,
    Planned,
    RegexResolved,
    RegisterConsumer,
    StoodStill,
    SyncGroup,
)
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import ListedGroup, RequestId, TimerKey
from muster.coordinator.errors import CoordinatorError, ErrorCode

G_contra = TypeVar("G_contra", bound=GroupData | None, contravariant=True)


class DefaultKind(Generic[G_contra]):
    """Nothing is changed by what a group of this kind has no part in, and no such member is known."""

    word = "none"
    """The kind, as operators and refusals call it."""
    counts_from_last_heard = False

    def sync(self, group: G_contra, event: SyncGroup, step: Step, /) -> None:
        raise self.no_member(group, event.group_id)

    def heartbeat(self, group: G_contra, event: Heartbeat, step: Step, /) -> None:
        raise self.no_member(group, event.group_id)

    def no_member(self, group: G_contra, group_id: str) -> CoordinatorError:
        why = f"there is no group {group_id!r}; join with an empty member id"
        return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, why)

    def consumer_heartbeat(self, group: G_contra, event: ConsumerHeartbeat, step: Step, /) -> None:
        beats_well(event, step.limits)
        raise no_consumer_group(event.group_id, "; join with epoch 0")

    def register(self, group: G_contra, event: RegisterConsumer, step: Step, /) -> None:
        registers_well(event, step.limits)
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {event.group_id!r} is a {self.word} group with {members_of(group)} members; stop them first, or "
            "use another group.id",
        )

    def lives(self, group: G_contra, event: ConsumerHeartbeat, step: Step, /) -> None:
        """No such member is known."""

    def spoke(self, group: G_contra, member_id: str, step: Step, /) -> None:
        """No such member is known."""

    def forget(self, group: G_contra, member_id: str, request: RequestId, step: Step, /) -> None:
        """Nobody was parked."""

    def session_ms(self, group: G_contra, member_id: str, step: Step, /) -> int:
        return 0

    def stream_opened(self, group: G_contra, member_id: str, connection: int, /) -> None:
        """No such member is known."""

    def positions(self, group: G_contra, event: OffsetFetch, step: Step, /) -> Positions:
        return step.state.offsets.get(event.group_id, {})

    def epochs(self, group: G_contra, group_id: str, step: Step, /) -> DescribeConsumerReply:
        raise no_consumer_group(group_id)

    def owners(self, group: G_contra, state: ShardState, former: OwnedPartitions, /) -> OwnedPartitions:
        return NOBODY_OWNS

    def assignor(self, group: G_contra, step: Step, /) -> str:
        return ""

    def plans_itself(self, group: G_contra, /) -> bool:
        return False

    def classic_offers(self, group: G_contra, /) -> Iterable[tuple[str, frozenset[str]]]:
        return ()

    def settings_changed(self, group: G_contra, trigger: RebalanceTrigger, step: Step, /) -> None:
        """Nothing is planned here."""

    def is_planned_by(self, group: G_contra, candidate: AssignorCandidate, step: Step, /) -> bool:
        return False

    def situation(self, group: G_contra, step: Step, /) -> GroupSituation:
        return GroupSituation(Snapshot({}, []), {}, {})

    def at_rest(self, group: G_contra, /) -> bool:
        return True

    def snapshot(self, group: G_contra, step: Step, /) -> Snapshot | None:
        return None

    def replan(self, group: G_contra, trigger: RebalanceTrigger, step: Step, /) -> None:
        """Nothing is planned here."""

    def load(self, group: G_contra, step: Step, /) -> None:
        """The log says nothing of it."""

    def damaged(self, group: G_contra, step: Step, /) -> None:
        """What it was is in one record, or in none."""

    def word_lost(self, group: G_contra, step: Step, /) -> None:
        """Who plans is known without it."""

    def unload(self, group: G_contra, step: Step, /) -> None:
        """Nobody is parked."""

    def timer(self, group: G_contra, key: TimerKey, step: Step, /) -> None:
        """It was a former group's."""

    def stood_still(self, group: G_contra, event: StoodStill, step: Step, /) -> None:
        """It counts on timers alone, which have been moved."""

    def topics_changed(self, group: G_contra, step: Step, /) -> None:
        """Nothing is planned here."""

    def connection_closed(self, group: G_contra, event: ConnectionClosed, step: Step, /) -> None:
        """It keeps no history of its members."""

    def explain(self, group: G_contra, event: LedgerFact, step: Step, /) -> None:
        """It keeps no history of its members."""

    def rights_changed(self, group: G_contra, event: RightsAnew, step: Step, /) -> None:
        """Nothing is planned here."""

    def planned(self, group: G_contra, event: Planned, step: Step, /) -> None:
        """A former group asked for it."""

    def resolved(self, group: G_contra, event: RegexResolved, step: Step, /) -> None:
        """A former group asked for it."""

    def expire(self, group: G_contra, step: Step, /) -> None:
        """It keeps nothing that is past its time."""

    def outlook(self, group: G_contra, listener: Listen, /) -> HeartbeatOutlook:
        return HeartbeatOutlook.UNKNOWN

    def steady(self, group: G_contra, event: ConsumerHeartbeat, state: ShardState, /) -> bool:
        return False


def members_of(group: GroupData | None) -> int:
    return 0 if group is None else len(group.members)


def no_consumer_group(group_id: str, advice: str = "") -> CoordinatorError:
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}{advice}")


# No group
# --------


class AbsentKind(DefaultKind[None]):
    """The kind of a group that does not exist; the group is None."""

    facts = NO_FACTS

    def join(self, group: None, event: JoinGroup, step: Step, /) -> None:
        membership.open_group(event, step)

    def consumer_heartbeat(self, group: None, event: ConsumerHeartbeat, step: Step, /) -> None:
        heartbeat.open_group(event, step)

    def register(self, group: None, event: RegisterConsumer, step: Step, /) -> None:
        registration.open_group(event, step)

    def leave(self, group: None, event: LeaveGroup, step: Step, /) -> None:
        code, why = ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {event.group_id!r}"
        replies = tuple(MemberReply(who.member_id, who.group_instance_id, code, why) for who in event.members)
        step.reply(event.request_id, LeaveReply(members=replies))

    def may_commit(self, group: None, event: OffsetCommit, step: Step, /) -> RefusedPositions:
        """Whoever is no member may: the positions make a simple group."""
        if event.generation < 0:
            return {}
        if event.missing_group_code_is_illegal_generation:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {event.group_id!r}; join first")
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {event.group_id!r}; join first")

    def owns(self, group: None, event: ClaimFence, step: Step, /) -> bool:
        return False

    def subscribed(self, group: None, group_id: str, /) -> frozenset[str] | None:
        raise unknown_group(group_id)

    def delete(self, group: None, event: DeleteGroup, step: Step, /) -> None:
        if event.group_id not in step.state.ledgers or event.group_id in step.state.farewells:
            raise unknown_group(event.group_id)
        # It has gone from ZooKeeper by itself; what is told of it is left.
        forget_ledger(event.group_id, step)
        step.reply(event.request_id, DeleteReply())

    def view(self, group: None, group_id: str, step: Step, /) -> DescribeReply:
        raise unknown_group(
            group_id, "; it was deleted, and its history tells by whom" * (group_id in step.state.farewells)
        )

    def listed(self, group: None, /) -> tuple[ListedGroup, ...]:
        return ()


def unknown_group(group_id: str, more: str = "") -> CoordinatorError:
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}{more}")
