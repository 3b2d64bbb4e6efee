"""A figure over time, bounded: a point for each sample of late, and one a minute for a day."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

RECENT_POINTS = 360
"""An hour of samples, one every 10 s."""
MINUTE_MS = 60_000
MINUTE_POINTS = 1_440
FIRST_ROOM = 16


class PointRing:
    """The last `most` points, oldest first. It takes room as it fills."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times = np.empty(FIRST_ROOM, np.int64)
        self._values = np.empty(FIRST_ROOM, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._most)

    def add(self, time_ms: int, value: int) -> None:
        room = len(self._times)
        if self._count == room < self._most:
            self._times = np.resize(self._times, min(room * 2, self._most))
            self._values = np.resize(self._values, min(room * 2, self._most))
            room = len(self._times)
        at = self._count % room
        self._times[at], self._values[at] = time_ms, value
        self._count += 1

    def raise_last(self, value: int) -> None:
        """The last point is this high at least."""
        at = (self._count - 1) % len(self._times)
        self._values[at] = max(self._values[at], value)

    def points(self) -> tuple[Ints, Ints]:
        """Times and values, oldest first, as copies."""
        kept, at = len(self), self._count % len(self._times)
        if self._count <= len(self._times):
            return self._times[:kept].copy(), self._values[:kept].copy()
        return np.roll(self._times, -at), np.roll(self._values, -at)


class FigureSeries:
    """One figure: every sample of the last hour (at 10 s each), before that the highest of each minute, for a day."""

    def __init__(self) -> None:
        self._recent = PointRing(RECENT_POINTS)
        self._minutes = PointRing(MINUTE_POINTS)
        self._minute = -1

    def add(self, time_ms: int, value: int) -> None:
        self._recent.add(time_ms, value)
        if time_ms // MINUTE_MS == self._minute:
            self._minutes.raise_last(value)
        else:
            self._minute = time_ms // MINUTE_MS
            self._minutes.add(time_ms, value)

    def points(self) -> tuple[Ints, Ints]:
        """Times in ms and values, oldest first. A minute before the recent samples is one point, at its first time."""
        times, values = self._recent.points()
        if not len(times):
            return times, values
        minutes, highest = self._minutes.points()
        before = minutes < times[0]
        return np.concatenate([minutes[before], times]), np.concatenate([highest[before], values])
