"""When the positions of a group were committed: the only sign of life that a broker's records keep of a member.

A commit names no member. Whoever owned the partition then is taken for the one who committed it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.assignors.api import TopicPartition

OLD_SHARE = 0.75
"""How much of the usual distance is what it was before; the rest is the newest distance."""


class Silence(NamedTuple):
    """How long nothing was committed on some partitions, and how often something was before.

    last_ms: the newest commit; None: there was none in the time asked about. usual_ms: the usual distance of two
    commits of one partition; None: it is not known, since no partition was committed twice.
    """

    partitions: int
    last_ms: int | None
    usual_ms: int | None


class CommitTimes:
    """Of one group: by partition the newest commit, and the usual distance of two commits. In ms."""

    def __init__(self) -> None:
        self._times: dict[TopicPartition, tuple[int, int | None]] = {}

    def note_commit(self, partition: TopicPartition, at_ms: int) -> None:
        known = self._times.get(partition)
        if known is None:
            self._times[partition] = (at_ms, None)
            return
        last_ms, usual_ms = known
        distance_ms = max(0, at_ms - last_ms)
        usual = distance_ms if usual_ms is None else int(OLD_SHARE * usual_ms + (1 - OLD_SHARE) * distance_ms)
        self._times[partition] = (max(last_ms, at_ms), usual)

    def forget(self, partition: TopicPartition) -> None:
        """Its position was deleted."""
        self._times.pop(partition, None)

    def silence(self, partitions: Iterable[TopicPartition], since_ms: int) -> Silence:
        """Of the partitions' owner, from `since_ms` on."""
        count, last_ms, usual_ms = 0, None, None
        for partition in partitions:
            count += 1
            known = self._times.get(partition)
            if known is None:
                continue
            if known[0] >= since_ms and (last_ms is None or known[0] > last_ms):
                last_ms = known[0]
            if known[1] is not None and (usual_ms is None or known[1] < usual_ms):
                usual_ms = known[1]
        return Silence(count, last_ms, usual_ms)
