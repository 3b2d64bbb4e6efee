"""Every kind of group there is, by the type of its groups: a kind is a folder and a line here."""

from collections.abc import Mapping
from itertools import chain
from types import NoneType
from typing import Any

from coordinator.core import facts
from coordinator.core.central.group import CentralGroup
from coordinator.core.central.kind import Central
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.kind import Classic
from coordinator.core.consumer.group import ConsumerGroup
from coordinator.core.consumer.kind import Consumer
from coordinator.core.groups.absent import Absent
from coordinator.core.groups.group import Group
from coordinator.core.groups.kind import Keeper, Kind
from coordinator.core.observed.group import ObservedGroup
from coordinator.core.observed.kind import Observed


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
