"""KB-F7: until when this node may answer for its shards, and append to them.

Kafka's coordinator of the nodes' group takes a member for gone a session after the *receipt* of its last request; the
member counts from the *sending* of it, and a tenth less, for clocks that go at other rates. So a successor is dealt a
shard only after the lease on it is over. REBALANCE_IN_PROGRESS does not renew: who does not rejoin is put out when the
rebalance timeout is over; that is set to the session timeout and runs from after the last heartbeat answered 0.
"""

from muster.coordinator.kafka_backend.shard_ownership.facts import NEVER


def lease_ms_of(session_ms: int) -> int:
    """How long a node may rest on an answer, in ms of its own clock.

    >>> lease_ms_of(10_000)
    9000
    """
    return session_ms - session_ms // 10


class Lease:
    """One for all shards of a node. Moments are ms of the node's clock.

    base_ms: the sending of what was last answered well; until_ms: the first moment without a lease, as far as is known;
    both NEVER: there is no membership.
    """

    __slots__ = ("_lease_ms", "_since_ms", "base_ms", "until_ms")

    def __init__(self, session_ms: int) -> None:
        self._lease_ms = lease_ms_of(session_ms)
        self.base_ms = self.until_ms = self._since_ms = NEVER

    def heartbeat_answered(self, sent_ms: int, code: int) -> None:
        """sent_ms: before the request's first byte left."""
        if code == 0:
            self.synced(sent_ms)

    def synced(self, sent_ms: int) -> None:
        """A SyncGroup sent then was answered 0."""
        if sent_ms >= self._since_ms:
            self.base_ms = max(self.base_ms, sent_ms)
            self.until_ms = self.base_ms + self._lease_ms

    def lost(self, now_ms: int) -> None:
        """The membership is over; a late answer to something sent before does not bring it back."""
        self.base_ms = self.until_ms = NEVER
        self._since_ms = now_ms

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms
