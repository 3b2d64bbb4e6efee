"""How a member went: a broker keeps that it is gone, and not whether it left or its session expired."""

from typing import NamedTuple

from muster.coordinator.core.groups.member_history import describe_ms
from muster.coordinator.core.model.types import Cause, Certainty, WaitEnd
from muster.coordinator.core.watched.commit_times import Silence

COMMITS_RARELY = "it commits too rarely to tell whether it left or its session expired"


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
