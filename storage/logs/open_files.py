"""A limit on open files: segments let go of theirs in turn."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.storage.logs.segment import Segment


class OpenSegments:
    """Which segments hold an open file or loaded indexes; the longest unused ones let go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._used: OrderedDict[Segment, None] = OrderedDict()
        # Readers, the appending thread and whoever compacts open segments.
        self._lock = threading.Lock()

    def touch(self, segment: "Segment") -> None:
        with self._lock:
            self._used[segment] = None
            self._used.move_to_end(segment)
            while len(self._used) > self.limit:
                gone = next((other for other in self._used if other is not segment and other.let_go()), None)
                if gone is None:
                    return
                del self._used[gone]

    def forget(self, segment: "Segment") -> None:
        with self._lock:
            self._used.pop(segment, None)
