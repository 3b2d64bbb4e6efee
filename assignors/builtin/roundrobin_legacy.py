"""The round robin of the ZooKeeper era: partitions in the order of their hash, dealt in turn."""

from __future__ import annotations

from collections.abc import Sequence

from muster.assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from muster.assignors.data.order import in_java_order


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
            from muster.assignors.builtin import fast

            columns = snapshot.columns
            place = {member: number for number, member in enumerate(in_java_order(columns.members))}
            ranks = [place[member] for member in columns.members]
            return Assignment(columns.table(fast.legacy_owner(columns, ranks, topic_hashes(columns.axis.topics))))
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
