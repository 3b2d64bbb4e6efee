"""What operators hold of a group, as the rules want it: what is meant so is told as such."""

from collections.abc import Iterable

from muster.coordinator.doctor.facts import Member
from muster.coordinator.views.holds import Drained, Held, held


def held_words(holds: Held) -> tuple[str, ...]:
    """A line for each, as `muster groups describe` says it."""
    return tuple(words for words, _ in held(holds))


def drained_ids(members: Iterable[Member], holds: Held) -> frozenset[str]:
    """The members that are to have nothing."""
    return frozenset(member.id for member in members if any(is_meant(member, drain) for drain in holds.drains))


def is_meant(member: Member, drain: Drained) -> bool:
    called = {
        "member-id": member.id,
        "client-id": member.client_id,
        "instance": member.instance_id,
        "host": member.host,
    }
    return called.get(drain.by) == drain.name
