"""Makes facts of central groups true, live and in replay."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.facts import own_offsets
from muster.coordinator.core.model.records import CentralDeleted, CentralStored


def apply_central_stored(state: ShardState, record: CentralStored) -> None:
    """The group is of this kind from here on, whatever an older record made of it."""
    group = state.find(CentralGroup, record.group_id)
    (group or state.put(CentralGroup(record.group_id))).own(record)


def apply_central_deleted(state: ShardState, record: CentralDeleted) -> None:
    if state.drop(CentralGroup, record.group_id) and state.offsets.get(record.group_id):
        own_offsets(state, record.group_id)


CENTRAL_FACTS: Mapping[type[Any], FactApplier] = {
    CentralStored: apply_central_stored,
    CentralDeleted: apply_central_deleted,
}
