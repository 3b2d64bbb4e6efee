"""A shard of another broker's groups: what it learns it tells, and nothing makes it decide."""

from dataclasses import replace

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import REPLY_TYPES
from muster.coordinator.core.model.records import GroupStored, MemberRecord, OffsetsStored, RebalanceDecided
from muster.coordinator.core.model.types import Cause, Limits, Outcome, RebalanceEntry, RebalanceSource, StoredOffset
from muster.coordinator.core.shard import QUESTIONS
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.errors import ErrorCode

NOW_MS = 1_000_000


def member(name: str, *partitions: int) -> MemberRecord:
    return MemberRecord(
        member_id=name,
        group_instance_id=None,
        client_id=name,
        client_host="/10.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=6_000,
        subscription=encode_subscription(Subscription(version=1, topics=("orders",))),
        assignment=encode_assignment({"orders": partitions}),
    )


def stored(generation: int, *members: MemberRecord) -> GroupStored:
    leader = members[0].member_id if members else None
    return GroupStored("g", "consumer", generation, "range", leader, NOW_MS, members)


def decided(generation: int, ended_at_ms: int) -> RebalanceDecided:
    entry = RebalanceEntry(
        number=77,
        previous_generation=generation - 1,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range",
        cause=Cause.MEMBER_JOINED,
        culprit="a",
        culprit_client_id="a",
        culprit_client_host="/10.0.0.1",
        detail="joined",
        client_reason="",
        outcome=Outcome.COMPLETED,
        started_at_ms=ended_at_ms,
        ended_at_ms=ended_at_ms,
        source=RebalanceSource.WATCHED,
    )
    return RebalanceDecided("g", entry)


@pytest.fixture
def shard() -> WatchedShard:
    made = WatchedShard(Limits(), 0)
    made.step(events.WatchStood(""), NOW_MS)
    return made


def ask(shard: WatchedShard, event: events.Request) -> object:
    ((_, reply),) = shard.step(event, NOW_MS).replies
    return reply


def test_until_the_records_are_read_every_question_hears_how_far_that_is() -> None:
    shard = WatchedShard(Limits(), 0)
    shard.step(events.WatchStood("__consumer_offsets-0 is being read: 40% of 90 records"), NOW_MS)
    reply = ask(shard, events.DescribeGroup(1, "g"))
    assert (reply.code, reply.message) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "__consumer_offsets-0 is being read: 40% of 90 records",
    )


def test_a_group_is_described_as_its_last_record_has_it(shard: WatchedShard) -> None:
    shard.step(events.RecordsWatched((stored(3, member("a", 0, 1), member("b", 2)),)), NOW_MS)
    reply = ask(shard, events.DescribeGroup(1, "g"))
    assert (reply.state, reply.generation, [each.member_id for each in reply.members]) == ("Stable", 3, ["a", "b"])
    shard.step(events.RecordsWatched((stored(4),)), NOW_MS)
    reply = ask(shard, events.DescribeGroup(1, "g"))
    assert (reply.state, reply.generation, reply.members) == ("Empty", 4, ())


def test_positions_are_told_and_nothing_is_written(shard: WatchedShard) -> None:
    position = StoredOffset(41, -1, "", NOW_MS)
    effects = shard.step(events.RecordsWatched((OffsetsStored("g", {("orders", 0): position}),)), NOW_MS)
    assert effects.records == []
    reply = ask(shard, events.OffsetFetch(1, "g", None))
    assert reply.offsets["orders", 0].offset == 41


def test_the_ledger_numbers_entries_and_is_all_that_is_kept(shard: WatchedShard) -> None:
    facts = (stored(1, member("a", 0)), decided(1, NOW_MS), stored(2, member("a", 0)), decided(2, NOW_MS + 5))
    effects = shard.step(events.RecordsWatched(facts), NOW_MS)
    assert [type(record) for record in effects.records] == [RebalanceDecided, RebalanceDecided]
    reply = ask(shard, events.ExplainGroup(1, "g"))
    assert [(entry.number, entry.generation) for entry in reply.entries] == [(2, 2), (1, 1)]


def test_what_was_kept_before_a_restart_is_not_kept_twice(shard: WatchedShard) -> None:
    facts = (decided(1, NOW_MS), decided(2, NOW_MS + 5))
    kept = shard.step(events.RecordsWatched(facts), NOW_MS).records
    restarted = WatchedShard(Limits(), 0)
    for record in kept:
        restarted.apply(record)
    restarted.step(events.RecordsWatched((*facts, decided(3, NOW_MS + 9))), NOW_MS)
    restarted.step(events.WatchStood(""), NOW_MS)
    reply = ask(restarted, events.ExplainGroup(1, "g"))
    assert [(entry.number, entry.generation) for entry in reply.entries] == [(3, 3), (2, 2), (1, 1)]


