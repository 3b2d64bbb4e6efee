"""Whether a read finds its bytes in memory: what was written lately and is known to be good, or nothing at all.

All else may wait for the disk, has its checksums looked at, or opens files: that is for a thread.
"""

import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.storage.logs.log import Log
    from muster.storage.logs.segment import Segment

MEMORY_TAIL_BYTES = 4 << 20
"""So far from its end a log is read on the event loop; what a node has just written lies in the system's memory."""

_SLACK = MEMORY_TAIL_BYTES // 4


class MemoryTail:
    """Of one log: from which offset on it is near. Worked out anew when the log has grown by a quarter."""

    __slots__ = ("_active", "_from", "_log", "_until_size")

    def __init__(self, log: "Log") -> None:
        # Not to keep it: a log that goes would wait for the collector of garbage.
        self._log = weakref.ref(log)
        self._active: Segment | None = None
        self._from = 0
        self._until_size = -1

    def holds(self, offset: int) -> bool:
        """Whether a fetch from `offset` takes no time. From any thread."""
        log = self._log()
        assert log is not None, "it is the log that asks"
        active = log.segment_list.active
        if active is not self._active or active.size > self._until_size:
            self._measure(active)
        # Outside the log nothing is read, nor where a follower or a flush has to come first.
        return offset >= self._from or offset < log.start_offset or offset >= log.high_watermark

    def _measure(self, active: "Segment") -> None:
        size = active.size
        position = max(size - MEMORY_TAIL_BYTES, active.own_from)
        index = active._index
        if position <= 0:
            self._from = active.base_offset
        elif index is None or position >= size:
            self._from = active.next_offset
        else:
            place = bisect_right(index.positions, position)
            entries = index.offsets
            self._from = active.base_offset + entries[place] if place < len(entries) else active.next_offset
        self._active, self._until_size = active, size + _SLACK
