"""Round robin: all partitions in a row, dealt in turn."""

from __future__ import annotations

from collections.abc import Sequence

from muster.assignors.api import Assignment, Member, Plan, RebalanceProtocol, Snapshot


class RoundRobinAssignor:
    """Deal the partitions of all topics, in topic order, to the members in turn.

    Where subscriptions differ, the turn passes over members who do not subscribe to the topic at hand;
    the turn carries over from topic to topic.

    >>> members = [Member("a", ("t", "u")), Member("b", ("t", "u"))]
    >>> plan = RoundRobinAssignor().assign(Snapshot({"t": 3, "u": 3}, members))
    >>> {member: {topic: list(dealt) for topic, dealt in share.items()} for member, share in plan.items()}
    {'a': {'t': [0, 2], 'u': [1]}, 'b': {'t': [1], 'u': [0, 2]}}
    """

    name = "roundrobin"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if snapshot.large:
            from muster.assignors.builtin import fast

            return Assignment(snapshot.columns.table(fast.roundrobin_owner(snapshot.columns)))
        members = snapshot.ordered_members()
        topics = snapshot.subscribed_topics()
        if len({frozenset(topics).intersection(member.topics) for member in members}) == 1:
            return deal_alike(snapshot, [member.id for member in members], topics)
        return deal_in_turn(snapshot, members, topics)


def deal_alike(snapshot: Snapshot, members: Sequence[str], topics: Sequence[str]) -> dict[str, dict[str, range]]:
    """Equal subscriptions: every member's share of a topic is a range with the stride of the group."""
    among = len(members)
    plan: dict[str, dict[str, range]] = {member: {} for member in members}
    shares = list(plan.values())
    turn = 0
    for topic in topics:
        count = snapshot.topics[topic]
        for first in range(min(count, among)):
            shares[(turn + first) % among][topic] = range(first, count, among)
        turn = (turn + count) % among
    return plan


def deal_in_turn(snapshot: Snapshot, members: list[Member], topics: list[str]) -> Plan:
    plan: dict[str, dict[str, list[int]]] = {member.id: {} for member in members}
    shares = list(plan.values())
    wanted = [frozenset(member.topics) for member in members]
    turn = 0
    for topic in topics:
        takers = [index for index in range(len(members)) if topic in wanted[index]]
        # The first taker at or after the turn; from there on the takers simply alternate.
        first = next((place for place, index in enumerate(takers) if index >= turn), 0)
        count, among = snapshot.topics[topic], len(takers)
        for offset in range(min(count, among)):
            shares[takers[(first + offset) % among]][topic] = list(range(offset, count, among))
        turn = (takers[(first + count - 1) % among] + 1) % len(members)
    return plan
