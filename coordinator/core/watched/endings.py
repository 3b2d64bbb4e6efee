"""How a member went: a broker keeps that it is gone, and not whether it left or its session expired.

Its commits tell: they are the only sign of life that a broker's records keep of a member. A commit names no member;
whoever owned the partition then is taken for the one who committed it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.member_history import describe_ms
from muster.coordinator.core.model.types import Cause, Certainty, WaitEnd

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
    """With the newest distance in it: a longer one counts at once, so that a silence is not taken for more than it is.
    usual_ms: what it was; negative: there was none. In ms."""
    return distance_ms if distance_ms >= usual_ms else (3 * usual_ms + distance_ms) >> 2


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

SLACK_MS = 600
"""Between the end of a timeout and what the records tell of it: timers, heartbeats, a second commit."""

POLL_CHECK_MS = 1_500
"""Clients look that often whether the program still polls, at the least."""

NOTICE_MS = 3_000
"""Clients send a heartbeat that often, at the least, and hear with the answer that a round has begun."""

DISTANCES = 1.5
"""So many usual distances may lie between a member's last commit and its last sign of life, which no record tells."""

HEARTBEATS = 8
"""Members of KIP-848 groups send a heartbeat more often than that within their session: nine times, by default."""

WHICH_CAME_FIRST = "several things changed between the two generations, and no record says which came first"
"""Evidence of a cause that stands on record, as all else that changed does."""

WENT_SOMEHOW = "its owner is no longer in the group"

EITHER = "left, or its session expired"

LEFT_OR_LATE = "left, or did not rejoin in time"


class Ending(NamedTuple):
    """How a member went: left, expired, or (with certainty UNKNOWN) one of the two."""

    cause: Cause
    end: WaitEnd
    certainty: Certainty
    what: str
    evidence: str

    @property
    def known(self) -> bool:
        return self.certainty is not Certainty.UNKNOWN

    @property
    def may_be_late(self) -> bool:
        """Whether the round itself may have ended it, so that it did not begin that round."""
        return self.cause is Cause.REBALANCE_TIMEOUT or self.what == LEFT_OR_LATE


class MemberTimeouts(NamedTuple):
    """In ms. session_ms: None: it is not known, which no record of a KIP-848 group tells.

    static: it has a `group.instance.id`, so it does not leave when it stops (KIP-345). commits_count: a commit is a
    sign of life to the coordinator, as it is of a classic group; else only a heartbeat is.
    """

    session_ms: int | None
    rebalance_ms: int
    static: bool = False
    commits_count: bool = True

    def shortest_ms(self, silence: "Silence") -> int:
        """The shortest silence after which its session may have expired."""
        session_ms = self.session_ms or 0
        if not self.commits_count:
            return session_ms - session_ms // HEARTBEATS
        # A generation that it joined is on record a little later than its session began.
        return session_ms if silence.last_ms is not None else session_ms - SLACK_MS

    @property
    def notice_ms(self) -> int:
        """How long the others may take to hear that a classic group's round has begun."""
        return min(NOTICE_MS, (self.session_ms or 0) // 3) if self.commits_count else 0


class WaitedOutRound(NamedTuple):
    """A round that took as long as the coordinator waits for members that it knows (WA-E9).

    begun_ms: the last commit of the first member to stop; timeout_ms: the longest `max.poll.interval.ms`.
    """

    begun_ms: int
    timeout_ms: int


class LastSigns(NamedTuple):
    """What is known of a member that is gone. Times in ms.

    joined_ms: when its last generation was written, which it had joined; begun_ms: the latest moment at which the
    round can have begun that it is missing from, as far as others' commits tell; written_ms: when that was over.
    alone: nothing but its end can have begun that round. waited_out: None: that round was shorter, or longer, than its
    timeout. topics_unplanned: the member had partitions of a topic that is wanted still, and that the plan leaves out.
    """

    silence: Silence
    joined_ms: int
    begun_ms: int
    written_ms: int
    alone: bool = False
    waited_out: WaitedOutRound | None = None
    topics_unplanned: bool = False

    @property
    def heard_ms(self) -> int:
        """The last sign of life."""
        last_ms = self.silence.last_ms
        return min(self.joined_ms if last_ms is None else max(last_ms, self.joined_ms), self.written_ms)

    def over_ms(self, session_ms: int, ending: Ending) -> int:
        """When the coordinator knew that it was gone."""
        return self.heard_ms + (session_ms if ending.end is WaitEnd.EXPIRED else 0)


def conclude_ending(timeouts: MemberTimeouts, signs: LastSigns) -> Ending:
    """How a member that the next generation is without went.

    Members that close commit as they go, and the others come back within a heartbeat. Whoever dies is missed after its
    session timeout, counted from its last sign of life. So a silence shorter than that is a goodbye. A longer one is
    an expired session if it is as long as that takes, with the usual distance of its commits; one that is longer still
    tells nothing, for it may have had nothing to commit.
    """
    silence, session_ms = signs.silence, timeouts.session_ms
    silent_ms = max(0, signs.written_ms - signs.heard_ms)
    until_round_ms = max(0, signs.begun_ms - signs.heard_ms)
    seen = describe_silence(silence, silent_ms)
    if (waited := signs.waited_out) is not None and signs.heard_ms > waited.begun_ms + SLACK_MS:
        return late_ending(signs.written_ms - waited.begun_ms, waited.timeout_ms, silent_ms)
    exceeded = exceeded_polls(timeouts, silence, (until_round_ms, silent_ms))
    shortest_ms = timeouts.shortest_ms(silence)
    if session_ms is not None and silent_ms < shortest_ms and not exceeded:
        evidence = f"{seen}, which is less than its session timeout of {describe_ms(session_ms)}"
        if signs.topics_unplanned and timeouts.commits_count:
            held_up = "some clients repeat a commit that names a deleted topic until max.poll.interval.ms is over"
            return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.UNKNOWN, LEFT_OR_LATE, f"{evidence}; {held_up}")
        what = "was removed, or left" if timeouts.static else "left"
        return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.INFERRED, what, evidence)
    if exceeded:
        evidence = (
            f"{seen}; its max.poll.interval.ms is {describe_ms(timeouts.rebalance_ms)}, and it had committed every "
            f"{describe_ms(silence.usual_ms or 0)}"
        )
        what = "did not poll within max.poll.interval.ms"
        return Ending(Cause.POLL_TIMEOUT, WaitEnd.LEFT, Certainty.INFERRED, what, evidence)
    if timeouts.static and session_ms is not None:
        return expired_ending(f"{seen}, and a member with a group.instance.id does not leave when it stops")
    if silence.last_ms is None:
        return unknown_ending(f"{seen}, so nothing tells how it went")
    if silence.usual_ms is None:
        return unknown_ending(f"{seen}, and it had not committed twice before, so its silence tells nothing")
    usual = f"it had committed every {describe_ms(silence.usual_ms)}"
    if session_ms is None:
        return ending_without_timeout(silence.usual_ms, silent_ms, f"{seen}; {usual}")
    if silence.usual_ms >= session_ms:
        return unknown_ending(f"{seen}; it commits too rarely to tell whether it left or its session expired")
    if signs.alone and until_round_ms + silence.usual_ms < session_ms:
        evidence = (
            f"the others stopped {describe_ms(until_round_ms)} after its last commit, which is less than its session "
            f"timeout of {describe_ms(session_ms)}"
        )
        return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.INFERRED, "left", evidence)
    longest_ms = session_ms + DISTANCES * silence.usual_ms + timeouts.notice_ms + SLACK_MS
    if any(shortest_ms <= span <= longest_ms for span in (until_round_ms, silent_ms)):
        if abs(timeouts.rebalance_ms - session_ms) <= POLL_CHECK_MS and not timeouts.static:
            return unknown_ending(f"{seen}; its session timeout and its max.poll.interval.ms are about as long as that")
        return expired_ending(f"{seen}; its session timeout is {describe_ms(session_ms)}, and {usual}")
    return unknown_ending(
        f"{seen}; its session timeout of {describe_ms(session_ms)} was over long before, so it may have had nothing to "
        "commit"
    )


