"""Copies on this node's disk that it is to have no more, or that nobody knows of (CL-F11)."""

from collections.abc import Callable, Iterable

from muster.coordinator.replication.protocol.facts import TopicPartition
from muster.coordinator.replication.protocol.ports import ReplicaLogs


class CopyRemoval:
    """strays: copies that are kept though the image does not name them, with the ids of their topics."""

    __slots__ = ("_leave", "_logs", "strays")

    def __init__(self, logs: ReplicaLogs, leave: Callable[[TopicPartition, bytes], None]) -> None:
        """leave: have no part in a partition any more, where what is done with it is about the topic of that id, and
        not about a later one of its name."""
        self._logs = logs
        self._leave = leave
        self.strays: dict[TopicPartition, bytes] = {}

    def delete_all(self, name: str, topic_id: bytes) -> None:
        """The topic is deleted."""
        for place, held_id in list(self._logs.held()):
            if place.topic == name and held_id == topic_id:
                self._leave(place, topic_id)
                self._logs.delete(place, topic_id)
                self.strays.pop(place, None)

    def forgotten(self, name: str, known: bytes | None) -> None:
        """The image names the topic no more, or one of another id by this name, and does not say that it was deleted:
        keep what is here. known: the id by which it goes now."""
        for place, topic_id in self._logs.held():
            if place.topic == name and known != topic_id:
                self._leave(place, topic_id)
                self.strays[place] = topic_id

    def let_go(self, copies: Iterable[tuple[TopicPartition, bytes]]) -> None:
        """They are assigned to others, who have everything."""
        for place, topic_id in copies:
            if self._logs.topic_id(place) == topic_id:
                self._logs.delete(place, topic_id)
