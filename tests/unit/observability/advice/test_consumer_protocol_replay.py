"""Plans of KIP-848 groups of another broker are made again from its records, and what does not come out is named."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from muster.assignors.api import Member, Snapshot
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.coordinator.core.model.records import CurrentStored, RegexStored, TargetEpochStored, TargetStored
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.observability.advice.model import read_record
from muster.coordinator.observability.advice.plan_replay import PlanReplay, replay_plans
from muster.coordinator.observability.advice.table import GroupAdvice, advise_group
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.groups import GroupDescription
from muster.coordinator.server.services.group_responses import build_rebalance
from tests.support.watched_groups import GROUP, TOPIC_IDS, ConsumerStory, epoch, gone, wants
from tests.truth.recordings import load_all, read_batches

MINUTE_S = 60.0
ORDERS = TOPIC_IDS["orders"]
Shares = dict[str, list[int]]


@dataclass
class BrokerGroup:
    """A KIP-848 group whose broker plans with one of Muster's assignors: `orders`, and who has which partitions."""

    assignor: str = "uniform"
    partitions: int = 12
    shares: Shares = field(default_factory=dict)
    story: ConsumerStory = field(default_factory=ConsumerStory)
    entries: list[RebalanceEntry] = field(default_factory=list)
    at_s: float = 10.0
    number: int = 0

    def change(self, came: Iterable[str] = (), went: Iterable[str] = ()) -> None:
        """Members come and go, and the rest have what the new target gives them two seconds later."""
        self.number, self.at_s = self.number + 1, self.at_s + MINUTE_S
        records = [record for name in went for record in gone(name)]
        records += [replace(wants(name), server_assignor=self.assignor) for name in came]
        self.shares = {name: share for name, share in self.shares.items() if name not in went}
        plan = self.plan([*self.shares, *came])
        self.take(0, *records, epoch(self.number))
        targets = [TargetStored(GROUP, name, {ORDERS: frozenset(share)}) for name, share in plan.items()]
        self.take(0, *targets, TargetEpochStored(GROUP, self.number, 0))
        first = {name: [number for number in self.shares.get(name, []) if number in plan[name]] for name in plan}
        for shares in (first, plan):
            self.take(2.0, *(self.current(name, share) for name, share in shares.items()))
        self.shares = plan

    def plan(self, names: list[str]) -> Shares:
        members = [
            Member(name, ("orders",), {"orders": self.shares[name]} if name in self.shares else None) for name in names
        ]
        snapshot = Snapshot({"orders": self.partitions}, members)
        found = run(resolve(self.assignor), snapshot, withhold=False).to_dict()
        return {name: sorted(found[name].get("orders", [])) for name in names}

    def current(self, name: str, share: list[int]) -> CurrentStored:
        return CurrentStored(GROUP, name, self.number, 0, 0, {ORDERS: dict.fromkeys(share, self.number)}, {})

    def take(self, later_s: float, *records: object) -> None:
        self.at_s += later_s
        for record in records:
            self.entries += self.story.take(self.at_s, record)  # type: ignore[arg-type]

    def examined(self) -> ExaminedGroup:
        described = GroupDescription(GROUP, "Stable", "consumer", self.assignor, self.number, "", "n:1", ())
        ledger = tuple(build_rebalance(GROUP, entry, with_snapshot=True) for entry in self.entries)
        return ExaminedGroup(described, "consumer", ledger=ledger)

    def advised(self) -> GroupAdvice:
        return advise_group(self.examined(), {"orders": self.partitions}, int(self.at_s * 1000))

    def replayed(self) -> PlanReplay:
        return replay_plans(read_record(self.examined(), {"orders": self.partitions}, int(self.at_s * 1000), 0))


def scaling(assignor: str) -> BrokerGroup:
    made = BrokerGroup(assignor)
    made.change(came=["a", "b"])
    for name in "cdef":
        made.change(came=[name])
    for name in "bd":
        made.change(went=[name])
    return made


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_plans_of_the_brokers_assignors_come_out_again(assignor: str) -> None:
    replay = scaling(assignor).replayed()
    assert (replay.assignor, replay.problem, replay.rounds) == (assignor, "", 6)


