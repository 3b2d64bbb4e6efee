"""The lease: how a leader knows that no other node answers for its unit, and how its successor knows it, too.

The in-sync replicas fence what is written, not what is answered without a record: a leader that wakes from a freeze
would confirm a member's heartbeat. So it answers only while each replica that may take its place has proved, less
than a session ago, that it took this node for the leader (CL-G4); and such a replica, once it leads, answers nothing
for a session after the last such proof it gave (CL-G5).

Each counts by its own clock. The leader counts a fiftieth less: clock rates may differ by up to 2 %.
"""

from enum import IntEnum
from typing import NamedTuple

NEVER = -(1 << 62)
"""A moment before all others: what has not happened yet."""

FOREVER = 1 << 62


def lease_of(session_ms: int) -> int:
    """How long a leader may rest on a proof, in ms of its own clock, where sessions are `session_ms` long.

    >>> lease_of(6000)
    5880
    """
    return session_ms - session_ms // 50


class Peer:
    """Another node as a leader sees it: its registration, and its fetch session over all units that this node leads.

    epoch: its node epoch in the image; NO_EPOCH (-1) when it is not registered. leaving: it is shutting down.
    asked: the number of its latest request. proven: the latest request whose answer it is known to have received.
    base_ms: when that answer was sent. heard_ms: when its latest request came.
    session: counts its fetch sessions; a unit belongs to the one that it was last named in. began: the request that
    began the present one.

    One request of a session is under way at a time, so that each proves that the answer before it arrived. A request
    that begins a session proves nothing.
    """

    __slots__ = ("asked", "base_ms", "began", "epoch", "heard_ms", "id", "leaving", "proven", "sent_ms", "session")

    def __init__(self, node: int, epoch: int = -1) -> None:
        self.id = node
        self.epoch = epoch
        self.leaving = False
        self.session = 0
        self.asked = 0
        self.began = 0
        self.proven = 0
        self.sent_ms = NEVER
        self.base_ms = NEVER
        self.heard_ms = NEVER

    def asks(self, now_ms: int, *, anew: bool) -> int:
        """A fetch request of this node came; `anew`: it begins a session. Its number, for `answered`.

        Units that the request takes out of the session are to be told so first (`Leader.forgotten`): by leaving, the
        follower says that it no longer counts the answer before as one to a fetch of them.
        """
        if anew:
            self.session += 1
            self.began = self.asked + 1
        elif self.sent_ms != NEVER:
            self.proven = self.asked
            self.base_ms = self.sent_ms
        self.sent_ms = NEVER
        self.heard_ms = now_ms
        self.asked += 1
        return self.asked

    def answered(self, number: int, now_ms: int) -> None:
        """The answer to that request is about to leave: a moment not later than when its first byte does."""
        if number == self.asked:
            self.sent_ms = now_ms


class FetchSource:
    """A leader's node as its follower sees it: when an answer of its fetch session was last received, in ms.

    session_ms: the longest session that it has said it has, by which it leads; 0 where it has not said.
    """

    __slots__ = ("id", "received_ms", "session_ms")

    def __init__(self, node: int) -> None:
        self.id = node
        self.received_ms = NEVER
        self.session_ms = 0


