"""Round robin: all partitions in a row, dealt in turn; and the ZooKeeper era's, which deals them in the order of their
hash.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.assignors.api import Assignment, Member, Plan, RebalanceProtocol, Snapshot
from muster.assignors.data.values import in_java_order

# Round robin
# -----------


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
            from muster.assignors.builtin import vectorized

            return Assignment(snapshot.columns.table(vectorized.roundrobin_owner(snapshot.columns)))
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


# The round robin of the ZooKeeper era
# ------------------------------------


class RoundRobinLegacyAssignor:
    """Order all partitions by the Java hash of "[topic,partition]", deal them in turn to members by id.

    It is the order of Kafka 0.8.2 to 0.11; 1.0 and 1.1 hashed "topic-partition". The hash scatters a topic over
    members, which the plain order does not do when there are many members. The old code refused unequal
    subscriptions; here the turn passes over who does not subscribe.

    >>> from muster.assignors.api import Member
    >>> members = [Member("a", ("t", "u")), Member("b", ("t", "u"))]
    >>> RoundRobinLegacyAssignor().assign(Snapshot({"t": 3, "u": 2}, members))
    {'a': {'t': [0, 2], 'u': [1]}, 'b': {'t': [1], 'u': [0]}}
    """

    name = "roundrobin-legacy"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if snapshot.large and snapshot.columns.alike:
            from muster.assignors.builtin import vectorized

            columns = snapshot.columns
            place = {member: number for number, member in enumerate(in_java_order(columns.members))}
            ranks = [place[member] for member in columns.members]
            return Assignment(columns.table(vectorized.legacy_owner(columns, ranks, topic_hashes(columns.axis.topics))))
        wanted = {member.id: frozenset(member.topics) for member in snapshot.members}
        circle = in_java_order(wanted)
        plan: dict[str, dict[str, list[int]]] = {member: {} for member in circle}
        turn = 0
        for topic, partition in sorted(snapshot, key=lambda tp: partition_hash(*tp)):
            while topic not in wanted[circle[turn % len(circle)]]:
                turn += 1
            plan[circle[turn % len(circle)]].setdefault(topic, []).append(partition)
            turn += 1
        return {
            member: {topic: sorted(partitions) for topic, partitions in share.items()} for member, share in plan.items()
        }


def topic_hashes(topics: Sequence[str]) -> list[int]:
    """The hash of "[topic," for each topic; the partition's digits and the bracket are still to come."""
    return [java_hash(f"[{topic},") for topic in topics]


def partition_hash(topic: str, partition: int) -> int:
    """What the era's round robin sorts by: the hash of how Scala's `TopicAndPartition` writes itself, 0.8.2 to 0.11.

    >>> partition_hash("t", 0)
    87540032
    """
    return java_hash(f"[{topic},{partition}]")


def java_hash(text: str) -> int:
    """`String.hashCode`: signed, 32 bits, over UTF-16 units.

    >>> java_hash("t-0"), java_hash("polygenelubricants")
    (112919, -2147483648)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
