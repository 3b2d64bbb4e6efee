"""One policy on one trace: members read what they can, partitions that move stand still for a while."""

from dataclasses import dataclass

import numpy as np

from muster.coordinator.core.control.balance.judging import Owners, member_burdens
from muster.coordinator.core.control.balance.loads import Floats
from muster.coordinator.core.settings.rules import BalanceRules
from muster.workshop.lab.policies import BalancePolicy, Kafka5337
from muster.workshop.lab.traces import MEMBERS, SAMPLE_S, LoadTrace

HANDOVER_S = 3.0
"""So long nobody reads a partition that moves; in an eager rebalance nobody reads any."""
EVEN = 1.25
"""Heaviest member over the mean: up to here load counts as even."""


@dataclass(frozen=True, slots=True)
class TraceScore:
    """What became of one trace. Ratios are of the heaviest member over the mean."""

    even: float
    """The share of time in which the ratio was at most EVEN."""
    p90: float
    """The ratio that was exceeded a tenth of the time."""
    moves: int
    twice: int
    """Moves of partitions that had moved within the cooldown."""
    peak_lag: int
    """The most records that waited at any moment, of all partitions together."""


def play_trace(trace: LoadTrace, policy: BalancePolicy, rules: BalanceRules) -> TraceScore:
    """From an assignment that is even by count."""
    samples, partitions = trace.written.shape
    owner: Owners = (np.arange(partitions) % MEMBERS).astype(np.int32)
    ends, lag = np.zeros(partitions), np.zeros(partitions)
    last_move = np.full(partitions, -np.inf)
    ratios, moves, twice, peak = np.zeros(samples), 0, 0, 0.0
    still = np.zeros(partitions)
    for k in range(samples):
        now_ms = k * SAMPLE_S * 1000
        came = trace.written[k] * SAMPLE_S
        read = distribute_reads(owner, lag + came, came, trace.power[k] * SAMPLE_S, 1 - still / SAMPLE_S)
        ends += came
        lag = lag + came - read
        peak = max(peak, float(lag.sum()))
        load = np.maximum(came, read) / SAMPLE_S + lag / (rules.drain_ms / 1000)
        ratios[k] = member_burdens(owner, load, np.ones(MEMBERS)).ratio
        wanted = policy.look(owner, ends.astype(np.int64), (ends - lag).astype(np.int64), now_ms)
        changed = wanted != owner
        moves += int(changed.sum())
        twice += int((changed & (now_ms - last_move < rules.cooldown_ms)).sum())
        last_move[changed] = now_ms
        stops = np.full(partitions, bool(changed.any())) if isinstance(policy, Kafka5337) else changed
        still, owner = np.where(stops, HANDOVER_S, 0.0), wanted
    return TraceScore(float((ratios <= EVEN).mean()), float(np.quantile(ratios, 0.9)), moves, twice, int(peak))


def distribute_reads(owner: Owners, waiting: Floats, came: Floats, power: Floats, part: Floats) -> Floats:
    """How much is read of each partition: all of it where its member can, else an equal part of each. `part`: of the
    time that anybody read it."""
    can = np.minimum(waiting, waiting * part)
    asked = np.bincount(owner, weights=can, minlength=len(power))
    share = np.divide(power, asked, out=np.ones(len(power)), where=asked > 0).clip(max=1.0)
    read: Floats = can * share[owner]
    return read