def ending_without_timeout(usual_ms: int, silent_ms: int, evidence: str) -> Ending:
    """Of a KIP-848 member, whose records do not tell the session timeout: that is of the broker."""
    if silent_ms <= DISTANCES * usual_ms + SLACK_MS:
        return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.INFERRED, "left", evidence)
    return unknown_ending(f"{evidence}; the broker's session timeout is not known")


def unknown_ending(evidence: str) -> Ending:
    return Ending(Cause.MEMBER_LEFT, WaitEnd.LEFT, Certainty.UNKNOWN, EITHER, evidence)


def late_ending(took_ms: int, timeout_ms: int, silent_ms: int) -> Ending:
    evidence = (
        f"the others stopped {describe_ms(took_ms)} before; the coordinator waits {describe_ms(timeout_ms)} for each "
        f"(max.poll.interval.ms), and this one still committed {describe_ms(silent_ms)} before the end"
    )
    return Ending(Cause.REBALANCE_TIMEOUT, WaitEnd.NEVER, Certainty.INFERRED, "did not rejoin in time", evidence)


def expired_ending(evidence: str) -> Ending:
    return Ending(Cause.SESSION_EXPIRED, WaitEnd.EXPIRED, Certainty.INFERRED, "was not heard of any more", evidence)


def exceeded_polls(timeouts: MemberTimeouts, silence: Silence, spans_ms: Iterable[int]) -> bool:
    """Whether a silence is that of a client that gave up since its program did not poll.

    Some clients leave then; others, and static members, only send no more heartbeats, so the session timeout follows.
    """
    usual_ms, rebalance_ms, session_ms = silence.usual_ms, timeouts.rebalance_ms, timeouts.session_ms
    if silence.last_ms is None or usual_ms is None or usual_ms >= rebalance_ms:
        return False

    def fits(span_ms: int, timeout_ms: int) -> bool:
        near = timeout_ms - SLACK_MS <= span_ms <= timeout_ms + usual_ms + POLL_CHECK_MS + timeouts.notice_ms
        # Where it may also be the end of a session, the nearer one.
        return near and (session_ms is None or abs(span_ms - session_ms) > abs(span_ms - timeout_ms))

    ends = [] if timeouts.static else [rebalance_ms]
    ends += [] if session_ms is None else [rebalance_ms + session_ms]
    return any(fits(span, end) for span in spans_ms for end in ends)


def describe_silence(silence: Silence, silent_ms: int) -> str:
    places = describe_partitions(silence.partitions)
    if not silence.partitions:
        return f"it had no partitions for {describe_ms(silent_ms)}, so it committed nothing"
    if silence.last_ms is None:
        return f"nothing was committed on its {places} in its last generation, {describe_ms(silent_ms)} long"
    return f"nothing was committed on its {places} for the last {describe_ms(silent_ms)}"


def describe_partitions(count: int) -> str:
    """
    >>> describe_partitions(1), describe_partitions(3)
    ('partition', '3 partitions')
    """
    return "partition" if count == 1 else f"{count} partitions"
