"""What changed between two views of a group: the cause of a rebalance as a member of the ZooKeeper era can know it."""

from muster.client.members.zookeeper_types import ConsumerGroupView
from muster.coordinator.core.model.types import Cause

MAX_NAMES = 5


def find_rebalance_cause(
    before: ConsumerGroupView | None, now: ConsumerGroupView, consumer_id: str
) -> tuple[Cause, str]:
    """The cause and its detail; the most telling one when several things changed at once.

    >>> from muster.client.members.zookeeper_types import GroupRegistration
    >>> one, two = ConsumerGroupView({"a": GroupRegistration({"t": 1})}), ConsumerGroupView({x: GroupRegistration({"t":
    ... 1}) for x in "ab"})
    >>> find_rebalance_cause(one, two, "a")
    (<Cause.MEMBER_JOINED: 1>, 'b joined')
    """
    if before is None:
        return Cause.MEMBER_JOINED, f"{consumer_id} joined"
    came, gone = set(now.members) - set(before.members), set(before.members) - set(now.members)
    changed = {each for each in now.members if each in before.members and now.members[each] != before.members[each]}
    details = [
        f"{shorten_names(names)} {verb}"
        for names, verb in ((came, "joined"), (gone, "left, or its session ended"), (changed, "changed"))
        if names
    ]
    if came or gone:
        return Cause.MEMBER_JOINED if came else Cause.MEMBER_LEFT, "; ".join(details)
    if changed:
        return Cause.MEMBER_METADATA_CHANGED, "; ".join(details)
    topics = sorted({*before.partitions, *now.partitions})
    counts = [(topic, before.partitions.get(topic, 0), now.partitions.get(topic, 0)) for topic in topics]
    if moved := [f"{topic} {old} -> {new}" for topic, old, new in counts if old != new]:
        return Cause.PARTITIONS_CHANGED, shorten_names(set(moved))
    if before.brokers != now.brokers:
        return Cause.BROKERS_CHANGED, f"brokers {list(before.brokers)} -> {list(now.brokers)}"
    return Cause.UNSPECIFIED, ""


def shorten_names(names: set[str]) -> str:
    """All of a few names, the first of many."""
    listed = ", ".join(sorted(names)[:MAX_NAMES])
    return listed if len(names) <= MAX_NAMES else f"{listed} and {len(names) - MAX_NAMES} more"
