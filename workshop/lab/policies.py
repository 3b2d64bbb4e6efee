"""Who moves what, and when: Muster's rules as a coordinator has them, and others as they were published.

Each is told once a sample what a coordinator would measure: where the logs end, and what is committed.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from muster.assignors.api import JsonValue, Member, Snapshot
from muster.assignors.builtin.lag import LagAssignor
from muster.assignors.builtin.lag_sticky import LagStickyAssignor
from muster.coordinator.core.control.balance.judging import (
    Owners,
    PaidRounds,
    does_member_fall_behind,
    is_worth_moving,
    member_burdens,
)
from muster.coordinator.core.control.balance.loads import Floats, Ints, PartitionLoads
from muster.coordinator.core.control.balance.weighing import options_for
from muster.coordinator.core.settings.rules import BalanceRules

TOPIC = "t"


class BalancePolicy(Protocol):
    """One group's, from the beginning of a trace to its end."""

    def look(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
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
    """Muster's, by these rules: the parts of the core, put together as in `core.control.balance.evaluating`."""

    def __init__(self, partitions: int, rules: BalanceRules) -> None:
        self.rules, self.loads, self.patience = (
            rules,
            PartitionLoads({TOPIC: partitions}, rules.sample_ms),
            PaidRounds(),
        )
        self.moved: dict[tuple[str, int], int] = {}

    def look(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        rules, loads = self.rules, self.loads
        loads.take(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
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

    def look(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        self.loads.take(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
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

    def look(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
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

    def look(self, owner: Owners, ends: Ints, committed: Ints, now_ms: int) -> Owners:
        self.loads.take(TOPIC, 0, ends.tolist(), committed.tolist(), now_ms)
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
