"""Which leader epoch wrote which part of a log (KIP-101): (epoch, start offset), both rising. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The epochs of one log, oldest first. The list is replaced, never changed: any thread may look something up.

    The last entry may start where the log ends: an epoch that was led and in which nothing was written, or not yet.
    """

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._settle(list(entries))

    def _settle(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records from `start_offset` on are of this epoch; whether that is news. Later claims that conflict go."""
        if epoch < 0 or (self.entries and self.latest == epoch):
            return False
        kept = list(self.entries)
        while kept and (kept[-1][0] > epoch or kept[-1][1] >= start_offset):
            kept.pop()
        if not kept or kept[-1][0] < epoch:
            kept.append((epoch, start_offset))
        self._settle(kept)
        return True

    def copy(self) -> "LeaderEpochs":
        return LeaderEpochs(self.entries)

    def at(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 where that is unknown.

        >>> LeaderEpochs([(0, 0), (2, 10)]).at(9)
        0
        """
        entries = self.entries
        place = bisect_right(entries, offset, key=_start)
        return entries[place - 1][0] if place else -1

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the asked one; (-1, -1) when that is unknown.

        >>> LeaderEpochs([(0, 0), (2, 10)]).end_offset(1, 15)
        (0, 10)
        """
        entries = self.entries
        if not entries or epoch < 0 or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end
        place = bisect_right(entries, (epoch, 1 << 62))
        if place == 0:
            return epoch, entries[0][1]
        return entries[place - 1][0], entries[place][1]

    def cut_end(self, end_offset: int) -> bool:
        """Forget what begins at or past the log's new end, as a cut does; whether there was any."""
        return self._keep(bisect_left(self.entries, end_offset, key=_start))

    def cut_past(self, end_offset: int) -> bool:
        """Forget what begins past the log's end, as a start does that finds less; whether there was any."""
        return self._keep(bisect_right(self.entries, end_offset, key=_start))

    def _keep(self, count: int) -> bool:
        if count == len(self.entries):
            return False
        self._settle(self.entries[:count])
        return True

    def cut_start(self, start_offset: int) -> None:
        """The log begins later now: of what lay before, the newest epoch stays, moved up."""
        before = bisect_right(self.entries, start_offset, key=_start)
        if before > 1 or (before and self.entries[0][1] < start_offset):
            self._settle([(self.entries[before - 1][0], start_offset), *self.entries[before:]])


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
