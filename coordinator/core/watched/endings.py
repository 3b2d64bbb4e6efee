"""How a member went: a broker keeps that it is gone, and not whether it left or its session expired.

Its commits tell: they are the only sign of life that a broker's records keep of a member. A commit names no member;
whoever owned the partition then is taken for the one who committed it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.member_history import describe_ms
from muster.coordinator.core.model.types import Cause, Certainty, WaitEnd

COMMITS_RARELY = "it commits too rarely to tell whether it left or its session expired"

# When positions were committed
# -----------------------------


class Silence(NamedTuple):
    """How long nothing was committed on some partitions, and how often something was before.

    last_ms: the newest commit; None: there was none in the time asked about. usual_ms: the usual distance of two
    commits of one partition; None: it is not known, since no partition was committed twice.
    """

    partitions: int
    last_ms: int | None
    usual_ms: int | None


class KnownTimes(NamedTuple):
    """Of one partition. last_ms: the newest commit; usual_ms: as in `Silence`."""

    last_ms: int
    usual_ms: int | None


def usual_distance(usual_ms: int, distance_ms: int) -> int:
    """With the newest distance in it. usual_ms: what it was; negative: there was none. In ms."""
    return distance_ms if usual_ms < 0 else (3 * usual_ms + distance_ms) >> 2


class CommitTimes:
    """Of one group: when its partitions were committed. Whoever reads very many commits keeps the times elsewhere, and
    answers `times_of` from there."""

    def __init__(self) -> None:
        self._times: dict[TopicPartition, KnownTimes] = {}

    def note_commit(self, partition: TopicPartition, at_ms: int) -> None:
        known = self._times.get(partition)
        if known is None:
            self._times[partition] = KnownTimes(at_ms, None)
        elif at_ms > known.last_ms:
            usual_ms = usual_distance(-1 if known.usual_ms is None else known.usual_ms, at_ms - known.last_ms)
            self._times[partition] = KnownTimes(at_ms, usual_ms)

    def times_of(self, partition: TopicPartition) -> KnownTimes | None:
        """None: it was never committed, or its position was deleted since."""
        return self._times.get(partition)

    def silence(self, partitions: Iterable[TopicPartition], since_ms: int) -> Silence:
        """Of the partitions' owner, from `since_ms` on."""
        count, last_ms, usual_ms = 0, None, None
        for partition in partitions:
            count += 1
            known = self.times_of(partition)
            if known is None:
                continue
            if known.last_ms >= since_ms and (last_ms is None or known.last_ms > last_ms):
                last_ms = known.last_ms
            if known.usual_ms is not None and (usual_ms is None or known.usual_ms < usual_ms):
                usual_ms = known.usual_ms
        return Silence(count, last_ms, usual_ms)


# How it ended
# ------------


class Ending(NamedTuple):
    """How a member went: left, expired, or (with certainty UNKNOWN) one of the two."""

    cause: Cause
    end: WaitEnd
    certainty: Certainty
    what: str
    evidence: str


class MemberTimeouts(NamedTuple):
    """In ms."""

    session_ms: int
    rebalance_ms: int


def conclude_ending(timeouts: MemberTimeouts, silence: Silence, written_ms: int) -> Ending:
    """How a member that the next generation is without went. written_ms: when that generation was written.

    Members that close commit as they go, and the others come back within a heartbeat. Whoever dies is missed after its
    session timeout. So a silence shorter than that is a goodbye, and a longer one is not, if it commits more often.
    """
    session_ms = timeouts.session_ms
    either = "left, or its session expired"
    if silence.last_ms is None:
        return Ending(
            Cause.MEMBER_LEFT,
            WaitEnd.LEFT,
            Certainty.UNKNOWN,
            either,
            f"nothing was committed on its {describe_partitions(silence.partitions)} in its last generation",
        )
    silent_ms = max(0, written_ms - silence.last_ms)
    seen = (
        f"nothing was committed on its {describe_partitions(silence.partitions)} for the last {describe_ms(silent_ms)}"
    )
    if silent_ms < session_ms:
        evidence = f"{seen}, which is less than its session timeout of {describe_ms(session_ms)}"
        return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.INFERRED, "left", evidence)
    if silence.usual_ms is None or silence.usual_ms >= session_ms:
        return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.UNKNOWN, either, f"{seen}; {COMMITS_RARELY}")
    evidence = (
        f"{seen}; its session timeout is {describe_ms(session_ms)}, and it had committed every "
        f"{describe_ms(silence.usual_ms)}"
    )
    return Ending(Cause.SESSION_EXPIRED, WaitEnd.EXPIRED, Certainty.INFERRED, "was not heard of any more", evidence)


def describe_partitions(count: int) -> str:
    """
    >>> describe_partitions(1), describe_partitions(3)
    ('partition', '3 partitions')
    """
    return "partition" if count == 1 else f"{count} partitions"
