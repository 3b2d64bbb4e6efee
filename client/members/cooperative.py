"""The incremental cooperative way (KIP-429): keep working, let go only of what moves, then join once more."""

from collections.abc import Collection

from muster.client.members.handover import AssignmentChange
from muster.client.members.types import Partitions, TopicPartition


class CooperativeProtocol:
    """Give up before joining only what is not subscribed to any more; after it, only what went elsewhere.

    >>> CooperativeProtocol().before_join({("gone", 0), ("t", 0)}, {"t"})
    (('gone', 0),)
    >>> CooperativeProtocol().after_sync({("t", 0), ("t", 1)}, {("t", 1), ("t", 2)})
    AssignmentChange(revoked=(('t', 0),), added=(('t', 2),), rejoin=True)
    """

    def before_join(self, owned: Collection[TopicPartition], topics: Collection[str]) -> Partitions:
        return tuple(sorted(tp for tp in owned if tp[0] not in topics))

    def after_sync(self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]) -> AssignmentChange:
        before, after = set(owned), set(assigned)
        revoked = tuple(sorted(before - after))
        # Its next owner is waiting: the plan withheld it until this member has let go.
        return AssignmentChange(revoked=revoked, added=tuple(sorted(after - before)), rejoin=bool(revoked))
