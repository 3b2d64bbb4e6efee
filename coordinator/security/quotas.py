"""All quotas of a node, what was used of them, and for how long who is over one has to wait."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.names import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    COUNT_QUOTAS,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from muster.coordinator.security.rates import RateMeter, TokenBucket, WindowedRate
from muster.coordinator.security.table import QuotaHolder, QuotaTable

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

    def connected(self, ip: str, now_s: float) -> float:
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
            self.told(IP, CONNECTION_CREATION_RATE, wait_s)
        return wait_s

    def count_of(self, name: str, user: str) -> int | None:
        """How many a user may have at once; None: as many as it likes."""
        limits = self.counts.get(name)
        limit = None if limits is None else limits.of(user, "")
        return None if limit is None else int(limit.quota)

    def told(self, user: str, name: str, wait_s: float) -> None:
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
