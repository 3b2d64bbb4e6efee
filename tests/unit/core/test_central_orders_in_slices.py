"""Of a central group of hundreds, a step orders some to stop or to start, and later turns the rest."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.central import group, group_task, task_parts
from muster.coordinator.core.central.group import CentralState, TaskPart, shares_of_owners
from muster.coordinator.core.model import events, ledger
from muster.coordinator.core.model.effects import CentralReply, Effects, Order, StartFetcher, StopFetcher
from muster.coordinator.core.model.events import ContinueTask, Loaded
from muster.coordinator.core.model.ledger import (
    OngoingRebalance,
    OwnershipGap,
    PlanBefore,
    RebalanceChange,
    RebalanceSettling,
    RebalanceTrigger,
    diff_plans,
    settle_entry,
)
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.records import CentralOwner
from muster.coordinator.core.model.types import Cause, Limits, MemberPlan, Outcome, PartitionMove, Partitions
from muster.coordinator.core.shard import Shard

GROUP, TOPIC, MEMBERS, PARTITIONS = "g", "t", 7, 14
DELAY_MS = 1_000


class CentralStage:
    """A shard with one central group, whose members have open streams and answer at once, unless they are `mute`."""

    def __init__(self) -> None:
        self.shard = Shard(Limits(central_newcomers_delay_ms=DELAY_MS), 0)
        self.shard.step(Loaded(), 0)
        self.shard.step(events.TopicsChanged({TOPIC: PARTITIONS}), 0)
        self.now_ms = 1
        self.numbers = count(1)
        self.streams: dict[str, int] = {}
        self.asking: dict[int, str] = {}
        self.mute: set[str] = set()
        self.orders_in_step: list[int] = []
        self.chores: list[events.Event] = []
        self.announced: list[object] = []
        """The ledger's entries as watchers hear of them."""

    @property
    def group(self) -> group_task.CentralGroup:
        return self.shard.central_groups[GROUP]

    def register(self, member_id: str, strategy: str = "range") -> None:
        number = self.streams[member_id] = next(self.numbers)
        self.take(events.RegisterConsumer(number, GROUP, member_id, "c", "h", 10_000, (TOPIC,), "", strategy))
        self.ask(member_id)

    def ask(self, member_id: str) -> None:
        number = next(self.numbers)
        self.asking[number] = member_id
        self.take(events.AwaitOrders(number, GROUP, member_id, self.streams[member_id]))

    def leave(self, member_id: str) -> None:
        self.take(events.Deregister(next(self.numbers), GROUP, member_id, self.streams[member_id]))

    def take(self, event: events.Event) -> None:
        """One step, and what the members say to it; what is left of it waits in `chores`."""
        effects = self.shard.step(event, self.now_ms)
        self.chores += effects.chores
        self.announced += [notice.entry for notice in effects.notices if notice.entry is not None]
        heard = list(self.heard(effects))
        self.orders_in_step.append(sum(isinstance(order, StopFetcher | StartFetcher) for _, order in heard))
        for member_id, order in heard:
            self.ask(member_id)
            self.obey(member_id, order)

    def heard(self, effects: Effects) -> Iterator[tuple[str, Order]]:
        for request_id, reply in effects.replies:
            if request_id in self.asking and isinstance(reply, CentralReply):
                member_id = self.asking.pop(request_id)
                for order in reply.orders:
                    yield member_id, order

    def obey(self, member_id: str, order: Order) -> None:
        if member_id in self.mute:
            return
        who = (next(self.numbers), GROUP, member_id, self.streams[member_id], order.number)
        if isinstance(order, StopFetcher):
            self.take(events.FetcherStopped(*who))
        elif isinstance(order, StartFetcher):
            self.take(events.FetcherStarted(*who))

    def say_stopped(self, member_id: str) -> None:
        demand = self.group.members[member_id].demand
        assert demand is not None
        self.take(events.FetcherStopped(next(self.numbers), GROUP, member_id, self.streams[member_id], demand.number))

    def finish(self) -> None:
        while self.chores:
            self.take(self.chores.pop(0))

    def go_on_until(self, state: CentralState) -> None:
        while self.group.state is not state:
            self.take(self.chores.pop(0))

    def pass_ms(self, length_ms: int) -> None:
        """So much time, and what was waited for that long: newcomers, not pings."""
        self.now_ms += length_ms
        key = self.group.newcomers_timer
        if (at_ms := self.shard.deadlines.get(key)) is not None and at_ms <= self.now_ms:
            self.take(events.TimerFired(key, at_ms))
        self.finish()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> CentralStage:
    monkeypatch.setattr(group_task, "ORDERS_IN_STEP", 2)
    monkeypatch.setattr(task_parts, "ENTRIES_IN_SLICE", 2)
    stage = CentralStage()
    for number in range(MEMBERS):
        stage.register(f"m{number}")
        stage.finish()
        stage.pass_ms(DELAY_MS)
    stage.orders_in_step.clear()
    return stage


