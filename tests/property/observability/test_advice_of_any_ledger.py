"""Whatever a ledger holds, advice is the same however it was read, and helps by a twentieth at least."""

from dataclasses import replace
from itertools import chain
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.advice.model import LEAST_SHARE
from muster.coordinator.observability.advice.table import advise_group
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.commit_history import (
    CommitHistory,
    CommitTraffic,
    CommitTrail,
    SeenPosition,
    count_commits,
)
from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    MemberDescription,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from tests.support.ledger_entries import BEGIN_MS
from tests.support.ledgers import ledgers

LATER_MS = st.sampled_from([0, 3_600_000, 700_000_000])
MEMBERS = tuple(MemberDescription(name, None, name, "h", ("t",), (), session_timeout_ms=10_000) for name in "ab")


def group_of(entries: list[Rebalance]) -> ExaminedGroup:
    described = GroupDescription("g", "Stable", "consumer", "range", 7, "", "n:1", MEMBERS)
    return ExaminedGroup(described, ledger=tuple(entries))


@given(ledgers(), LATER_MS, st.randoms(use_true_random=False))
def test_advice_does_not_depend_on_how_entries_were_read(entries: list[Rebalance], later_ms: int, dice: Random) -> None:
    now_ms = BEGIN_MS + later_ms
    found = advise_group(group_of(entries), {"t": 4}, now_ms).to_dict()
    shuffled = [*entries, *dice.sample(entries, len(entries) // 2)]
    dice.shuffle(shuffled)
    assert advise_group(group_of(shuffled), {"t": 4}, now_ms).to_dict() == found


NUMBERS = st.integers(0, 10**6)
SAMPLES = st.lists(st.builds(SeenPosition, st.integers(BEGIN_MS, BEGIN_MS + 10**9), NUMBERS, NUMBERS), max_size=9)
TRAILS = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 3)),
    SAMPLES.map(lambda samples: CommitTrail.of(sorted(samples))),
)
ENDS = st.lists(st.integers(-1, 10**6), min_size=4, max_size=4)


@given(ledgers(), TRAILS, ENDS)
def test_advice_on_any_positions_helps_by_a_twentieth_at_least(
    entries: list[Rebalance], trails: dict[TopicPartition, CommitTrail], ends: list[int]
) -> None:
    shares = (TopicPartition("t", 0), TopicPartition("t", 1)), (TopicPartition("t", 2), TopicPartition("t", 3))
    members = tuple(replace(each, assignment=share) for each, share in zip(MEMBERS, shares, strict=True))
    records, from_ms, to_ms = count_commits(trails.values())
    commits = CommitHistory(trails, CommitTraffic(records, from_ms, to_ms))
    places = zip(chain(*shares), ends, strict=True)
    positions = {tp: PartitionLag(tp, 0, min(end, 0), end, max(end, 0)) for tp, end in places}
    plain = group_of(entries)
    described = replace(plain.description, members=members)
    group = replace(plain, description=described, commits=commits, positions=positions)
    found = advise_group(group, {"t": 4}, BEGIN_MS + 10**9)
    assert all(LEAST_SHARE <= each.saves.share <= 1 for each in found.advice)
    assert all(each.saves.partition_seconds >= 0 for each in found.advice)


@given(ledgers(), LATER_MS)
def test_nothing_is_advised_that_saves_less_than_a_twentieth(entries: list[Rebalance], later_ms: int) -> None:
    found = advise_group(group_of(entries), {"t": 4}, BEGIN_MS + later_ms)
    assert all(LEAST_SHARE <= each.saves.share <= 1 for each in found.advice)
    assert all(each.saves.partition_seconds >= 0 for each in found.advice)
    assert bool(found.nothing_to_change) == (not found.advice)
