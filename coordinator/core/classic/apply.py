"""Makes facts of classic groups true, live and in replay."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.facts import simple_group
from muster.coordinator.core.groups.kind import Keeper
from muster.coordinator.core.records import GroupDeleted, GroupStored
from muster.coordinator.core.state import ShardState


def keep_group(state: ShardState, record: GroupStored) -> None:
    simple_group(state, record.group_id).stored = record


def forget_group(state: ShardState, record: GroupDeleted) -> None:
    state.drop(ClassicGroup, record.group_id)
    if not state.offsets.get(record.group_id):
        state.offsets.pop(record.group_id, None)


FACTS: Mapping[type[Any], Keeper] = {GroupStored: keep_group, GroupDeleted: forget_group}