def test_all_are_stopped_and_started_though_no_step_orders_more_than_some(stage: CentralStage) -> None:
    assert stage.group.state is CentralState.STABLE
    generation = stage.group.generation
    stage.leave("m6")
    assert stage.chores == [ContinueTask(GROUP)]
    stage.go_on_until(CentralState.STOPPING)
    assert stage.chores == [ContinueTask(GROUP)], "nobody has been ordered to stop yet"
    stage.finish()
    assert stage.group.state is CentralState.STABLE
    assert stage.group.generation == generation + 1
    assert {each.fetching for each in stage.group.members.values()} == {generation + 1}
    assert max(stage.orders_in_step) == 2
    assert sum(stage.orders_in_step) == 2 * (MEMBERS - 1)


def test_an_attempt_that_fails_orders_nobody_any_more(stage: CentralStage) -> None:
    """Those that had not been ordered to stop fetch on, and the next attempt stops them."""
    stage.leave("m6")
    stage.go_on_until(CentralState.STOPPING)
    stage.take(stage.chores.pop(0))
    assert not stage.group.members["m0"].may_fetch, "the first two have stopped"
    stage.take(events.StreamClosed(GROUP, "m5", stage.streams["m5"]))
    assert stage.group.state is CentralState.BACKING_OFF
    stage.orders_in_step.clear()
    stage.finish()
    assert sum(stage.orders_in_step) == 0
    assert stage.group.members["m4"].may_fetch


def test_one_that_goes_before_it_is_ordered_is_passed_over(stage: CentralStage) -> None:
    stage.leave("m6")
    stage.leave("m5")
    stage.finish()
    assert stage.group.state is CentralState.STABLE
    assert sorted(stage.group.members) == ["m0", "m1", "m2", "m3", "m4"]
    assert {each.fetching for each in stage.group.members.values()} == {stage.group.generation}


def test_what_is_left_of_a_group_that_is_gone_is_nothing(stage: CentralStage) -> None:
    assert stage.shard.step(ContinueTask("another"), stage.now_ms) == Effects()


def test_newcomers_of_a_large_group_are_taken_in_together(stage: CentralStage) -> None:
    """All others stop for each rebalance; those who register one behind the other are given one."""
    generation = stage.group.generation
    for number in range(7, 12):
        stage.register(f"m{number}")
        stage.pass_ms(DELAY_MS - 1)
    assert stage.group.state is CentralState.STABLE
    assert stage.group.generation == generation, "the next may be about to come"
    assert sum(stage.orders_in_step) == 0
    stage.pass_ms(1)
    assert stage.group.generation == generation + 1
    assert {each.fetching for each in stage.group.members.values()} == {generation + 1}
    assert sum(stage.orders_in_step) == MEMBERS + 12, "the seven stopped once, and all twelve were started"


def test_newcomers_that_never_end_are_not_waited_for_forever(stage: CentralStage) -> None:
    generation, came = stage.group.generation, 0
    while stage.group.generation == generation:
        stage.register(f"n{came}")
        stage.pass_ms(DELAY_MS - 1)
        came += 1
    assert came == group_task.MOST_PAUSES + 1


