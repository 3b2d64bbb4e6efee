"""Every kind of group by the type of its groups, and the table of conversions between kinds.

With members, a group changes only between the classic and the consumer protocol (KIP-848's migration, both ways).
Otherwise a group without members gives its id, positions, ledger and settings to one of another kind, whose
generations continue where its own ended. Each conversion checks what it may refuse before anything changes. Where the
table has no conversion, the group itself refuses the request.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from types import NoneType
from typing import Any

from muster.coordinator.core.central import registration
from muster.coordinator.core.central.group import CentralGroup, CentralState
from muster.coordinator.core.classic import membership, rebalance
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer import heartbeat
from muster.coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup
from muster.coordinator.core.consumer.members import forget_group
from muster.coordinator.core.consumer.migration import DOWNGRADE, UPGRADE
from muster.coordinator.core.groups.group import GroupData, ObservedGroup
from muster.coordinator.core.groups.kind import FactApplier, GroupConversion, GroupKind
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import facts
from muster.coordinator.core.kinds.central_kind import CentralKind
from muster.coordinator.core.kinds.classic_kind import ClassicKind
from muster.coordinator.core.kinds.consumer_kind import ConsumerKind
from muster.coordinator.core.kinds.default_kind import AbsentKind
from muster.coordinator.core.kinds.observed_kind import ObservedKind
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup, RegisterConsumer
from muster.coordinator.core.model.records import (
    CentralDeleted,
    GroupDeleted,
    GroupEpochStored,
    GroupStored,
    TargetEpochStored,
)
from muster.coordinator.core.model.types import GroupState
from muster.coordinator.errors import ErrorCode


def kind_of(group: GroupData | None) -> GroupKind[Any]:
    """What answers for the group, or for there being none."""
    return KINDS[type(group)]


def kind_rows() -> tuple[tuple[type[Any], GroupKind[Any]], ...]:
    absent: GroupKind[None] = AbsentKind()
    classic: GroupKind[ClassicGroup] = ClassicKind()
    consumer: GroupKind[ConsumerGroup] = ConsumerKind()
    central: GroupKind[CentralGroup] = CentralKind()
    observed: GroupKind[ObservedGroup] = ObservedKind(kind_of)
    return (
        (NoneType, absent),
        (ClassicGroup, classic),
        (ConsumerGroup, consumer),
        (CentralGroup, central),
        (ObservedGroup, observed),
    )


KINDS: Mapping[type[Any], GroupKind[Any]] = dict(kind_rows())

FACTS: Mapping[type[Any], FactApplier] = dict(
    chain(facts.COMMON_FACTS.items(), *(kind.facts.items() for kind in KINDS.values())),
)
"""What makes a record true, by its type."""


# Conversions
# -----------


def convert_if_due(request: JoinGroup | ConsumerHeartbeat | RegisterConsumer, step: Step) -> GroupData | None:
    """The group of that id; the log's has been turned into one that takes such members, if it was its turn."""
    group = step.state.groups.get(request.group_id)
    if group is None:
        return None
    logged = group.logged
    way = BY_REQUEST.get((type(logged), type(request)))
    if way is None or not way.made(logged, request, step):
        return group
    return step.state.groups[request.group_id]


def check_nobody_in(group: GroupData, request: object, step: Step) -> bool:
    return not group.members


def check_nobody_near(group: ClassicGroup, request: object, step: Step) -> bool:
    """Nor is anybody on the way who was given a member id."""
    return group.state is GroupState.EMPTY and not group.pending_joins


def check_may_join(group: GroupData, request: JoinGroup, step: Step) -> None:
    membership.check_may_open(ClassicGroup(group.id), request)


def check_may_heartbeat(group: GroupData, request: ConsumerHeartbeat, step: Step) -> None:
    heartbeat.check_may_open(request, step.limits)


def check_may_register(group: GroupData, request: RegisterConsumer, step: Step) -> None:
    registration.check_may_open(request, step.limits)


def give_up_classic(group: ClassicGroup, step: Step) -> None:
    rebalance.refuse_newcomers(group, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, step)
    step.keep(GroupDeleted(group.id))


def give_up_central(group: CentralGroup, step: Step) -> None:
    assert group.state is CentralState.EMPTY
    step.keep(CentralDeleted(group.id))


def open_classic(request: JoinGroup, generation: int, step: Step) -> None:
    step.keep(GroupStored(request.group_id, "", generation, None, None, step.now_ms, ()))
    step.state.get(ClassicGroup, request.group_id).generation = generation


def open_consumer(request: ConsumerHeartbeat, generation: int, step: Step) -> None:
    epoch = max(generation, FIRST_EPOCH)
    step.keep(GroupEpochStored(request.group_id, epoch))
    step.keep(TargetEpochStored(request.group_id, epoch, 0))


GIVE_UP: Mapping[type[GroupData], Callable[[Any, Step], None]] = {
    ClassicGroup: give_up_classic,
    ConsumerGroup: forget_group,
    CentralGroup: give_up_central,
}
OPEN: Mapping[type[GroupData], Callable[[Any, int, Step], None]] = {
    ClassicGroup: open_classic,
    ConsumerGroup: open_consumer,
    CentralGroup: registration.opened_group,
}


def hand_on_group(source: type[GroupData], target: type[GroupData]) -> Callable[[Any, Any, None, Step], None]:
    """A group without members leaves its id to one of another kind."""

    def change(group: GroupData, request: object, checked: None, step: Step) -> None:
        generation = group.generation
        GIVE_UP[source](group, step)
        OPEN[target](request, generation, step)

    return change


def conversion_when_empty(
    source: type[GroupData],
    target: type[GroupData],
    why: type[Any],
    check: Callable[[Any, Any, Step], None],
    when: Callable[[Any, object, Step], bool] = check_nobody_in,
) -> GroupConversion[Any, Any, None]:
    return GroupConversion(source, target, why, when, check, hand_on_group(source, target))


CONVERSIONS: tuple[GroupConversion[Any, Any, Any], ...] = (
    UPGRADE,
    DOWNGRADE,
    conversion_when_empty(ConsumerGroup, ClassicGroup, JoinGroup, check_may_join),
    conversion_when_empty(CentralGroup, ClassicGroup, JoinGroup, check_may_join),
    conversion_when_empty(CentralGroup, ConsumerGroup, ConsumerHeartbeat, check_may_heartbeat),
    conversion_when_empty(ClassicGroup, CentralGroup, RegisterConsumer, check_may_register, when=check_nobody_near),
    conversion_when_empty(ConsumerGroup, CentralGroup, RegisterConsumer, check_may_register),
)
"""Every way there is: from, to, what calls for it, its check, and when it is its turn."""

BY_REQUEST = {(way.source, way.why): way for way in CONVERSIONS}
