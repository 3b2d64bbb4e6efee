"""What classic members may read counts where the coordinator plans for them: others are refused their fetches."""

from dataclasses import replace

from muster.assignors.api import Member as AssignorMember
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.plan import shares_of, topics_of
from muster.coordinator.core.model.rights import Rights, describe_rights_change, readable_topics


def restrict_subscription(member: ClassicMember, said: AssignorMember) -> AssignorMember:
    """The same, subscribed to nothing that it may not read."""
    if member.rights is None:
        return said
    allowed = readable_topics(member.rights, frozenset(said.topics))
    if len(allowed) == len(set(said.topics)):
        return said
    return replace(said, topics=tuple(topic for topic in said.topics if topic in allowed))


def take_rights(group: ClassicGroup, member: ClassicMember, rights: Rights, state: ShardState) -> str:
    """A word of the member has said what it may. By what a plan that stands is void; empty: it stands.

    What it was made with is not known of who is heard for the first time since the log was read: only what came of it.
    """
    known, member.rights = member.rights, rights
    if not group.remote or rights == known:
        return ""
    named = topics_of(member.metadata(group.protocol_name)) or frozenset()
    was, now = readable_topics(known, named), readable_topics(rights, named)
    if was == now if known is not None else plan_fits_rights(group, member, now, state):
        return ""
    return describe_rights_change(was, now) or "may read what nobody was given"


def plan_fits_rights(group: ClassicGroup, member: ClassicMember, may_read: frozenset[str], state: ShardState) -> bool:
    """Whether the plan gives the member nothing that it may not read, and somebody everything that it may.

    What waits for its former owner to let go is as good as given.
    """
    if not shares_of(member.assignment).keys() <= may_read:
        return False
    given = {topic for other in group.members.values() for topic in shares_of(other.assignment)}
    given.update(topic for topic, _ in group.carried)
    return may_read & state.partitions.keys() <= given
