"""What looks have seen of a round becomes the phases of the entry that its record makes, and of no other."""

from dataclasses import replace

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.model.effects import DescribeReply
from muster.coordinator.core.model.events import DescribeGroup, GroupSeen, RecordsWatched, WatchStood
from muster.coordinator.core.model.records import GroupStored, MemberRecord, RebalanceDecided
from muster.coordinator.core.model.types import (
    Cause,
    GroupState,
    Limits,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
)
from muster.coordinator.core.watched.seen_rounds import MOST_ROUNDS, STALE_MS, SeenRound, SeenRounds, with_seen_phases
from muster.coordinator.core.watched.watched_shard import WatchedShard

PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"


def entry(generation: int = 8, previous: int = 7, ended_ms: int = 1_000_000) -> RebalanceEntry:
    return RebalanceEntry(
        number=1,
        previous_generation=previous,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range",
        cause=Cause.MEMBER_JOINED,
        culprit="",
        culprit_client_id="",
        culprit_client_host="",
        detail="",
        client_reason="",
        outcome=Outcome.COMPLETED,
        started_at_ms=ended_ms,
        ended_at_ms=ended_ms,
        source=RebalanceSource.WATCHED,
    )


def seen(*states: tuple[int, str]) -> SeenRounds:
    rounds = SeenRounds()
    for at_ms, state in states:
        rounds.see(state, at_ms)
    return rounds


def test_both_halves_of_a_round_are_phases_in_the_broker_s_time() -> None:
    rounds = seen((100, PREPARING), (2_600, COMPLETING))
    told = with_seen_phases(entry(), rounds.take(1, 3_000))
    assert told.phases == (RebalancePhase("join", 2_500), RebalancePhase("plan", 400))
    assert (told.started_at_ms, told.ended_at_ms) == (997_100, 1_000_000)


MOVED = PartitionMove("t", 0, "b", "a", 6_600, "its owner left the group", 0)


def bounded_entry(cause: Cause, culprit: str) -> RebalanceEntry:
    return replace(
        entry(),
        cause=cause,
        culprit=culprit,
        moves=(MOVED,),
        unowned_partition_ms=9_000,
        unowned_at_least_partition_ms=0,
    )


def test_what_all_had_let_go_of_when_they_had_joined_was_free_since_then_at_the_latest() -> None:
    told = with_seen_phases(bounded_entry(Cause.MEMBER_JOINED, "c"), SeenRound(100, 2_600, 3_000))
    assert (told.moves[0].unowned_at_least_ms, told.moves[0].unowned_ms) == (400, 6_600)
    assert (told.unowned_at_least_partition_ms, told.unowned_partition_ms) == (400, 9_000)


def test_what_a_member_had_whose_end_began_the_round_was_free_before_it() -> None:
    told = with_seen_phases(bounded_entry(Cause.MEMBER_LEFT, "b"), SeenRound(100, 2_600, 3_000))
    assert told.moves[0].unowned_at_least_ms == 2_900
    told = with_seen_phases(bounded_entry(Cause.MEMBER_LEFT, "b"), SeenRound(0, 2_600, 9_000))
    assert told.moves[0].unowned_at_least_ms == 6_600, "never more than it can have been"


def test_a_time_that_is_exact_stays_so() -> None:
    exact = replace(bounded_entry(Cause.MEMBER_LEFT, "b"), moves=(replace(MOVED, unowned_at_least_ms=None),))
    assert with_seen_phases(exact, SeenRound(100, 2_600, 3_000)).moves == exact.moves


def test_a_round_of_which_no_look_saw_the_second_half_is_one_phase() -> None:
    rounds = seen((100, PREPARING), (700, ""))
    assert with_seen_phases(entry(), rounds.take(1, 720)).phases == (RebalancePhase("join and plan", 600),)


def test_of_a_round_whose_begin_was_missed_nothing_is_said() -> None:
    rounds = seen((100, COMPLETING), (700, ""))
    assert with_seen_phases(entry(), rounds.take(1, 720)) == entry()


def test_an_entry_whose_records_tell_of_phases_stays_as_it_is() -> None:
    told = replace(entry(), phases=(RebalancePhase("assign", 3),))
    assert with_seen_phases(told, SeenRound(0, 5, 10)) == told