def test_a_group_that_scales_by_range_is_told_of_uniform_with_figures() -> None:
    group = scaling("range")
    replay = group.replayed()
    assert replay.others["uniform"].moves < replay.real.moves
    found = next(each for each in group.advised().advice if each.kind == "assignor")
    assert found.settings == ("group.remote.assignor=uniform",)
    assert found.sentence.startswith(
        f"Use uniform instead of range: over 6 rebalances it would have moved {replay.others['uniform'].moves} "
        f"partitions, not {replay.real.moves}"
    )
    assert scaling("uniform").replayed().real.moves == replay.others["uniform"].moves


def test_a_group_by_uniform_is_not_told_of_another_assignor() -> None:
    found = scaling("uniform").advised()
    assert "assignor" not in [each.kind for each in found.advice]
    assert found.not_judged == ()


def test_a_plan_that_is_not_the_assignors_own_is_named_and_nothing_is_advised() -> None:
    group = BrokerGroup("range")
    group.change(came=["a", "b"])
    honest = group.plan
    for name in "cde":
        group.change(came=[name])
    group.plan = lambda names: dict(zip(names, reversed(honest(names).values()), strict=True))  # type: ignore[method-assign]
    group.change(went="b")
    found = group.advised()
    assert "assignor" not in [each.kind for each in found.advice]
    assert "1 plan of 4 is not what Muster's range makes of the same input" in found.not_judged[0]


def test_uniform_may_deal_equal_members_in_another_order_and_not_unevenly() -> None:
    """No record tells in which order the broker dealt: whoever gets a partition that is free, it is as good."""
    group = BrokerGroup("uniform")
    group.change(came=["a", "b"])
    group.change(came=["c"])
    dealt = group.plan
    group.plan = lambda names: swap(dealt(names), group.shares)  # type: ignore[method-assign]
    group.change(came=["d", "e"])
    assert (group.replayed().problem, group.replayed().rounds) == ("", 2)
    group.plan = lambda names: {**dealt(names), names[0]: [], names[1]: [0, 1, 2, *dealt(names)[names[1]]][:6]}  # type: ignore[method-assign]
    group.change(came=["f"])
    assert "is not what Muster's uniform makes of the same input" in group.replayed().problem


def swap(plan: Shares, before: Shares) -> Shares:
    """Two members that had nothing get each other's."""
    fresh = [name for name in plan if name not in before]
    return {**plan, fresh[0]: plan[fresh[1]], fresh[1]: plan[fresh[0]]}


def test_what_an_expression_stands_for_has_to_be_on_record() -> None:
    def plans(*records: object) -> list[str]:
        group = BrokerGroup()
        group.take(0, *records)
        group.change(came=["a"])
        group.take(0, replace(wants("b", ()), topic_regex="ord.*"))
        group.change(came=["c"])
        group.change(came=["d"])  # which ends the one before
        return [entry.snapshot_json for entry in group.entries if entry.snapshot_json]

    assert plans() == []
    (known,) = plans(RegexStored(GROUP, "ord.*", ("orders",), 1, 0))
    snapshot = Snapshot.from_json(known)
    assert {member.id: member.topics for member in snapshot.members}["b"] == ("orders",)


def test_each_plan_of_a_real_broker_comes_out_again() -> None:
    """Of Java's and librdkafka's clients, on Kafka 4.1: 181 targets of uniform."""
    plans = 0
    for each in load_all():
        if "848" not in each.client:
            continue
        read = read_batches(each.batches, each.topic_ids, each.session_ms).entries.get(each.group, ())
        entries = tuple(build_rebalance(each.group, entry, with_snapshot=True) for entry in read)
        described = GroupDescription(each.group, "Stable", "consumer", "", 0, "", "n:1", ())
        group = ExaminedGroup(described, "consumer", ledger=entries)
        replay = replay_plans(read_record(group, {}, 2**60, 0))
        if any(entry.snapshot_json for entry in entries):
            assert replay.problem == "", each.name
        plans += replay.rounds
    assert plans > 150
