"""A member's link to its coordinator: deadlines, outstanding requests and back-off.

The link knows whether the coordinator has been found, when to try again, when the next heartbeat is due, and how long
a member that reaches no coordinator may keep its partitions (CL-K4). It holds deadlines only, in absolute
milliseconds of the driver's clock. At most one request of each kind is outstanding; tokens are never reused, so a
late answer is recognised. Back-off doubles up to a limit (KIP-580) and has no jitter: the driver adds it to the time
at which it wakes the member.
"""

from dataclasses import dataclass

from muster.client.members.member_types import MemberSettings, RequestKind

# Back-off (KIP-580)
# ------------------


@dataclass(slots=True)
class Backoff:
    """Deterministic on purpose: an edge that wants jitter adds it to the time it is woken at.

    >>> waits = Backoff(initial_ms=100, limit_ms=1000)
    >>> [waits.next_ms() for _ in range(5)]
    [100, 200, 400, 800, 1000]
    """

    initial_ms: int
    limit_ms: int
    failures: int = 0

    def next_ms(self) -> int:
        wait_ms = min(self.initial_ms << min(self.failures, 30), self.limit_ms)
        self.failures += 1
        return wait_ms

    def reset(self) -> None:
        self.failures = 0


# Outstanding requests
# --------------------


class OutstandingRequests:
    """At most one of each kind is under way. Tokens are never used twice, so a late answer is known as such."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[RequestKind, int] = {}

    def __contains__(self, kind: RequestKind) -> bool:
        return kind in self._waiting

    def begin_request(self, kind: RequestKind) -> int:
        """A fresh token; an answer to an earlier request of this kind is stale from here on."""
        self._last += 1
        self._waiting[kind] = self._last
        return self._last

    def answered(self, token: int) -> RequestKind | None:
        """What the token was for; None when nobody waits for it any more."""
        kind = next((kind for kind, waiting in self._waiting.items() if waiting == token), None)
        if kind is not None:
            del self._waiting[kind]
        return kind

    def drop(self, kind: RequestKind) -> int | None:
        return self._waiting.pop(kind, None)

    def token(self, kind: RequestKind) -> int | None:
        return self._waiting.get(kind)


# Deadlines of the link
# ---------------------


class CoordinatorLink:
    """Deadlines only, absolute and in the edge's milliseconds; whoever owns it does the talking."""

    def __init__(self, settings: MemberSettings) -> None:
        self.known = False
        self.retry_at_ms: int | None = None
        self.heartbeat_at_ms: int | None = None
        self._settings = settings
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._last_heard_ms = 0
        self._told_ms = 0
        self._in_step_ms: int | None = None
        self._said_ms = 0
        self._alive_ms = 0
        self._let_go = False

    @property
    def session_end_ms(self) -> int:
        """Without an answer until then, somebody else may coordinate the group."""
        return self._last_heard_ms + self._settings.session_timeout_ms

    # The session, as its coordinator counts it at the earliest.

    def says(self, now_ms: int) -> None:
        """A heartbeat leaves."""
        self._said_ms = now_ms

    def counts(self) -> None:
        """That heartbeat was answered by who coordinates the group: the session counts from its sending, or later."""
        self._alive_ms = max(self._alive_ms, self._said_ms)
        self._let_go = False

    def joined(self, now_ms: int) -> None:
        """Until now the coordinator held the join, and knew by that that the member is there."""
        self._alive_ms = now_ms
        self._let_go = False

    def join_broke(self, now_ms: int) -> None:
        """The same, but nothing of it was heard; what is tried again after that proves nothing."""
        if not self._let_go:
            self._alive_ms = now_ms
        self._let_go = True

    def given_up_ms(self, session_ms: int) -> int:
        """When a member that is not heard of any more may be given up."""
        return self._alive_ms + session_ms

    # Its coordinator.

    def found(self, now_ms: int) -> None:
        self.known = True
        self._last_heard_ms = now_ms

    def lost(self, now_ms: int) -> None:
        self.known = False
        self.back_off(now_ms)

    def back_off(self, now_ms: int) -> None:
        """Try again a little later each time, until `well`."""
        self.retry_at_ms = now_ms + self._backoff.next_ms()

    def reset_backoff(self) -> None:
        self._backoff.reset()

    def heard(self, now_ms: int) -> None:
        self._last_heard_ms = now_ms

    def retry_due(self, now_ms: int) -> bool:
        """Whether it is time to try again; true once."""
        if self.retry_at_ms is None or now_ms < self.retry_at_ms:
            return False
        self.retry_at_ms = None
        return True

    def pushed(self, interval_ms: int, in_step_ms: int | None) -> None:
        """From the next one on, heartbeats are wanted so often; 0: as the settings say. See `SessionOpened`."""
        self._told_ms = interval_ms
        self._in_step_ms = in_step_ms

    def polls(self, now_ms: int) -> None:
        """What was told before counts no longer, and the next heartbeat is not far."""
        self._told_ms = 0
        self._in_step_ms = None
        if self.heartbeat_at_ms is not None:
            self.heartbeat_at_ms = min(self.heartbeat_at_ms, now_ms + self._settings.heartbeat_interval_ms)

    def schedule_heartbeat(self, now_ms: int, interval_ms: int = 0) -> None:
        """An interval from now, or sooner, to be in step; interval_ms 0: the one that was told, or is set."""
        interval_ms = interval_ms or self._told_ms or self._settings.heartbeat_interval_ms
        self.heartbeat_at_ms = now_ms + interval_ms
        if self._in_step_ms is not None:
            self.heartbeat_at_ms -= (self.heartbeat_at_ms - self._in_step_ms) % interval_ms

    def heartbeat_due(self, now_ms: int) -> bool:
        return self.heartbeat_at_ms is not None and now_ms >= self.heartbeat_at_ms