class SilencePromise:
    """What this node has let leaders of one unit believe: that it will not answer for it within a session (CL-G5).

    Not only the node that the unit was last fetched from counts, but every one that it was fetched from within a
    session: where a leader was followed by one that has let go since, the first may still hold its lease.
    Nodes may have sessions that differ, while an operator changes them one after the other: a leader goes by its own,
    so that is what is waited for.
    """

    __slots__ = ("_past", "_sessions", "source")

    def __init__(self, started_ms: int) -> None:
        """started_ms: when this node's life began; whom its former one fetched from is not known."""
        self.source: FetchSource | None = None
        self._past: dict[int, int] = {-1: started_ms}
        self._sessions: dict[int, int] = {}

    def follow(self, source: FetchSource | None) -> None:
        """Fetch from this node from now on; None: from nobody. What was received until now is kept."""
        before = self.source
        if before is not None and before.received_ms != NEVER:
            self._past[before.id] = max(before.received_ms, self._past.get(before.id, NEVER))
            self._sessions[before.id] = max(before.session_ms, self._sessions.get(before.id, 0))
        self.source = source

    def let_go(self, node: int) -> None:
        """That node leads no more: it answered with our epoch, or a later one (CL-G5a), or refuses connections
        (CL-G5b)."""
        self._past.pop(node, None)

    def heard_ms(self, node: int) -> int:
        """When an answer of that node was received last, as far as it counts yet; NEVER where none is known."""
        return self._past.get(node, NEVER)

    def answers_from(self, session_ms: int) -> int:
        """The first moment at which this node, as the leader, may answer; for one that follows nobody any more.
        session_ms: the least that is waited; a node that said it has a longer one is waited for so long."""
        return max((self._over(node, session_ms) for node in self._past), default=NEVER + session_ms)

    def waits_for(self, session_ms: int, now_ms: int) -> list[int]:
        """The nodes whose leases may still hold: whom to ask whether they have let go."""
        return [node for node in self._past if node >= 0 and self._over(node, session_ms) > now_ms]

    def _over(self, node: int, session_ms: int) -> int:
        return self._past[node] + max(session_ms, self._sessions.get(node, 0))


SHORT_GAP_MS = 2_000


class LeaseGap(IntEnum):
    """What becomes of a shard's timers (CL-G6)."""

    RUN = 0
    HOLD = 1
    MOVE = 2
    UNLOAD = 3
    LOAD = 4


class TimerVerdict(NamedTuple):
    """gap_ms: by how much deadlines move, where they do."""

    gap: LeaseGap
    gap_ms: int = 0


RUN, HOLD, UNLOAD, LOAD = (
    TimerVerdict(LeaseGap.RUN),
    TimerVerdict(LeaseGap.HOLD),
    TimerVerdict(LeaseGap.UNLOAD),
    TimerVerdict(LeaseGap.LOAD),
)


class ShardTimers:
    """Whether a shard's timers may fire (CL-G6): nobody is expired by a coordinator that could not have heard him."""

    __slots__ = ("_held_until", "_lost_ms", "_unloaded")

    def __init__(self) -> None:
        self._held_until = NEVER
        self._lost_ms = NEVER
        self._unloaded = False

    def judge_timers(self, lease_until: int, now_ms: int) -> TimerVerdict:
        """To be asked before timers fire. RUN: they may. HOLD: not now. MOVE: they may once each deadline has moved
        by gap_ms. UNLOAD: the gap is too long; let go of the shard. LOAD: the lease is back; load it anew."""
        if now_ms >= lease_until:
            return self._without(now_ms)
        if self._lost_ms == NEVER and NEVER < self._held_until <= now_ms:
            self._lost_ms = self._held_until  # it was over, and is back before anybody looked
        self._held_until = lease_until
        if self._lost_ms == NEVER:
            return RUN
        if not self._unloaded and now_ms - self._lost_ms >= SHORT_GAP_MS:
            self._unloaded = True
            return UNLOAD
        gap_ms, self._lost_ms = now_ms - self._lost_ms, NEVER
        if self._unloaded:
            self._unloaded = False
            return LOAD
        return TimerVerdict(LeaseGap.MOVE, gap_ms)

    def _without(self, now_ms: int) -> TimerVerdict:
        """The gap begins when the lease was over, not when somebody looked."""
        if self._lost_ms == NEVER:
            self._lost_ms = min(now_ms, self._held_until) if self._held_until != NEVER else now_ms
        if not self._unloaded and now_ms - self._lost_ms >= SHORT_GAP_MS:
            self._unloaded = True
            return UNLOAD
        return HOLD
