"""The ledger compares plans cell by cell and counts in bulk; here each partition is looked at alone, the slow way."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.ledger import (
    MAX_ALSO,
    MAX_WAITED_FOR,
    OngoingRebalance,
    PlanBefore,
    RebalanceSettling,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    last_few,
)
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import Cause

MEMBERS = ["a", "b", "c"]
PARTITIONS = [(topic, number) for topic in ("t", "u") for number in range(3)]
STARTED_MS = 1_000
OWNERS = st.fixed_dictionaries({tp: st.sampled_from(["", *MEMBERS]) for tp in PARTITIONS})

TopicPartition = tuple[str, int]


@dataclass
class Case:
    """Who owned what, who owns it now, who still held what it had, and since when the others had let go."""

    source: dict[TopicPartition, str]
    target: dict[TopicPartition, str]
    held: dict[TopicPartition, bool]
    withheld: dict[TopicPartition, str]
    free_since: dict[TopicPartition, int | None]
    released: dict[str, int]
    fetched: dict[str, int]

    def holder(self, tp: TopicPartition) -> str:
        return self.source[tp] or self.withheld[tp]

    def is_held(self, tp: TopicPartition) -> bool:
        return bool(self.holder(tp)) and self.held[tp]

    def unowned_ms(self, tp: TopicPartition) -> int:
        """Without an owner from the moment the old one let go until the new one had it; 0 if it never had one."""
        if not self.target[tp] or self.is_held(tp) or not self.holder(tp):
            return 0
        let_go_ms = self.released.get(self.holder(tp), STARTED_MS)
        if not self.source[tp] and self.withheld[tp] and self.free_since[tp] is not None:
            let_go_ms = self.free_since[tp]
        return max(0, self.fetched[self.target[tp]] - let_go_ms)


CASES = st.builds(
    Case,
    source=OWNERS,
    target=OWNERS,
    held=st.fixed_dictionaries({tp: st.booleans() for tp in PARTITIONS}),
    withheld=OWNERS,
    free_since=st.fixed_dictionaries({tp: st.none() | st.integers(0, 900) for tp in PARTITIONS}),
    released=st.dictionaries(st.sampled_from(MEMBERS), st.integers(0, 3_000)),
    fetched=st.fixed_dictionaries({member: st.integers(2_000, 5_000) for member in MEMBERS}),
)


def plan_of(owners: dict[TopicPartition, str]) -> Plan:
    plan: Plan = {member: {} for member in MEMBERS}
    for (topic, number), owner in sorted(owners.items()):
        if owner:
            plan[owner][topic] = (*plan[owner].get(topic, ()), number)
    return plan


def settled_case(
    case: Case,
) -> tuple[dict[TopicPartition, tuple[str, str]], dict[TopicPartition, WithheldPartition], RebalanceSettling]:
    """The ledger's own answer: moves as (source, target), what stays withheld, and the settling to come."""
    held: dict[str, dict[str, frozenset[int]]] = {}
    for topic, number in filter(case.is_held, PARTITIONS):
        topics = held.setdefault(case.holder((topic, number)), {})
        topics[topic] = topics.get(topic, frozenset()) | {number}
    carried = {
        tp: WithheldPartition(case.withheld[tp], case.free_since[tp])
        for tp in PARTITIONS
        if case.withheld[tp] and not case.source[tp]
    }
    rebalance = OngoingRebalance(
        1, RebalanceTrigger(Cause.MEMBER_JOINED, "a joined"), 1, STARTED_MS, released=case.released
    )
    diff = diff_plans(PlanBefore(plan_of(case.source), held, carried), plan_of(case.target), rebalance)
    moves = {(move.topic, move.partition): (move.source, move.target) for move in diff.moves}
    assert len(moves) == len(diff.moves), "a partition moved twice"
    return moves, diff.withheld, RebalanceSettling(1, diff.gaps, fetched=dict(case.fetched))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(CASES)
def test_moves_are_exactly_what_changed_hands(case: Case) -> None:
    moves, withheld, _ = settled_case(case)
    for tp in PARTITIONS:
        if case.source[tp] == case.target[tp]:
            assert tp not in moves
        elif case.target[tp]:
            assert moves[tp] == (case.holder(tp), case.target[tp])
        else:
            assert moves[tp] == (case.source[tp], "")
        assert tp not in withheld or not case.target[tp]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(CASES)
def test_unowned_times_add_up_partition_by_partition(case: Case) -> None:
    moves, _, settling = settled_case(case)
    settlement = settling.settlement(5_000)
    assert settlement.unowned_partition_ms == sum(case.unowned_ms(tp) for tp in PARTITIONS)
    known = {(topic, partition): ms for topic, partition, ms in settlement.unowned}
    assert known == {tp: case.unowned_ms(tp) for tp, (_, target) in moves.items() if target}


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(CASES, st.sampled_from(MEMBERS))
def test_who_never_fetched_its_share_is_late_and_counted_until_the_end(case: Case, absent: str) -> None:
    moves, _, settling = settled_case(case)
    del settling.fetched[absent]
    settlement = settling.settlement(9_000)
    given_to_absent = {tp for tp, (_, target) in moves.items() if target == absent}
    assert not given_to_absent & {(topic, partition) for topic, partition, _ in settlement.unowned}
    case.fetched[absent] = 9_000
    assert settlement.unowned_partition_ms == sum(case.unowned_ms(tp) for tp in PARTITIONS)
    assert (absent in settling.late) or not given_to_absent


def test_an_entry_keeps_the_last_arrivals_and_the_first_further_triggers() -> None:
    rebalance = OngoingRebalance(1, RebalanceTrigger(Cause.MEMBER_JOINED, "first"), 0, 0)
    for number in range(100):
        rebalance.note(RebalanceTrigger(Cause.MEMBER_JOINED, f"member {number} joined"), number)
        rebalance.arrived(f"m{number}", number)
    assert rebalance.also == [f"member {number} joined" for number in range(MAX_ALSO)]
    assert last_few(rebalance.arrivals) == tuple(f"m{number}" for number in range(100 - MAX_WAITED_FOR, 100))


def test_who_sends_its_join_again_let_go_the_first_time() -> None:
    rebalance = OngoingRebalance(1, RebalanceTrigger(Cause.MEMBER_JOINED, "first"), 0, 0)
    rebalance.arrived("a", 10)
    rebalance.arrived("a", 20)
    assert rebalance.released == {"a": 10}
