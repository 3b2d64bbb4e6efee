"""What the node's sampler knows of a group, as the pages want it."""

import time
from math import isnan

from muster.coordinator.observability.history.group_health import HealthStatus
from muster.coordinator.observability.history.history import GroupHistory
from muster.coordinator.web.pages.group_view import SampledFigures


class SamplerFigures:
    def __init__(self, history: GroupHistory) -> None:
        self._history = history

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def lag(self, group: str) -> int | None:
        return self._history.lag(group)

    def of(self, group: str, *, with_rates: bool = False) -> SampledFigures:
        """Empty while the sampler has not seen the group."""
        history = self._history
        if not history.knows(group):
            return SampledFigures()
        times, lags = history.lag_series(group)
        health, reason = self.health(group)
        rates = {}
        if with_rates and (known := history.rates(group)):
            consumed = known.consumed.tolist()
            rates = {place: rate for place, rate in zip(known.places, consumed, strict=True) if not isnan(rate)}
        return SampledFigures(
            times.tolist(), lags.tolist(), history.trend(group), history.eta_s(group), rates, health, reason
        )

    def health(self, group: str) -> tuple[str, str]:
        """The word, and why when it is not well; both empty while nothing is known."""
        if self._history.seen_ms(group) is None:
            return "", ""
        found = self._history.last_health(group)
        return found.status.name, found.reason if found.status > HealthStatus.OK else ""

    def produced(self) -> dict[str, float]:
        """Records a second written to each topic, as far as some group's sample says."""
        found: dict[tuple[str, int], float] = {}
        for group in self._history.groups:
            if known := self._history.rates(group):
                rates = zip(known.places, known.produced.tolist(), strict=True)
                found |= {place: rate for place, rate in rates if not isnan(rate)}
        topics: dict[str, float] = {}
        for (topic, _), rate in found.items():
            topics[topic] = topics.get(topic, 0.0) + rate
        return topics
