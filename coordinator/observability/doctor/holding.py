"""What operators hold of a group, as the rules want it: what is meant so is told as such."""

from collections.abc import Iterable

from muster.coordinator.observability.doctor.facts import ExaminedMember
from muster.coordinator.observability.views.holds import DrainState, OverrideState, override_words


def override_lines(holds: OverrideState) -> tuple[str, ...]:
    """A line for each, as `muster groups describe` says it."""
    return tuple(words for words, _ in override_words(holds))


def drained_ids(members: Iterable[ExaminedMember], holds: OverrideState) -> frozenset[str]:
    """The members that are to have nothing."""
    return frozenset(member.id for member in members if any(is_drained(member, drain) for drain in holds.drains))


def is_drained(member: ExaminedMember, drain: DrainState) -> bool:
    called = {
        "member-id": member.id,
        "client-id": member.client_id,
        "instance": member.instance_id,
        "host": member.host,
    }
    return called.get(drain.by) == drain.name
