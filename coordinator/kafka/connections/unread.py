"""What a connection's client has not read: how much it is, and since when nothing of it has left."""

from muster.coordinator.kafka.connections.holding import ReadThrottle
from muster.coordinator.kafka.dispatch import ClientPeer


class UnreadAnswers(ReadThrottle):
    """A part of `Connection`, which says in `_made_bytes` how much is made and not given to the transport."""

    __slots__ = ("_made_bytes", "_moved_at", "_peer", "_unread")

    _peer: ClientPeer
    _made_bytes: int
    _unread: int
    _moved_at: float

    @property
    def moved_at(self) -> float:
        return self._moved_at

    def cut(self, why: str) -> None:
        """Close this connection, and nothing else."""
        raise NotImplementedError

    def unread(self) -> int:
        """Bytes of answers that have not left."""
        left = self._made_bytes + self._transport.get_write_buffer_size()
        if left < self._unread:
            self._moved_at = self._loop.time()
        self._unread = left
        return left

    def _weigh(self) -> None:
        """Tell how much is unread, if that has changed: of a client that reads it is nothing, before as after."""
        before = self._unread
        if self._peer.eof.done():
            return
        if self.unread() != before:
            if not before:
                self._moved_at = self._loop.time()
            self._shared.holds(self, self._unread)