def test_a_broker_whose_clock_was_set_back_is_still_followed(shard: WatchedShard) -> None:
    shard.step(events.RecordsWatched((decided(1, NOW_MS), decided(2, NOW_MS - 60_000))), NOW_MS)
    reply = ask(shard, events.ExplainGroup(1, "g"))
    assert [entry.generation for entry in reply.entries] == [2, 1]


CHANGES = [
    events.JoinGroup(
        request_id=1, group_id="g", member_id="", group_instance_id=None, client_id="c", client_host="/10.0.0.2",
        session_timeout_ms=6_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=(), fresh_id="f",
    ),
    events.Heartbeat(1, "g", "a", None, 3),
    events.DeleteGroup(1, "g"),
    events.OffsetDelete(1, "g", (("orders", 0),)),
]  # fmt: skip


@pytest.mark.parametrize("event", CHANGES, ids=lambda event: type(event).__name__)
def test_what_would_change_a_group_is_refused_with_a_remedy(shard: WatchedShard, event: events.Request) -> None:
    shard.step(events.RecordsWatched((stored(3, member("a", 0)),)), NOW_MS)
    effects = shard.step(event, NOW_MS)
    ((_, reply),) = effects.replies
    assert reply.code is ErrorCode.INVALID_REQUEST
    assert "muster engine adopt" in reply.message
    assert (effects.records, effects.timers) == ([], {})


def test_every_request_is_either_a_question_or_refused() -> None:
    assert set(QUESTIONS) <= set(REPLY_TYPES)


def test_no_time_that_passes_and_no_topic_that_goes_changes_a_group(shard: WatchedShard) -> None:
    position = StoredOffset(41, -1, "", NOW_MS)
    facts = (stored(3, member("a", 0)), OffsetsStored("g", {("orders", 0): position}))
    shard.step(events.RecordsWatched(facts), NOW_MS)
    before = ask(shard, events.DescribeGroup(1, "g"))
    for event in (
        events.TopicsChanged({"orders": 1}),
        events.TopicsChanged({}, deleted=("orders",)),
        events.StoodStill(90_000, 90_000),
        events.TimerFired(("session", "g", "a"), NOW_MS),
    ):
        effects = shard.step(event, NOW_MS + 86_400_000)
        assert (effects.records, effects.timers, effects.chores) == ([], {}, [])
    assert ask(shard, replace(events.DescribeGroup(1, "g"))) == before
    assert shard.deadlines == {}


def test_a_log_that_is_read_later_amends_the_entry_in_its_place(shard: WatchedShard) -> None:
    shard.step(events.RecordsWatched((stored(1, member("a", 0)), decided(1, NOW_MS), decided(2, NOW_MS + 5))), NOW_MS)
    said = replace(decided(1, NOW_MS).entry, cause=Cause.MEMBER_LEFT, evidence="the broker says so")
    effects = shard.step(events.RecordsWatched((RebalanceDecided("g", said, amends=True),)), NOW_MS)
    assert [record.entry.number for record in effects.records if isinstance(record, RebalanceDecided)] == [1]
    assert [notice.entry.cause for notice in effects.notices if notice.entry] == [Cause.MEMBER_LEFT]
    reply = ask(shard, events.ExplainGroup(1, "g"))
    assert [(entry.number, entry.cause) for entry in reply.entries] == [
        (2, Cause.MEMBER_JOINED),
        (1, Cause.MEMBER_LEFT),
    ]


def test_an_entry_that_is_not_kept_is_not_amended(shard: WatchedShard) -> None:
    fact = RebalanceDecided("g", decided(1, NOW_MS).entry, amends=True)
    assert shard.step(events.RecordsWatched((fact,)), NOW_MS).records == []


def test_groups_that_vanished_are_gone_and_what_was_explained_stays(shard: WatchedShard) -> None:
    position = OffsetsStored("g", {("orders", 0): StoredOffset(41, -1, "", NOW_MS)})
    shard.step(events.RecordsWatched((stored(1, member("a", 0)), decided(1, NOW_MS), position)), NOW_MS)
    effects = shard.step(events.GroupsVanished(("g", "never-there")), NOW_MS)
    assert effects.records == []
    assert [(notice.group_id, notice.state) for notice in effects.notices] == [("g", "Dead")]
    assert "g" not in shard.state.groups
    assert "g" not in shard.state.offsets
    assert len(ask(shard, events.ExplainGroup(1, "g")).entries) == 1
