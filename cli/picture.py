"""What was seen of the groups at one moment, and what successive looks tell: trend and time to go. Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.coordinator.observability.doctor.facts import ExaminedGroup, ExaminedPartition

KEPT = 60
"""Looks at one group that are kept."""
TREND_S = 60.0
"""How far back the trend looks."""
HOUR_MS = 3_600_000


@dataclass(slots=True)
class LagTrail:
    """The lag of one group in its last looks."""

    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, at_s: float, lag: int) -> None:
        self.seen.append((at_s, lag))

    def trend(self) -> float | None:
        """Records a second by which the lag grew over the last minute; None after one look."""
        if len(self.seen) < 2:
            return None
        end_s, end = self.seen[-1]
        start_s, start = next((look for look in self.seen if end_s - look[0] <= TREND_S), self.seen[-2])
        return (end - start) / (end_s - start_s) if end_s > start_s else None

    def eta_s(self) -> float | None:
        """When the lag will be gone if it goes on falling like this; None when it does not."""
        trend = self.trend()
        if not self.seen or trend is None:
            return None
        lag = self.seen[-1][1]
        return 0.0 if lag == 0 else lag / -trend if trend < 0 else None


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group as the list shows it. None: not known yet."""

    group: ExaminedGroup
    partitions: Mapping[str, int]
    lag: int | None = None
    trend: float | None = None
    eta_s: float | None = None
    rebalances: int | None = None
    """In the last hour, as far as the ledger reaches back."""

    @property
    def unowned(self) -> int:
        """Partitions of subscribed topics that nobody has; none in a group without members, which wants none."""
        if not self.group.members:
            return 0
        owned = self.group.owners()
        return sum(
            ExaminedPartition(topic, number) not in owned
            for topic in self.group.by_topic()
            for number in range(self.partitions.get(topic, 0))
        )


@dataclass(frozen=True, slots=True)
class GroupsPicture:
    """All groups at one moment of the node's clock."""

    now_ms: int
    lines: tuple[GroupLine, ...] = ()


def rebalances_in_last_hour(group: ExaminedGroup, now_ms: int) -> int:
    return len(group.lately(now_ms, HOUR_MS))
