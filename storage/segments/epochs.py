"""Which leader epoch wrote which part of a log (KIP-101): (epoch, start offset), both rising. Pure."""

from bisect import bisect_right
from collections.abc import Iterable

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = list(entries)
        self.latest = self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records from `start_offset` on are of this epoch; whether that is news. Later claims that conflict go."""
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch):
            return False
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the asked one; (-1, -1) when that is unknown.

        >>> LeaderEpochs([(0, 0), (2, 10)]).end_offset(1, 15)
        (0, 10)
        """
        if not self.entries or epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        place = bisect_right(self.entries, (epoch, 1 << 62))
        if place == 0:
            return epoch, self.entries[0][1]
        return self.entries[place - 1][0], self.entries[place][1]

    def cut_end(self, end_offset: int) -> None:
        """Forget what begins at or past the log's new end."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]
        self.latest = self.entries[-1][0] if self.entries else -1

    def cut_start(self, start_offset: int) -> None:
        """The log begins later now: of what lay before, the newest epoch stays, moved up."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if len(before) > 1 or (before and before[0][1] < start_offset):
            self.entries = [(before[-1][0], start_offset), *self.entries[len(before) :]]
