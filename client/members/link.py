"""The line to the coordinator: whether it is known, when to try again, when the next heartbeat is due, and until when a
member that reaches nobody may rest on what it has (CL-K4)."""

from muster.client.members.backoff import Backoff
from muster.client.members.types import MemberSettings


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

    def well(self) -> None:
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
