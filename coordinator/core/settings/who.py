"""Which assignor an operator wants for a group: one place that says so, whatever kind of group asks."""

from collections.abc import Mapping

from muster.assignors.api import JsonValue
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.plan import canonical_name
from muster.coordinator.core.settings.assignor import ASSIGNOR, ASSIGNOR_OPTIONS


def chosen_assignor(state: ShardState, group_id: str) -> str:
    """The canary's candidate while one runs, else the group's setting, by its own name; empty: whoever its members ask
    for.

    Options that go with it are `chosen_options`.
    """
    canary = state.canaries.get(group_id)
    if canary is not None and canary.runs:
        return canary.assignor
    return canonical_name(ASSIGNOR.of(state, group_id), state.limits)


def chosen_options(state: ShardState, group_id: str) -> Mapping[str, JsonValue]:
    """What that assignor is told beside the group."""
    canary = state.canaries.get(group_id)
    return canary.options if canary is not None and canary.runs else ASSIGNOR_OPTIONS.of(state, group_id)
