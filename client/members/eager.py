"""The eager way: everybody lets go of everything, then the plan is dealt out anew."""

from collections.abc import Collection

from muster.client.members.handover import AssignmentChange
from muster.client.members.types import Partitions, TopicPartition


class EagerProtocol:
    """Give up all before joining; take what comes.

    >>> EagerProtocol().before_join({("t", 1), ("t", 0)}, {"t"})
    (('t', 0), ('t', 1))
    >>> EagerProtocol().after_sync((), {("t", 1)}).added
    (('t', 1),)
    """

    def before_join(self, owned: Collection[TopicPartition], topics: Collection[str]) -> Partitions:
        return tuple(sorted(owned))

    def after_sync(self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]) -> AssignmentChange:
        assert not owned, "an eager member owns nothing while it waits for its share"
        return AssignmentChange(revoked=(), added=tuple(sorted(assigned)), rejoin=False)
