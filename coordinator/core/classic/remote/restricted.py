"""What classic members may read counts where the coordinator plans for them: others are refused their fetches."""

from dataclasses import replace

from muster.assignors.api import Member as AssignorMember
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import Member
from muster.coordinator.core.rights import Rights, readable


def within(member: Member, said: AssignorMember) -> AssignorMember:
    """The same, subscribed to nothing that it may not read."""
    if member.rights is None:
        return said
    allowed = readable(member.rights, frozenset(said.topics))
    if len(allowed) == len(set(said.topics)):
        return said
    return replace(said, topics=tuple(topic for topic in said.topics if topic in allowed))


def heard(group: ClassicGroup, member: Member, rights: Rights) -> bool:
    """A join has said what the member may; whether a plan that stands is void by that."""
    known, member.rights = member.rights, rights
    return bool(group.remote) and known is not None and known != rights
