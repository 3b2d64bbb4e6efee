"""Is continuous balance calm? Seeded traces of load, replayed under Muster's rules and under published policies.

`muster pipeline backtest --suite balance` runs it; figures are in docs/assignors/balance.md. Once a sample each
policy gets what a coordinator would measure: where the logs end, and what is committed. Policies: Muster's rules as
in `core.control.balance`; the same assignor without patience; KAFKA-5337 (within the topic the partition with most
lag goes to the member with the fewest, then the least lag); KCL 3's lease assignment by its published rules, with a
member's load in place of its CPU. Members read what they can; a partition that moves stands still for a while.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.assignors.api import JsonValue, Member, Snapshot
from muster.assignors.builtin.lag import LagAssignor
from muster.assignors.builtin.lag_sticky import LagStickyAssignor
from muster.coordinator.core.control.balance.group_balance import options_for
from muster.coordinator.core.control.balance.loads import (
    Floats,
    Ints,
    Owners,
    PaidRounds,
    PartitionLoads,
    does_member_fall_behind,
    is_worth_moving,
    member_burdens,
)
from muster.coordinator.core.settings.shapes import BalanceRules

# Traces of load
# --------------

SAMPLE_S = 10
HOURS = 4
SAMPLES = HOURS * 3600 // SAMPLE_S
PARTITIONS = 120
MEMBERS = 4
"""With zipf 1.2 the largest of 120 partitions has 0.29 of the load: no more members can be even."""
TOTAL = 10_000.0
"""Records a second of all partitions together, on the average."""
HEADROOM = 1.35
"""What a member can read, over a fair share of the load, or over the largest partition where that is more."""
ANY_MOMENT = 300 // SAMPLE_S
"""Load changes up to so many samples late, by seed: a rule that looks at every third sample must not find each change
in the very sample in which it begins."""
NOISE = 0.05
"""Of each figure, as a standard deviation."""


@dataclass(frozen=True, slots=True)
class LoadTrace:
    """`written[k, p]`: records a second to partition p in sample k; `power[k, m]`: what member m can read a second."""

    name: str
    written: Floats
    power: Floats


def zipf_shares(rng: np.random.Generator, exponent: float) -> Floats:
    """Shares of the load, in no order."""
    shares = np.arange(1, PARTITIONS + 1) ** -exponent
    return rng.permutation(shares / shares.sum())


def steady_load(shares: Floats) -> Floats:
    return np.tile(shares * TOTAL, (SAMPLES, 1))


def drifting_load(rng: np.random.Generator) -> Floats:
    """Each partition has a day of its own: four hours long, twice as much at its noon as at its midnight."""
    when = np.arange(SAMPLES)[:, None] / SAMPLES
    phase = rng.random(PARTITIONS)
    return steady_load(zipf_shares(rng, 0.8)) * (1 + 0.33 * np.sin(2 * np.pi * (when + phase)))


def wandering_load(rng: np.random.Generator) -> Floats:
    """A fifth of the load is one partition's, for about forty minutes; then it is another's."""
    written = steady_load(zipf_shares(rng, 0.5)) * 0.8
    span = 40 * 60 // SAMPLE_S
    hot = rng.choice(PARTITIONS, size=SAMPLES // span + 1, replace=False)
    late = rng.integers(ANY_MOMENT, size=len(hot))
    turns = [0, *(late[1:] + np.arange(1, len(hot)) * span).tolist()]
    for begin, end, partition in zip(turns, turns[1:], hot.tolist(), strict=False):
        written[begin:end, partition] += 0.2 * TOTAL
    return written


def bursting_load(seconds: int) -> Callable[[np.random.Generator], Floats]:
    """Every five minutes one partition has eight times its load, for so long."""

    def made(rng: np.random.Generator) -> Floats:
        written = steady_load(np.full(PARTITIONS, 1 / PARTITIONS))
        for begin in range(60 + int(rng.integers(ANY_MOMENT)), SAMPLES, 300 // SAMPLE_S):
            written[begin : begin + seconds // SAMPLE_S, rng.integers(PARTITIONS)] *= 8
        return written

    return made


WRITTEN: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "zipf-1.2": lambda rng: steady_load(zipf_shares(rng, 1.2)),
    "zipf-1.5": lambda rng: steady_load(zipf_shares(rng, 1.5)),
    "drift": drifting_load,
    "wandering": wandering_load,
    "bursts-60s": bursting_load(60),
    "bursts-20s": bursting_load(20),
    "slow-member": lambda rng: steady_load(zipf_shares(rng, 0.8)),
}


def make_trace(name: str, seed: int) -> LoadTrace:
    """The same for the same name and seed."""
    rng = np.random.default_rng([seed, list(WRITTEN).index(name)])
    written = WRITTEN[name](rng)
    fair = max(TOTAL / MEMBERS, float(np.median(written.max(axis=1))))
    power = np.full((SAMPLES, MEMBERS), HEADROOM * fair)
    if name == "slow-member":
        # It reads two thirds of a fair share for an hour, and its backlog grows.
        begin = SAMPLES // 4 + int(rng.integers(ANY_MOMENT))
        power[begin : begin + 3600 // SAMPLE_S, int(rng.integers(MEMBERS))] = TOTAL / MEMBERS * 2 / 3
    noise = np.exp(rng.normal(0, NOISE, written.shape))
    return LoadTrace(name, written * noise, power)


# Policies
# --------

TOPIC = "t"


class BalancePolicy(Protocol):
    """One group's, from the beginning of a trace to its end."""

    def plan_owners(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        """Who is to have what from here on."""


def plan_by_load(
    assignor: LagAssignor | LagStickyAssignor, owner: Owners, load: Floats, options: Mapping[str, JsonValue]
) -> Owners:
    """What the assignor makes of it; every member reads the one topic."""
    members = int(owner.max()) + 1
    people = [Member(f"m{m}", (TOPIC,), {TOPIC: np.flatnonzero(owner == m).tolist()}, 1) for m in range(members)]
    lags = {TOPIC: np.rint(load).astype(int).tolist()}
    made = assignor.assign(Snapshot({TOPIC: len(owner)}, people, lags=lags, options=options))
    shares = made.members if not isinstance(made, Mapping) else made
    out = owner.copy()
    for m in range(members):
        out[list(shares.get(f"m{m}", {}).get(TOPIC, ()))] = m
    return out


class MusterBalance:
    """Muster's, by these rules: the parts of the core, put together as in `core.control.balance.evaluation`."""

    def __init__(self, partitions: int, rules: BalanceRules) -> None:
        self.rules, self.loads, self.patience = (
            rules,
            PartitionLoads({TOPIC: partitions}, rules.sample_ms),
            PaidRounds(),
        )
        self.moved: dict[tuple[str, int], int] = {}

    def plan_owners(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        rules, loads = self.rules, self.loads
        loads.record_positions(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
        loads.taken()
        capacity = np.ones(int(owner.max()) + 1)
        behind = does_member_fall_behind(owner, *loads.growth(), len(capacity))
        carried = [loads.counted(rules.drain_ms, behind), loads.last().records(rules.drain_ms)]
        before = [member_burdens(owner, load, capacity) for load in carried]
        if not loads.rated or before[0].most_to_gain < rules.min_gain:
            self.patience.over()
            return owner
        resting = {place: at for place, at in self.moved.items() if now_ms - at < rules.cooldown_ms}
        options = options_for(LagStickyAssignor.options, {}, (TOPIC,), resting, rules, now_ms)
        wanted = plan_by_load(LagStickyAssignor(), owner, carried[0], options)
        mask = np.zeros(len(owner), dtype=np.bool_)
        mask[[partition for _, partition in resting]] = True
        after = [member_burdens(wanted, load, capacity) for load in carried]
        if not is_worth_moving(wanted != owner, mask, before, after, rules):
            self.patience.over()
        elif self.patience.paid(None, now_ms) >= rules.rounds:
            self.patience.over()
            self.moved.update({(TOPIC, int(p)): now_ms for p in np.flatnonzero(wanted != owner)})
            return wanted
        return owner


class ReplanEverySample:
    """The same assignor with the same loads, and no patience: it plans anew at each sample."""

    def __init__(self, partitions: int, rules: BalanceRules) -> None:
        self.rules, self.loads = rules, PartitionLoads({TOPIC: partitions}, rules.sample_ms)

    def plan_owners(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        self.loads.record_positions(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
        self.loads.taken()
        if not self.loads.rated:
            return owner
        load = self.loads.last().records(self.rules.drain_ms)
        return plan_by_load(
            LagStickyAssignor(), owner, load, {"min.gain": 0.0, "imbalance.tolerance": 0.0, "dampening": 1.0}
        )


class Kafka5337:
    """KAFKA-5337: within the topic the partition with most lag goes to the member with the fewest, then the least lag.

    It looks at lag alone and plans from nothing; somebody has to call for it, here every five minutes.
    """

    EVERY = 30

    def __init__(self, partitions: int, rules: BalanceRules) -> None:
        self.samples = 0

    def plan_owners(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        self.samples += 1
        if self.samples % self.EVERY:
            return owner
        return plan_by_load(LagAssignor(), owner, np.maximum(ends - committed, 0).astype(np.float64), {})


class Kcl3:
    """KCL 3's lease assignment, by its published rules, with a member's load in place of its CPU: means with alpha 0.5;
    every third round, where a member is more than a tenth off the mean: from each that is a tenth above it (else from
    the heaviest) six tenths of its excess, in random leases that fit, else its smallest, to whoever has most room.
    """

    ALPHA, EVERY, OFF, DAMPENING = 0.5, 3, 0.10, 0.6

    def __init__(self, partitions: int, rules: BalanceRules) -> None:
        self.rules, self.loads = rules, PartitionLoads({TOPIC: partitions}, rules.sample_ms)
        self.mean: Floats | None = None
        self.rounds = 0
        self.rng = np.random.default_rng(0)

    def plan_owners(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        self.loads.record_positions(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
        self.loads.taken()
        if not self.loads.rated:
            return owner
        load = self.loads.last().records(self.rules.drain_ms)
        self.mean = load if self.mean is None else self.ALPHA * load + (1 - self.ALPHA) * self.mean
        self.rounds += 1
        return owner if self.rounds % self.EVERY else self.moved(owner.copy(), self.mean)

    def moved(self, owner: Owners, load: Floats) -> Owners:
        members = int(owner.max()) + 1
        carried: Floats = np.bincount(owner, weights=load, minlength=members).astype(np.float64)
        mean = float(carried.mean())
        if not (np.abs(carried - mean) > self.OFF * mean).any():
            return owner
        givers = np.flatnonzero(carried > (1 + self.OFF) * mean)
        for giver in givers.tolist() or [int(carried.argmax())]:
            self.shed(giver, owner, load, carried, mean)
        return owner

    def shed(self, giver: int, owner: Owners, load: Floats, carried: Floats, mean: float) -> None:
        """Six tenths of what the member has above the mean, to whoever has most room each time."""
        left = (carried[giver] - mean) * self.DAMPENING
        mine = self.rng.permutation(np.flatnonzero(owner == giver))
        chosen = []
        for lease in mine.tolist():
            if load[lease] <= left:
                chosen.append(lease)
                left -= load[lease]
        if not chosen and len(mine) > 1:
            chosen = [int(mine[load[mine].argmin()])]
        for lease in chosen:
            taker = int(carried.argmin())
            if taker != giver:
                owner[lease] = taker
                carried[giver] -= load[lease]
                carried[taker] += load[lease]


POLICIES: Mapping[str, type[MusterBalance | ReplanEverySample | Kcl3 | Kafka5337]] = {
    "muster": MusterBalance,
    "anew": ReplanEverySample,
    "kcl-3": Kcl3,
    "kafka-5337": Kafka5337,
}


# One policy on one trace
# -----------------------

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
        read = distribute_reads(owner, lag + came, trace.power[k] * SAMPLE_S, 1 - still / SAMPLE_S)
        ends += came
        lag = lag + came - read
        peak = max(peak, float(lag.sum()))
        load = np.maximum(came, read) / SAMPLE_S + lag / (rules.drain_ms / 1000)
        ratios[k] = member_burdens(owner, load, np.ones(MEMBERS)).ratio
        wanted = policy.plan_owners(owner, ends.astype(np.int64), (ends - lag).astype(np.int64), now_ms)
        changed = wanted != owner
        moves += int(changed.sum())
        twice += int((changed & (now_ms - last_move < rules.cooldown_ms)).sum())
        last_move[changed] = now_ms
        stops = np.full(partitions, bool(changed.any())) if isinstance(policy, Kafka5337) else changed
        still, owner = np.where(stops, HANDOVER_S, 0.0), wanted
    return TraceScore(float((ratios <= EVEN).mean()), float(np.quantile(ratios, 0.9)), moves, twice, int(peak))


def distribute_reads(owner: Owners, waiting: Floats, power: Floats, part: Floats) -> Floats:
    """How much is read of each partition: all of it where its member can, else an equal part of each. `part`: of the
    time that anybody read it."""
    can = np.minimum(waiting, waiting * part)
    asked = np.bincount(owner, weights=can, minlength=len(power))
    share = np.divide(power, asked, out=np.ones(len(power)), where=asked > 0).clip(max=1.0)
    read: Floats = can * share[owner]
    return read


# The suite
# ---------

MUSTER, ANEW, OTHERS = "muster", "anew", ("kcl-3", "kafka-5337")


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """One policy on one trace; of several seeds the mean, and the worst peak."""

    trace: str
    policy: str
    score: TraceScore


@dataclass(frozen=True, slots=True)
class BalanceGoal:
    """What was promised, what came of it."""

    goal: str
    figure: str
    met: bool


def score_policies(seeds: int, rules: BalanceRules, traces: Sequence[str] = tuple(WRITTEN)) -> list[PolicyScore]:
    return [
        PolicyScore(
            name,
            policy,
            mean_score(
                [
                    play_trace(make_trace(name, seed), POLICIES[policy](PARTITIONS, rules), rules)
                    for seed in range(seeds)
                ]
            ),
        )
        for name in traces
        for policy in POLICIES
    ]


def mean_score(scores: Sequence[TraceScore]) -> TraceScore:
    return TraceScore(
        even=float(np.mean([score.even for score in scores])),
        p90=float(np.mean([score.p90 for score in scores])),
        moves=round(float(np.mean([score.moves for score in scores]))),
        twice=sum(score.twice for score in scores),
        peak_lag=max(score.peak_lag for score in scores),
    )


def judge_goals(rows: Iterable[PolicyScore]) -> list[BalanceGoal]:
    """The goals of continuous balance, with figures, met or missed."""
    by = {(row.trace, row.policy): row.score for row in rows}
    mine = {name: by[name, MUSTER] for name, policy in by if policy == MUSTER}
    moved, anew = sum(score.moves for score in mine.values()), sum(by[name, ANEW].moves for name in mine)
    zipf = mine["zipf-1.2"].even
    twice, short = sum(score.twice for score in mine.values()), mine["bursts-20s"].moves
    found = [
        BalanceGoal(f"zipf 1.2: heaviest over mean <= {EVEN} for 90 % of the time", f"{zipf:.1%}", zipf >= 0.9),
        BalanceGoal("no partition moves twice within the cooldown", f"{twice} moves", twice == 0),
        BalanceGoal("bursts shorter than the rounds move nothing", f"{short} moves", short == 0),
        BalanceGoal("moves <= 1/5 of planning anew at each sample", f"{moved} of {anew}", moved * 5 <= anew),
    ]
    for other in OTHERS:
        for name, score in mine.items():
            rival = by[name, other]
            found.append(
                BalanceGoal(
                    f"{name}: fewer moves than {other} at no higher peak lag",
                    f"{score.moves} to {rival.moves} moves, {score.peak_lag} to {rival.peak_lag} records",
                    score.moves <= rival.moves and score.peak_lag <= rival.peak_lag,
                )
            )
    return found
