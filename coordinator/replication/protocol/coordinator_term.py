"""A node's term as the coordinator of one shard, for as long as it leads the shard's unit (CL-G3 to CL-G6, CL-G12).

It decides whether an answer of the shard may leave (CL-G4, CL-G5), whether the shard's timers run (CL-G6), and how
much of what the shard wrote is committed (CL-G3). It knows the unit's leader and no group.
"""

from collections import deque

from muster.coordinator.replication.protocol.leader import Leader
from muster.coordinator.replication.protocol.lease import (
    HOLD,
    NEVER,
    LeaseGap,
    ShardTimers,
    SilencePromise,
    TimerVerdict,
    lease_of,
)

FIRST_EPOCH = 0
"""Of a unit that nobody has led before."""


class CoordinatorTerm:
    """Moments are ms of this node's clock, the one that the leader's are of.

    As long as this node owes silence to a former leader, nobody joins those in sync: whoever joins may lead next, has
    nobody to wait for but this node, and hears from it that it has let go (CL-G5a) while that former leader still rests
    on what this node has proved. That is CL-G12: without it, seed 5000275 of the simulated cluster had two nodes hold
    the lease, in ten seconds of a frozen node, a cut and two elections. Nothing is lost by waiting: a shard that may
    not answer yet commits nothing that anybody hears of.
    """

    __slots__ = (
        "_began_ms",
        "_kept",
        "_lease_ms",
        "_let_go",
        "_opened",
        "_promise",
        "_timers",
        "_wait_ms",
        "_written",
        "leader",
    )

    def __init__(
        self, leader: Leader, promise: SilencePromise, session_ms: int, now_ms: int, wait_ms: int | None = None
    ) -> None:
        """promise: what this node let former leaders of the unit believe; it follows nobody any more. session_ms: by
        which this node leads. wait_ms: the longest session that any node may lead by of which none is known; the own
        where nobody says."""
        self.leader = leader
        self._promise = promise
        self._wait_ms = wait_ms = session_ms if wait_ms is None else max(session_ms, wait_ms)
        self._lease_ms = lease_of(session_ms)
        self._timers = ShardTimers()
        self._began_ms = now_ms
        self._opened = False
        self._let_go: set[int] = set()
        # Where nobody led before, nobody can believe to.
        self._kept = leader.epoch == FIRST_EPOCH and not promise.waits_for(wait_ms, now_ms)
        leader.lets_in = self._kept
        self._written: deque[tuple[int, tuple[int, ...]]] = deque()

    @property
    def epoch(self) -> int:
        return self.leader.epoch

    @property
    def enough(self) -> bool:
        """CL-G3: whether so many are in sync that something may be written."""
        return not self.leader.over and self.leader.in_sync.enough

    def goes_on(self, leader: Leader) -> bool:
        """The node leads the unit anew: whether this is its next epoch, so that nobody else can have led in between and
        all that the shard knows is as it was (CL-G5). The lease has to be proved anew."""
        if leader.epoch != self.epoch + 1:
            return False
        self.leader = leader
        leader.lets_in = self._kept
        return True

    # What may be told.

    def may_answer(self, now_ms: int) -> bool:
        """CL-G4 and CL-G5: whether an answer may leave at this moment."""
        return now_ms < self.lease_until(now_ms)

    def lease_until(self, now_ms: int) -> int:
        """Until when answers may leave, as far as is known now."""
        if not self._kept:
            if now_ms < self._promise.answers_from(self._wait_ms):
                return NEVER
            self._kept = self.leader.lets_in = True
        return self.leader.lease_until(self._lease_ms)

    def waits_for(self, now_ms: int) -> list[int]:
        """CL-G5: the nodes that may still believe to lead: whom to ask whether they have let go."""
        return [] if self._kept else self._promise.waits_for(self._wait_ms, now_ms)

    def let_go(self, node: int) -> None:
        """CL-G5a, CL-G5b: that node does not lead any more."""
        self._promise.let_go(node)
        self._let_go.add(node)

    def has_let_go(self, node: int) -> bool:
        """Whether that node said so, or is known to be no more: it holds up nobody who has asked it something."""
        return node in self._let_go

    def silent_ms(self, node: int, now_ms: int) -> int | None:
        """For how long nothing has been heard of a node that led before; None where nothing is known."""
        heard_ms = self._promise.heard_ms(node)
        return None if heard_ms == NEVER else now_ms - heard_ms

    # What is committed.

    def wrote(self, position: int) -> bool:
        """The logs as they are now have the shard's first `position` appends. Whether all of it is committed already:
        nothing has been written that was not there."""
        ends = tuple(half.end for half in self.leader.halves)
        if self._written and self._written[-1][1] == ends:
            self._written.pop()
        self._written.append((position, ends))
        return all(half.high_watermark >= half.end for half in self.leader.halves)

    def committed(self) -> int | None:
        """CL-G3: how many appends are committed, in both halves; None: no more than when it was asked last."""
        position = None
        halves, written = self.leader.halves, self._written
        while written and all(half.high_watermark >= end for half, end in zip(halves, written[0][1], strict=True)):
            position = written.popleft()[0]
        return position

    # Timers.

    def judge_timers(self, now_ms: int) -> TimerVerdict:
        """CL-G6: what becomes of the shard's timers; to be asked before any fires, and every now and then. See
        `ShardTimers`.

        Before the lease is first there, nobody could be heard: each deadline moves by all of that time, and nothing is
        unloaded for it."""
        until = self.lease_until(now_ms)
        if self._opened:
            return self._timers.judge_timers(until, now_ms)
        if now_ms >= until:
            return HOLD
        self._opened = True
        self._timers.judge_timers(until, now_ms)
        return TimerVerdict(LeaseGap.MOVE, now_ms - self._began_ms)
