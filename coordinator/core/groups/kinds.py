"""Every kind of group there is, by the type of its groups: a kind is a folder and a line here."""

from collections.abc import Mapping
from itertools import chain
from types import NoneType
from typing import Any

from muster.coordinator.core import facts
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.central.kind import Central
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.kind import Classic
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.consumer.kind import Consumer
from muster.coordinator.core.groups.absent import Absent
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.groups.kind import Keeper, Kind
from muster.coordinator.core.observed.group import ObservedGroup
from muster.coordinator.core.observed.kind import Observed


def kind_of(group: Group | None) -> Kind[Any]:
    """What answers for the group, or for there being none."""
    return KINDS[type(group)]


def rows() -> tuple[tuple[type[Any], Kind[Any]], ...]:
    absent: Kind[None] = Absent()
    classic: Kind[ClassicGroup] = Classic()
    consumer: Kind[ConsumerGroup] = Consumer()
    central: Kind[CentralGroup] = Central()
    observed: Kind[ObservedGroup] = Observed(kind_of)
    return (
        (NoneType, absent),
        (ClassicGroup, classic),
        (ConsumerGroup, consumer),
        (CentralGroup, central),
        (ObservedGroup, observed),
    )


KINDS: Mapping[type[Any], Kind[Any]] = dict(rows())

FACTS: Mapping[type[Any], Keeper] = dict(
    chain(facts.FACTS.items(), *(kind.facts.items() for kind in KINDS.values())),
)
"""What makes a record true, by its type."""