def test_a_round_that_began_before_the_record_of_the_one_before_came_is_kept_for_its_own_record() -> None:
    rounds = seen((100, PREPARING), (600, COMPLETING), (1_100, PREPARING))
    assert rounds.take(1, 1_150) == SeenRound(100, 600, 1_100)
    assert rounds.take(1, 1_900) == SeenRound(1_100, -1, 1_900)


def test_rounds_that_left_no_record_belong_to_the_one_that_left_one() -> None:
    rounds = seen((100, PREPARING), (600, COMPLETING), (1_100, PREPARING), (1_600, COMPLETING))
    assert rounds.take(2, 2_000) == SeenRound(100, 1_600, 2_000)


def test_a_record_that_comes_long_after_a_round_is_not_taken_for_its_own() -> None:
    rounds = seen((100, PREPARING), (600, ""))
    assert rounds.take(1, 600 + STALE_MS + 1) is None
    assert rounds.rounds == []


def test_a_static_member_that_is_back_takes_nobody_s_round() -> None:
    rounds = seen((100, PREPARING))
    assert rounds.take(0, 200) is None
    assert rounds.take(1, 300) == SeenRound(100, -1, 300)


def test_rounds_that_never_leave_records_are_bounded() -> None:
    rounds = seen(*((at, (PREPARING, COMPLETING)[at % 2]) for at in range(1_000)))
    assert len(rounds.rounds) == MOST_ROUNDS


# In a shard
# ----------


def member(name: str) -> MemberRecord:
    return MemberRecord(name, None, name, "/h", 60_000, 6_000, b"", b"")


def stored(generation: int, *names: str) -> GroupStored:
    return GroupStored("orders", "consumer", generation, "range", names[0], 0, tuple(map(member, names)))


def shard() -> WatchedShard:
    made = WatchedShard(Limits(), 0)
    made.step(RecordsWatched((stored(7, "a"),)), 0)
    made.step(WatchStood(""), 0)
    return made


def group_of(one: WatchedShard) -> ClassicGroup:
    group = one.state.groups["orders"]
    assert isinstance(group, ClassicGroup)
    return group


def test_a_group_is_in_the_state_that_was_seen_until_its_record_or_a_look_says_otherwise() -> None:
    one = shard()
    [notice] = one.step(GroupSeen("orders", PREPARING), 10).notices
    assert (notice.state, group_of(one).state) == (PREPARING, GroupState.PREPARING_REBALANCE)
    assert one.step(GroupSeen("orders", PREPARING), 20).notices == []
    one.step(RecordsWatched((stored(8, "a", "b"),)), 30)
    assert group_of(one).state is GroupState.STABLE
    one.step(GroupSeen("orders", COMPLETING), 40)
    one.step(GroupSeen("orders", ""), 50)
    assert group_of(one).state is GroupState.STABLE


def test_whom_a_watched_group_waits_for_is_not_made_up() -> None:
    one = shard()
    one.step(GroupSeen("orders", PREPARING), 10)
    [(_, reply)] = one.step(DescribeGroup(1, "orders"), 20).replies
    assert isinstance(reply, DescribeReply)
    assert (reply.state, reply.waiting_for, reply.waiting_until_ms) == (PREPARING, (), 0)


def test_an_entry_that_is_kept_has_the_phases_that_were_seen() -> None:
    one = shard()
    one.step(GroupSeen("orders", PREPARING), 100)
    one.step(GroupSeen("orders", COMPLETING), 600)
    one.step(RecordsWatched((stored(8, "a", "b"), RebalanceDecided("orders", entry()))), 650)
    [kept] = one.state.ledgers["orders"].entries.values()
    assert [(phase.name, phase.duration_ms) for phase in kept.phases] == [("join", 500), ("plan", 50)]
    one.step(GroupSeen("orders", ""), 700)
    assert one.seen == {}


def test_rounds_seen_while_the_past_is_being_read_are_nobody_s() -> None:
    one = shard()
    one.step(WatchStood("being read"), 0)
    one.step(GroupSeen("orders", PREPARING), 100)
    one.step(GroupSeen("orders", ""), 200)
    one.step(WatchStood(""), 300)
    one.step(RecordsWatched((stored(8, "a", "b"), RebalanceDecided("orders", entry()))), 310)
    [kept] = one.state.ledgers["orders"].entries.values()
    assert kept.phases == ()


def test_a_look_at_a_group_that_nobody_knows_makes_none() -> None:
    one = shard()
    assert one.step(GroupSeen("unheard-of", PREPARING), 10).notices == []
    assert "unheard-of" not in one.state.groups
