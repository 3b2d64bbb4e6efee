"""What a leader knows of its logs, and of how far followers have copied them, in one leader epoch."""

from muster.coordinator.replication.protocol.facts import NO_EPOCH
from muster.coordinator.replication.protocol.lease import FOREVER, NEVER, Peer


class FollowerProgress:
    """What a follower's fetches of one log have shown in this epoch. `end` is its kept end, -1 before it has fetched.

    caught_up_ms: the last moment at which it had all that there was (Kafka's). base_ms, session, first: how far its
    fetches prove that it takes us for the leader; see `Leader.lease_until`.
    """

    __slots__ = (
        "agreed_end",
        "agreed_epoch",
        "base_ms",
        "caught_up_ms",
        "end",
        "end_then",
        "fetched_ms",
        "first",
        "node_epoch",
        "peer",
        "session",
        "start",
    )

    def __init__(self, peer: Peer, caught_up_ms: int) -> None:
        self.peer = peer
        self.node_epoch = NO_EPOCH
        self.end = -1
        self.start = -1
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER
        self.end_then = FOREVER
        self.agreed_epoch = NO_EPOCH
        self.agreed_end = -1
        self.session = -1
        self.first = 0
        self.base_ms = NEVER

    def proved_ms(self) -> int:
        """When the latest answer was sent of which it is known that it was received, in this epoch (CL-G4)."""
        peer = self.peer
        return peer.base_ms if self.session == peer.session and peer.proven >= self.first else self.base_ms

    def enters(self) -> None:
        """Its session names this log for the first time. What was proved in the session before stays so, if this one
        goes on from it: a request that begins a session names all that the follower still follows."""
        peer = self.peer
        goes_on = self.session == peer.session or (self.session == peer.session - 1 and peer.asked == peer.began)
        if goes_on and peer.proven >= self.first:
            self.base_ms = peer.base_ms
        self.session, self.first = peer.session, peer.asked

    def leaves(self) -> None:
        """Its session lets go of this log."""
        self.base_ms = self.proved_ms()
        self.session = -1

    def rests(self) -> None:
        """It has all there is, and more comes now: its session's latest request was a fetch at the end."""
        if self.session == self.peer.session:
            self.caught_up_ms = self.fetched_ms = self.peer.heard_ms

    def caught_up(self, end: int) -> int:
        """The last moment at which it had all there was. A session names what changed only: where nothing has, each
        of its requests is a fetch of this log, too."""
        if self.end >= end and self.session == self.peer.session:
            return self.peer.heard_ms
        return self.caught_up_ms


class UnitLog:
    """One log of a unit as its leader knows it: offsets of its end, of what is flushed, of what is committed."""

    __slots__ = ("end", "epoch_start", "high_watermark", "kept", "seen", "start")

    def __init__(self, *, end: int, high_watermark: int, kept: int | None = None, start: int = 0) -> None:
        self.start = start
        self.end = end
        self.kept = end if kept is None else kept
        self.high_watermark = max(start, high_watermark)
        self.epoch_start = end
        self.seen: dict[int, FollowerProgress] = {}


def is_live_follower(seen: FollowerProgress) -> bool:
    """What it has shown is of the life in which it is registered, and it is not about to go."""
    peer = seen.peer
    return seen.node_epoch == peer.epoch != NO_EPOCH and not peer.leaving