def test_nobody_waits_for_newcomers_when_a_partition_has_lost_its_owner(stage: CentralStage) -> None:
    generation = stage.group.generation
    stage.register("m7")
    stage.leave("m0")
    stage.finish()
    assert stage.group.generation == generation + 1, "one rebalance for both, at once"
    assert sorted(stage.group.members) == [f"m{number}" for number in range(1, 8)]
    assert {each.fetching for each in stage.group.members.values()} == {generation + 1}


def test_a_newcomer_during_a_rebalance_is_waited_behind_after_it(stage: CentralStage) -> None:
    generation = stage.group.generation
    stage.mute.add("m1")
    stage.leave("m0")
    stage.finish()
    assert stage.group.state is CentralState.STOPPING
    stage.register("m7")
    assert stage.group.generation == generation
    stage.mute.clear()
    stage.say_stopped("m1")
    stage.finish()
    assert stage.group.generation == generation + 1, "the plan was made anew when all had stopped"
    assert "m7" in stage.group.owned


@pytest.mark.parametrize("part", [part for part in TaskPart if part is not TaskPart.LOOK])
def test_one_that_leaves_between_two_slices_has_the_plan_made_again(stage: CentralStage, part: TaskPart) -> None:
    """What was compared and written down does not count: the ledger shows the plan that holds."""
    generation = stage.group.generation
    stage.leave("m6")
    while stage.group.progress.left is not part or stage.group.progress.slices is None:
        stage.take(stage.chores.pop(0))
    stage.leave("m5")
    stage.finish()
    assert stage.group.state is CentralState.STABLE
    assert sorted(stage.group.members) == sorted(stage.group.owned) == [f"m{number}" for number in range(5)]
    assert stage.group.generation == generation + (2 if part is TaskPart.SETTLE else 1)
    ledger_of_group = stage.shard.state.ledgers[GROUP]
    entry = ledger_of_group.newest
    assert entry is not None
    assert entry.generation == stage.group.generation
    assert [member.member_id for member in entry.members] == sorted(stage.group.members)
    assert ledger_of_group.settlements.keys() == ledger_of_group.entries.keys()


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_slices_come_to_what_one_step_comes_to(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    def run(*, sliced: bool) -> tuple[object, ...]:
        stage = CentralStage()
        for number in range(MEMBERS):
            stage.register(f"m{number}", strategy)
            stage.finish()
            stage.pass_ms(DELAY_MS)
        with monkeypatch.context() as patch:
            if sliced:
                patch.setattr(group_task, "ORDERS_IN_STEP", 2)
                patch.setattr(task_parts, "ENTRIES_IN_SLICE", 2)
            change(stage)
        state = stage.shard.state
        return stage.group.stored, state.ledgers[GROUP], stage.announced

    def change(stage: CentralStage) -> None:
        stage.leave("m3")
        stage.finish()
        stage.take(events.TopicsChanged({TOPIC: PARTITIONS + 5}))
        stage.finish()

    assert run(sliced=True) == run(sliced=False)


@given(st.integers(0, 1 << 32))
def test_plans_are_compared_as_those_of_other_groups_are(seed: int) -> None:
    """Nobody holds anything any more, and nothing was withheld: then both comparisons say the same."""
    draw = Random(seed)

    def deal(members: int, partitions: int) -> Plan:
        owners: dict[str, dict[str, list[int]]] = {f"m{draw.randrange(9)}": {} for _ in range(members)}
        for topic in ("a", "b"):
            for partition in range(partitions):
                if owners and draw.random() < 0.8:
                    owners[draw.choice(sorted(owners))].setdefault(topic, []).append(partition)
        return {member: {topic: tuple(some) for topic, some in share.items()} for member, share in owners.items()}

    before, target = deal(draw.randrange(5), 6), deal(draw.randrange(5), draw.choice((4, 6, 9)))
    if draw.random() < 0.2:
        target = before
    rebalance = OngoingRebalance(1, RebalanceTrigger(Cause.MEMBER_LEFT, "m left"), 1, 50)
    rebalance.released = {member: draw.randrange(100) for member in before if draw.random() < 0.5}
    rebalance.gone = {member: "it left" for member in before if member not in target}
    found = task_parts.finish_slices(task_parts.compare_plans(before, target, rebalance))
    assert found == diff_plans(PlanBefore(before, {}, {}), target, rebalance)


def test_no_step_says_of_more_than_some_partitions_when_they_were_fetched_again(
    stage: CentralStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def noted(move: PartitionMove, unowned_ms: int, at_least_ms: int | None = None) -> PartitionMove:
        seen.append(move)
        return PartitionMove(move.topic, move.partition, move.source, move.target, unowned_ms, move.why, at_least_ms)

    def length_ms(gap: OwnershipGap, until_ms: int) -> int:
        seen.append(gap)
        return 0 if gap.since_ms is None else max(0, until_ms - gap.since_ms)

    monkeypatch.setattr(ledger, "with_unowned_time", noted)
    monkeypatch.setattr(OwnershipGap, "length_ms", length_ms)
    stage.leave("m6")
    stage.go_on_until(CentralState.STABLE)
    seen_in_step = []
    while stage.chores:
        seen.clear()
        stage.take(stage.chores.pop(0))
        seen_in_step.append(len(seen))
    assert max(seen_in_step) <= 4, "two of a gap, two slices of which may meet in a step"
    moves = stage.shard.state.ledgers[GROUP].newest
    assert moves is not None
    assert sum(seen_in_step) > len(moves.moves) > 4


def test_the_shares_of_an_ownership_are_those_that_slices_made(
    stage: CentralStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_in_step: list[int] = []

    def noted(owners: Sequence[CentralOwner]) -> dict[str, Mapping[str, Partitions]]:
        rows_in_step[-1] += len(owners)
        return shares_of_owners(owners)

    for module in (group, task_parts):
        monkeypatch.setattr(module, "shares_of_owners", noted)
    rows_in_step.append(0)
    stage.leave("m6")
    while stage.chores:
        rows_in_step.append(0)
        stage.take(stage.chores.pop(0))
    assert max(rows_in_step) == 2
    assert sum(rows_in_step) == MEMBERS - 1
    assert stage.group.stored is not None
    assert stage.group.owned == shares_of_owners(stage.group.stored.owners)


@given(st.integers(0, 1 << 32))
def test_what_becomes_known_after_a_plan_is_the_same_in_slices(seed: int) -> None:
    draw = Random(seed)
    members = [f"m{number}" for number in range(draw.randrange(5))]
    places = [("t", number) for number in range(draw.randrange(12))]
    gaps = []
    for member in members:
        mine = tuple(tp for tp in places if draw.random() < 0.3)
        gaps.append(OwnershipGap(member, draw.choice((None, 5, 9)), len(mine) + draw.randrange(3), mine))
    settling = RebalanceSettling(1, tuple(gaps), {each: draw.randrange(20) for each in members if draw.random() < 0.7})
    moves = tuple(PartitionMove(*tp, "", "m0", -1, "it joined") for tp in places)
    plans = tuple(MemberPlan(each, "c", "h", None, ()) for each in members)
    trigger = RebalanceTrigger(Cause.MEMBER_LEFT, "m left")
    change = RebalanceChange(1, "consumer", "range", moves, plans)
    entry = OngoingRebalance(1, trigger, 0, 1).entry(Outcome.COMPLETED, 4, change)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_parts, "ENTRIES_IN_SLICE", draw.randrange(1, 4))
        made = task_parts.finish_slices(task_parts.make_settlement(settling, 20))
        assert made == settling.settlement(20)
        assert task_parts.finish_slices(task_parts.complete_entry(entry, made)) == settle_entry(entry, made)
