"""What is answered where there is no group: whoever may begin one does, nobody else is known."""

from muster.coordinator.core.central import registration
from muster.coordinator.core.classic import join
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.groups.forgetting import forget_ledger
from muster.coordinator.core.groups.kind import NO_FACTS, RefusedPositions
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.unconcerned import DefaultKind
from muster.coordinator.core.model.core_events import (
    ConsumerHeartbeat,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
)
from muster.coordinator.core.model.effects import DeleteReply, DescribeReply, LeaveReply, ListedGroup, MemberReply
from muster.coordinator.core.model.events import RegisterConsumer
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.errors import CoordinatorError, ErrorCode


class AbsentKind(DefaultKind[None]):
    """The kind of a group that does not exist; the group is None."""

    facts = NO_FACTS

    def join(self, group: None, event: JoinGroup, step: Step, /) -> None:
        join.open_group(event, step)

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
