"""Makes facts of classic groups true, live and in replay."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.facts import simple_group
from muster.coordinator.core.model.core_records import GroupDeleted, GroupStored


def apply_group_stored(state: ShardState, record: GroupStored) -> None:
    simple_group(state, record.group_id).stored = record


def apply_group_deleted(state: ShardState, record: GroupDeleted) -> None:
    state.drop(ClassicGroup, record.group_id)
    if not state.offsets.get(record.group_id):
        state.offsets.pop(record.group_id, None)


CLASSIC_FACTS: Mapping[type[Any], FactApplier] = {GroupStored: apply_group_stored, GroupDeleted: apply_group_deleted}
