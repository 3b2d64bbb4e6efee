"""Whether those who get what is being given up are ready for it."""

import threading
from collections.abc import Iterable

from muster.client.members.types import TopicPartition


class HandoffReadiness:
    """Of one revocation. Told on the client's loop, waited for in the application's thread."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._awaited = set(partitions)
        self._all = threading.Event()

    @property
    def ready(self) -> bool:
        """All of them have said so."""
        return self._all.is_set()

    def are_ready(self, partitions: Iterable[TopicPartition]) -> None:
        self._awaited -= set(partitions)
        if not self._awaited:
            self._all.set()

    def wait(self, timeout_s: float) -> bool:
        return self._all.wait(timeout_s)
