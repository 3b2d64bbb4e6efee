"""Histories of watched groups take any records in any order, and say the same whoever asks in between."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.records import TargetEpochStored
from muster.coordinator.core.model.types import Certainty, RebalanceEntry
from tests.support.watched_groups import GROUP, ClassicStory, ConsumerStory, epoch, gone, has, target, wants

MEMBERS = ("ann-1", "ann-2", "bob-1", "bob-2", "cat-1")
SHARES = ("", "orders 0", "orders 0-2", "orders 3-5", "orders 2-7", "clicks 0-1", "orders 1-2, clicks 0-3")

members = st.sampled_from(MEMBERS)
shares = st.sampled_from(SHARES)
plans = st.dictionaries(members, shares, max_size=4)
topics = st.sampled_from([("orders",), ("clicks",), ("clicks", "orders")])
steps = st.floats(0, 90, allow_nan=False)

generations = st.tuples(
    st.just("generation"),
    plans,
    st.fixed_dictionaries(
        {
            "subscribed": st.dictionaries(members, topics, max_size=3),
            "owned": st.dictionaries(members, shares, max_size=2),
            "claims": st.dictionaries(members, st.integers(-1, 9), max_size=2),
            "protocol": st.sampled_from(["range", "cooperative-sticky"]),
            "again": st.booleans(),
            "leader_epoch": st.integers(0, 2),
        }
    ),
)
commits = st.tuples(st.just("commits"), shares, st.just({}))
forgotten = st.tuples(st.just("forgotten"), st.just(""), st.just({}))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(steps, st.one_of(generations, commits, forgotten)), max_size=14), st.booleans())
def test_a_classic_history_takes_any_records(story: list[tuple[float, Any]], static: bool) -> None:
    told = ClassicStory(topics=("clicks", "orders"), instances={each: each[:3] for each in MEMBERS} if static else {})
    at_s, numbers = 0.0, []
    for step_s, (kind, what, more) in story:
        at_s += step_s
        if kind == "commits":
            told.commits(what, at_s, at_s)
        elif kind == "forgotten":
            told.history.take_deletion()
        elif (entry := told.generation(at_s, what, **more)) is not None:
            check_entry(entry)
            numbers.append(entry.number)
    assert numbers == list(range(1, len(numbers) + 1))


epochs = st.integers(-2, 5)
consumer_records = st.one_of(
    st.builds(lambda name, wanted, static: (wants(name, wanted, instance=name[:3] if static else None),),
              members, topics, st.booleans()),
    st.builds(gone, members),
    st.builds(lambda number, seen: (epoch(number, seen),), st.integers(0, 6), st.integers(0, 2)),
    st.builds(lambda name, share: (target(name, share),), members, shares),
    st.builds(lambda number: (TargetEpochStored(GROUP, number, 0),), st.integers(0, 6)),
    st.builds(lambda name, share, number, rest: (has(name, share, number, rest),), members, shares, epochs, shares),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(steps, consumer_records, shares), max_size=30), st.sampled_from([None, 6_000]))
def test_a_consumer_history_takes_any_records(story: list[tuple[float, Any, str]], session_ms: int | None) -> None:
    told = ConsumerStory(session_ms)
    at_s, numbers = 0.0, []
    for step_s, records, share in story:
        at_s += step_s
        told.commits(share, at_s, at_s)
        for entry in told.take(at_s, *records):
            check_entry(entry)
            numbers.append(entry.number)
    assert numbers == sorted(set(numbers))


def check_entry(entry: RebalanceEntry) -> None:
    """What every entry keeps to."""
    assert entry.started_at_ms <= entry.ended_at_ms
    assert all(move.source != move.target and move.unowned_ms >= -1 for move in entry.moves)
    assert len({(move.topic, move.partition) for move in entry.moves}) == len(entry.moves)
    assert all(back.away_ms >= 0 for back in entry.incarnations)
    assert entry.certainty in (Certainty.RECORDED, Certainty.INFERRED, Certainty.UNKNOWN)
    assert entry.evidence or entry.certainty is not Certainty.INFERRED
