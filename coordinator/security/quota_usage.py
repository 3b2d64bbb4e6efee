"""Measures what users, clients and addresses use of their quotas, and how long one that is over its quota has to wait.

Rates are Kafka's Rate and SampledStat (windows) and TokenBucket (KIP-599). Counts are the live groups and members that
a user has spoken for on this node. Pure: times are arguments, in seconds of a monotonic clock.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from muster.coordinator.security.quota_rules import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    COUNT_QUOTAS,
    GROUP_COUNT,
    IP,
    MEMBER_COUNT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaHolder,
    QuotaTable,
)
from muster.coordinator.security.state import QuotaEntity

# Rates over time
# ---------------


class RateMeter(Protocol):
    """`used` takes note; how long to wait before the next, in seconds, 0 within the quota."""

    last_s: float

    def used(self, amount: float, quota: float, now_s: float) -> float: ...


class WindowedRate:
    """A rate over the last `samples` windows of `window_s` each, the one that runs among them."""

    __slots__ = ("_samples", "_window_s", "_windows", "last_s")

    def __init__(self, samples: int, window_s: float) -> None:
        self._samples = samples
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()
        """[when it began, how much]."""
        self.last_s = 0.0

    def used(self, amount: float, quota: float, now_s: float) -> float:
        self.last_s = now_s
        windows = self._windows
        if not windows or now_s - windows[-1][0] >= self._window_s:
            windows.append([now_s, 0.0])
        windows[-1][1] += amount
        rate, span_s = self._measured(now_s)
        return 0.0 if rate <= quota else (rate - quota) / quota * span_s

    def give_back(self, amount: float) -> None:
        """What was noted last did not take place."""
        if self._windows:
            self._windows[-1][1] -= amount

    def rate(self, now_s: float) -> float:
        return self._measured(now_s)[0]

    def _measured(self, now_s: float) -> tuple[float, float]:
        """The rate, and the seconds it is over: at least all windows but the one that runs, so that a first burst is
        spread over the time that is allowed for one."""
        windows = self._windows
        while windows and now_s - windows[0][0] >= self._samples * self._window_s:
            windows.popleft()
        elapsed_s = now_s - windows[0][0] if windows else 0.0
        full = int(elapsed_s / self._window_s)
        elapsed_s += max(0, self._samples - 1 - full) * self._window_s
        elapsed_s = max(elapsed_s, self._window_s)
        return sum(amount for _, amount in windows) / elapsed_s, elapsed_s


class TokenBucket:
    """As many tokens a second as the quota, at most those of all windows together; who takes too many owes them."""

    __slots__ = ("_burst_s", "_tokens", "last_s")

    def __init__(self, samples: int, window_s: float) -> None:
        self._burst_s = samples * window_s
        self._tokens: float | None = None
        self.last_s = 0.0

    def used(self, amount: float, quota: float, now_s: float) -> float:
        self._fill(quota, now_s)
        assert self._tokens is not None
        self._tokens = min(self._tokens - amount, quota * self._burst_s)
        return self.owed_s(quota, now_s)

    def owed_s(self, quota: float, now_s: float) -> float:
        """How long until there is a token again; 0: there is."""
        self._fill(quota, now_s)
        assert self._tokens is not None
        return max(0.0, -self._tokens / quota)

    def _fill(self, quota: float, now_s: float) -> None:
        most = quota * self._burst_s
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + quota * (now_s - self.last_s))
        self.last_s = now_s


# Rates of users, clients and addresses
# -------------------------------------

MeterKey = TypeVar("MeterKey")
AnyMeter = TypeVar("AnyMeter", bound=RateMeter)

METER_RETENTION_S: Final = 3_600.0
"""What was used is forgotten after so long without any use (Kafka's too)."""

MAX_METERS: Final = 10_000
"""Of so many users and clients use is kept before old ones are looked for, and twice of so many at most."""

MAX_WAIT_S: Final = 3_600.0
"""Nobody waits longer at once, however small the quota."""

MAX_NAMED_PRINCIPALS: Final = 100
"""Principals whose waits are told by name; those of the others are one figure."""

OTHERS: Final = "others"


class NodeQuotas:
    """`active` is False as long as none is set: then nobody need look any further."""

    def __init__(self, samples: int = 11, window_s: float = 1.0) -> None:
        self._samples = samples
        self.window_s = window_s
        self._meters: dict[tuple[str, QuotaHolder], RateMeter] = {}
        self._addresses: dict[str, WindowedRate] = {}
        self.throttled_s: dict[str, float] = {}
        """How long each principal was told to wait, in all."""
        self.throttled: dict[str, int] = {}
        """How often, by the quota's name."""
        self.counts: dict[str, QuotaTable] = {}
        self._counted: list[Callable[[], None]] = []
        self.replace({})

    def when_counted(self, tell: Callable[[], None]) -> None:
        """Call this whenever the first count is set, or the last one taken back."""
        self._counted.append(tell)

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are set from now on, and no others. What was used stays noted."""
        self.producing = QuotaTable(PRODUCER_BYTE_RATE, quotas)
        self.consuming = QuotaTable(CONSUMER_BYTE_RATE, quotas)
        self.requests = QuotaTable(REQUEST_PERCENTAGE, quotas)
        self.mutations = QuotaTable(CONTROLLER_MUTATION_RATE, quotas)
        self.connections = QuotaTable(CONNECTION_CREATION_RATE, quotas)
        counted, self.counts = (
            bool(self.counts),
            {name: limits for name in COUNT_QUOTAS if (limits := QuotaTable(name, quotas))},
        )
        self.rates = bool(self.producing or self.consuming or self.requests or self.mutations)
        """Whether any is set that a request is charged for."""
        self.active = self.rates or bool(self.connections or self.counts)
        if counted != bool(self.counts):
            for tell in self._counted:
                tell()

    def charge(self, limits: QuotaTable, user: str, client: str, amount: float, now_s: float) -> float:
        """Take note of what was used; for how many seconds whoever used it has to wait, 0 within its quota."""
        if not limits or (limit := limits.of(user, client)) is None:
            return 0.0
        wait_s = self._meter(limits, limit.shared_by, now_s).used(amount, limit.quota, now_s)
        if limits is self.requests:
            wait_s = min(wait_s, self.window_s)
        return min(wait_s, MAX_WAIT_S)

    def owed_s(self, user: str, client: str, now_s: float) -> float | None:
        """How long until partitions may be made or deleted again; None: as many as one likes."""
        if not self.mutations or (limit := self.mutations.of(user, client)) is None:
            return None
        bucket = self._meter(self.mutations, limit.shared_by, now_s)
        assert isinstance(bucket, TokenBucket)
        return min(bucket.owed_s(limit.quota, now_s), MAX_WAIT_S)

    def charge_connection(self, ip: str, now_s: float) -> float:
        """A connection came from there; for how long it is to be held before it is closed, 0: it may stay."""
        if not self.connections or (quota := self.connections.of_address(ip)) is None:
            return 0.0
        rate = self._addresses.get(ip)
        if rate is None:
            self._make_room(now_s)
            rate = self._addresses[ip] = WindowedRate(self._samples, self.window_s)
        wait_s = min(rate.used(1.0, quota, now_s), self.window_s)
        if wait_s:
            rate.give_back(1.0)
            self.record_throttling(IP, CONNECTION_CREATION_RATE, wait_s)
        return wait_s

    def count_of(self, name: str, user: str) -> int | None:
        """How many a user may have at once; None: as many as it likes."""
        limits = self.counts.get(name)
        limit = None if limits is None else limits.of(user, "")
        return None if limit is None else int(limit.quota)

    def record_throttling(self, user: str, name: str, wait_s: float) -> None:
        """Somebody was told to wait."""
        self.throttled[name] = self.throttled.get(name, 0) + 1
        key = user if user in self.throttled_s or len(self.throttled_s) < MAX_NAMED_PRINCIPALS else OTHERS
        self.throttled_s[key] = self.throttled_s.get(key, 0.0) + wait_s

    def _meter(self, limits: QuotaTable, shared_by: QuotaHolder, now_s: float) -> RateMeter:
        key = (limits.name, shared_by)
        meter = self._meters.get(key)
        if meter is None:
            self._make_room(now_s)
            kind = TokenBucket if limits is self.mutations else WindowedRate
            meter = self._meters[key] = kind(self._samples, self.window_s)
        return meter

    def _make_room(self, now_s: float) -> None:
        """Names of clients are theirs to choose: they do not fill the node's memory."""
        forget_old_meters(self._meters, now_s)
        forget_old_meters(self._addresses, now_s)


def forget_old_meters(kept: dict[MeterKey, AnyMeter], now_s: float) -> None:
    if len(kept) < MAX_METERS:
        return
    for key in [key for key, meter in kept.items() if now_s - meter.last_s > METER_RETENTION_S]:
        del kept[key]
    if len(kept) >= 2 * MAX_METERS:
        for key in sorted(kept, key=lambda key: kept[key].last_s)[: len(kept) - MAX_METERS]:
            del kept[key]


# Numbers of groups and members
# -----------------------------

POLICY_VIOLATION: Final = 44
GROUP_MAX_SIZE_REACHED: Final = 81

JOIN_GRACE_S: Final = 5.0
"""Who has asked to join so lately counts, whether or not the group has heard of it yet."""

COMMITS_ONLY: Final = ""
"""In place of a member's id: the user commits to the group and is no member of it."""

MembershipCheck = Callable[[str, str], bool]
"""Whether a group has this member; with COMMITS_ONLY, whether there is such a group."""


class QuotaRefusal(NamedTuple):
    code: int
    sentence: str


class UserCounts:
    """Kept only while such a quota is set: after a restart, members are known again with their next heartbeat."""

    def __init__(self, quotas: NodeQuotas, alive: MembershipCheck = lambda group, member: True) -> None:
        self._quotas = quotas
        self.alive = alive
        """Given by whoever has the groups, as soon as there are any."""
        self._of: dict[str, dict[tuple[str, str], float]] = {}

    def note(self, user: str, group: str, member: str, now_s: float) -> None:
        """This member speaks for the user."""
        if self._limits(user) != (None, None):
            self._of.setdefault(user, {})[group, member] = now_s

    def refusal(self, user: str, group: str, member: str, now_s: float) -> QuotaRefusal | None:
        """Why somebody may not join; None: it may."""
        groups, members = self._limits(user)
        if groups is None and members is None:
            self._of.pop(user, None)
            return None
        mine = self._of.setdefault(user, {})
        if member and (group, member) in mine and self.alive(group, member):
            return None
        self._forget_gone(mine, now_s)
        others = [one for one in mine if one[1] and one != (group, member)]
        if members is not None and len(others) >= members:
            return QuotaRefusal(
                GROUP_MAX_SIZE_REACHED,
                f"user {user} has {len(others)} members of groups, as many as its quota allows ({MEMBER_COUNT})",
            )
        return self._group_refusal(user, group, {each for each, name in mine if (each, name) != (group, member)})

    def commit_refusal(self, user: str, group: str, now_s: float) -> QuotaRefusal | None:
        """Why somebody who is no member may not commit; None: it may. A commit makes a group that is not there."""
        groups, _ = self._limits(user)
        if groups is None:
            return None
        mine = self._of.setdefault(user, {})
        if self.alive(group, COMMITS_ONLY):
            if len(mine) <= groups:
                mine[group, COMMITS_ONLY] = now_s
            return None
        self._forget_gone(mine, now_s)
        refusal = self._group_refusal(user, group, {each for each, _ in mine})
        if refusal is None:
            mine[group, COMMITS_ONLY] = now_s
        return refusal

    def _group_refusal(self, user: str, group: str, theirs: set[str]) -> QuotaRefusal | None:
        most, _ = self._limits(user)
        if most is None or group in theirs or len(theirs) < most:
            return None
        return QuotaRefusal(
            POLICY_VIOLATION,
            f"user {user} has members in {len(theirs)} groups, or commits to them without one, as many as its quota "
            f"allows ({GROUP_COUNT})",
        )

    def _forget_gone(self, mine: dict[tuple[str, str], float], now_s: float) -> None:
        for one, since_s in list(mine.items()):
            if now_s - since_s > JOIN_GRACE_S and not self.alive(*one):
                del mine[one]

    def _limits(self, user: str) -> tuple[int | None, int | None]:
        return self._quotas.count_of(GROUP_COUNT, user), self._quotas.count_of(MEMBER_COUNT, user)
