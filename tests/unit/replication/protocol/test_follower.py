"""A follower of one partition, rule by rule (CL-F2 to CL-F7)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.follower import (
    APPEND,
    STALE_ANSWER,
    WAIT,
    WAIT_FOR_IMAGE,
    FetchOutcome,
    FetchPosition,
    Follower,
    FollowerStep,
    RestartLog,
    StopReplica,
    TruncateLog,
)

PLACE = TopicPartition("orders", 3)
EPOCHS = [(3, 0), (5, 10), (6, 14)]
"""Of the own log, which ends at 20."""


def follower(*, end: int = 20, high_watermark: int = 12, unclean_epoch: int = NO_EPOCH, start: int = 0) -> Follower:
    return Follower(
        PLACE, 8, 1, end=end, last_epoch=6, high_watermark=high_watermark, start=start, unclean_epoch=unclean_epoch
    )


def end_for_epoch(epoch: int) -> tuple[int, int]:
    ends = [10, 14, 20]
    known = [place for place, (each, _) in enumerate(EPOCHS) if each <= epoch]
    return (EPOCHS[known[-1]][0], ends[known[-1]]) if known else (-1, -1)


def epoch_at(offset: int) -> int:
    return [epoch for epoch, start in EPOCHS if start <= offset][-1]


def hears(one: Follower, told: FetchOutcome, asked: FetchPosition | None = None) -> FollowerStep:
    ask = asked or one.next_fetch()
    assert ask is not None
    return one.answered(ask, told, end_for_epoch, epoch_at)


def test_f2_only_an_answer_to_what_is_asked_now_is_used() -> None:
    one = follower()
    asked = one.next_fetch()
    assert asked == FetchPosition(20, 6, 8)
    one.learn(9, 2, NO_EPOCH)
    assert hears(one, FetchOutcome(high_watermark=20), asked) == STALE_ANSWER
    assert one.high_watermark == 12
    assert hears(one, FetchOutcome(high_watermark=20), FetchPosition(19, 6, 9)) == STALE_ANSWER


def test_f2_what_came_damaged_is_asked_for_again_and_three_times_is_enough() -> None:
    one = follower()
    assert [one.damaged("crc"), one.damaged("crc")] == [WAIT, WAIT]
    verdict = one.damaged("crc")
    assert isinstance(verdict, StopReplica)
    assert "orders-3" in verdict.reason
    assert one.next_fetch() is None


def test_f2_what_came_whole_ends_the_counting() -> None:
    one = follower()
    one.damaged("crc")
    one.damaged("crc")
    one.appended(25, 8)
    assert one.damaged("crc") == WAIT


def test_f3_nothing_is_asked_for_before_what_came_is_flushed() -> None:
    one = follower()
    assert hears(one, FetchOutcome(high_watermark=12, bytes=100)) == APPEND
    one.appended(25, 8)
    assert one.next_fetch() is None
    one.keep(25)
    assert one.next_fetch() == FetchPosition(25, 8, 8)


def test_f4_the_watermark_is_the_leader_s_as_far_as_the_log_goes() -> None:
    one = follower()
    hears(one, FetchOutcome(high_watermark=30, bytes=100))
    assert one.high_watermark == 12
    one.appended(25, 8)
    assert one.high_watermark == 25
    one.keep(25)
    hears(one, FetchOutcome(high_watermark=15))
    assert one.high_watermark == 25


def test_f4_at_the_start_it_is_no_more_than_the_log_has() -> None:
    assert follower(end=5, high_watermark=12).high_watermark == 5


@pytest.mark.parametrize(
    ("diverging", "to"),
    [
        ((6, 17), 17),  # The same epoch, shorter there.
        ((6, 25), 20),  # The same epoch, longer there: nothing to cut but epochs without records.
        ((5, 13), 13),
        ((5, 16), 14),  # The same epoch, shorter here.
        ((4, 12), 10),  # An epoch that is not known here: all of later ones goes, and the next answer says more.
    ],
)
def test_f5_it_cuts_to_where_both_are_the_same(diverging: tuple[int, int], to: int) -> None:
    assert hears(follower(high_watermark=8), FetchOutcome(diverging=diverging)) == TruncateLog(to)


def test_f5_who_cut_in_vain_waits() -> None:
    one = follower(high_watermark=8)
    assert hears(one, FetchOutcome(diverging=(6, 25))) == TruncateLog(20)
    one.was_cut(20, 6)
    assert hears(one, FetchOutcome(diverging=(6, 25))) == WAIT
    one.appended(25, 8)
    one.keep(25)
    assert hears(one, FetchOutcome(diverging=(6, 25))) == TruncateLog(20)


def test_f5_after_a_cut_it_asks_from_there() -> None:
    one = follower(high_watermark=8)
    hears(one, FetchOutcome(diverging=(4, 12)))
    one.was_cut(10, 3)
    assert one.next_fetch() == FetchPosition(10, 3, 8)


@pytest.mark.parametrize("diverging", [(NO_EPOCH, -1), (2, 0)])
def test_f5_where_no_epoch_is_common_it_cuts_to_its_watermark(diverging: tuple[int, int]) -> None:
    assert hears(follower(), FetchOutcome(diverging=diverging)) == TruncateLog(12)


def test_f6_what_is_committed_is_not_cut() -> None:
    one = follower(high_watermark=18)
    verdict = hears(one, FetchOutcome(diverging=(5, 14)))
    assert isinstance(verdict, StopReplica)
    assert "14" in verdict.reason
    assert "18" in verdict.reason
    assert one.next_fetch() is None


@pytest.mark.parametrize(("unclean_epoch", "cuts"), [(6, False), (7, True)])
def test_f6_but_where_an_unclean_election_came_after_it(unclean_epoch: int, cuts: bool) -> None:
    one = follower(high_watermark=18, unclean_epoch=unclean_epoch)
    verdict = hears(one, FetchOutcome(diverging=(5, 14)))
    assert isinstance(verdict, TruncateLog if cuts else StopReplica)
    if cuts:
        one.was_cut(14, 5)
        assert one.high_watermark == 14


def test_f7_a_log_that_ends_before_the_leader_s_begins_is_dropped() -> None:
    one = follower()
    assert hears(one, FetchOutcome(code=ErrorCode.OFFSET_OUT_OF_RANGE, start=30)) == RestartLog(30)
    one.began(30)
    assert (one.start, one.high_watermark, one.next_fetch()) == (30, 30, FetchPosition(30, NO_EPOCH, 8))


def test_f7_one_that_goes_on_behind_the_leader_s_end_is_cut_to_what_is_committed() -> None:
    assert hears(follower(), FetchOutcome(code=ErrorCode.OFFSET_OUT_OF_RANGE, start=0)) == TruncateLog(12)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, WAIT_FOR_IMAGE),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, WAIT_FOR_IMAGE),
        (ErrorCode.FENCED_LEADER_EPOCH, WAIT_FOR_IMAGE),
        (ErrorCode.UNKNOWN_TOPIC_ID, WAIT_FOR_IMAGE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, WAIT),
    ],
)
def test_f7_what_it_waits_for(code: ErrorCode, verdict: FollowerStep) -> None:
    assert hears(follower(), FetchOutcome(code=code)) == verdict


def test_f8_the_log_begins_where_the_leader_s_does_and_what_lies_before_is_no_place_to_cut_to() -> None:
    one = follower(high_watermark=18, unclean_epoch=7)
    hears(one, FetchOutcome(high_watermark=18, start=15))
    assert one.start == 15
    assert hears(one, FetchOutcome(diverging=(5, 14))) == RestartLog(14)


def test_f8_a_start_that_is_not_here_yet_is_not_taken_over() -> None:
    one = follower()
    hears(one, FetchOutcome(high_watermark=18, start=25, bytes=9))
    assert one.start == 0
    one.appended(30, 8)
    assert one.start == 25


def test_f9_a_unit_that_has_stopped_asks_for_nothing() -> None:
    one = follower()
    asked = one.next_fetch()
    one.stop("the disk is gone")
    assert one.next_fetch() is None
    assert hears(one, FetchOutcome(), asked) == STALE_ANSWER
