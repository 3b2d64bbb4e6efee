"""Every kind of group there is, by the type of its groups: a kind is a folder and a line here."""

from collections.abc import Mapping
from itertools import chain
from types import NoneType
from typing import Any

from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import FactApplier, GroupKind
from muster.coordinator.core.groups.observed_group import ObservedGroup
from muster.coordinator.core.kinds import facts
from muster.coordinator.core.kinds.absent import AbsentKind
from muster.coordinator.core.kinds.classic_kind import ClassicKind
from muster.coordinator.core.kinds.consumer_kind import ConsumerKind
from muster.coordinator.core.kinds.kind import CentralKind
from muster.coordinator.core.kinds.observed_kind import ObservedKind


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
