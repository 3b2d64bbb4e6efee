"""Static members that missed rounds of a group that the coordinator plans for: what they hold, and what is theirs.

Such a member keeps its place (KIP-345), and its word with it: what it said that it owns is older than the last plan.
Cooperative clients work on with what that plan gave them until they hear of another. Eager ones are left out: what
they say is what they remember.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.assignors.api import Member as AssignorMember
from muster.assignors.api import TopicPartition
from muster.assignors.data.claims import raw_claims
from muster.coordinator.core.classic.assigning import cooperative_names
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.model.plan import Plan, assignment_of, owned_of


def absent_members(group: ClassicGroup) -> dict[str, ClassicMember]:
    """Those that have not joined since the last plan was made, by member id."""
    if group.stored is None or not group.remote:
        return {}
    last = group.stored.generation
    return {
        member.id: member
        for member in group.members.values()
        if member.generation <= last
        and member.generation != group.generation
        and cooperative_names().issuperset(member.offer)
    }


def last_planned_shares(group: ClassicGroup) -> Plan:
    """The last plan, of those who are there; a static member may go by another id by now."""
    if group.stored is None:
        return {}
    shares = {
        group.static.get(record.group_instance_id or "", record.member_id): assignment_of(record.assignment)
        for record in group.stored.members
    }
    return {member_id: share for member_id, share in shares.items() if member_id in group.members}


def shares_of_absent(group: ClassicGroup) -> dict[str, dict[str, frozenset[int]]]:
    """{member id: {topic: partitions}} of the unheard: all that they may be working on.

    That is what they said, what the last plan gave them, and what plans have withheld from others for their sake.
    """
    silent = absent_members(group)
    if not silent:
        return {}
    shares = last_planned_shares(group)
    found: dict[str, dict[str, frozenset[int]]] = {}
    for member in silent.values():
        mine = found[member.id] = dict(owned_of(member.metadata(group.protocol_name)))
        for topic, partitions in shares.get(member.id, {}).items():
            mine[topic] = mine.get(topic, frozenset()).union(partitions)
    for (topic, partition), withheld in group.carried.items():
        if withheld.since_ms is None and withheld.holder in found:
            mine = found[withheld.holder]
            mine[topic] = mine.get(topic, frozenset()) | {partition}
    return found


def absent_with_claims(group: ClassicGroup) -> list[AssignorMember]:
    """The unheard with all that `shares_of_absent` tells: claims that hold up others, whoever owns a partition by
    right.
    """
    return [
        AssignorMember(member_id, (), {topic: sorted(row) for topic, row in owned.items()})
        for member_id, owned in shares_of_absent(group).items()
    ]


def with_last_shares(group: ClassicGroup, members: Sequence[AssignorMember]) -> list[AssignorMember]:
    """The same members, but what the last plan gave the unheard is what they own, as of that plan.

    What somebody else may still be working on is not theirs yet, unless they had it before: a group that turns classic
    comes with a target that not everybody has reached.
    """
    silent = absent_with_claims(group)
    if not silent:
        return list(members)
    assert group.stored is not None
    shares, generation = last_planned_shares(group), group.stored.generation
    unheard_ids, claimed = {each.id for each in silent}, raw_claims([*members, *silent])
    return [
        replace(each, owned=own_claims(each, shares.get(each.id, {}), claimed), generation=generation)
        if each.id in unheard_ids
        else each
        for each in members
    ]


def own_claims(
    member: AssignorMember, share: Mapping[str, Sequence[int]], claimed: Mapping[TopicPartition, set[str]]
) -> dict[str, list[int]]:
    said = member.owned or {}
    owned = {
        topic: [
            partition
            for partition in partitions
            if partition in said.get(topic, ()) or not claimed.get((topic, partition), set()) - {member.id}
        ]
        for topic, partitions in share.items()
    }
    return {topic: partitions for topic, partitions in owned.items() if partitions}
