"""The leader of a unit, rule by rule (CL-L2 to CL-L9)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH
from muster.coordinator.replication.protocol.leader import ALL, FetchDivergence, FetchRefusal
from muster.coordinator.replication.protocol.lease import Peer
from tests.support.led import EPOCH, LAG_MS, SHARD, Cluster

SESSION_MS = 6_000

# CL-L2: appends.


def test_l2_an_append_of_acks_all_is_refused_below_min_before_it_is_written() -> None:
    cluster = Cluster(isr=(1,))
    assert cluster.leader.may_append(ALL) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.leader.may_append(1) == ErrorCode.NONE


def test_l2_min_is_never_more_than_there_are_replicas() -> None:
    cluster = Cluster(min_isr=5)
    assert cluster.leader.may_append(ALL) == ErrorCode.NONE


def test_l2_a_parked_append_waits_for_the_watermark() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    assert cluster.leader.parked(0, 5) is None
    cluster.fetch(2, 5, last_epoch=EPOCH)
    assert cluster.leader.parked(0, 5) == ErrorCode.NONE


def test_l2_what_was_committed_is_answered_with_20_where_too_few_are_in_sync_by_now() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    cluster.fetch(2, 5, last_epoch=EPOCH)
    cluster.learns((1,), 5)
    assert cluster.leader.parked(0, 5) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_l2_a_parked_append_hears_6_once_the_epoch_is_over() -> None:
    cluster = Cluster()
    cluster.write(5)
    cluster.leader.shown(EPOCH + 1)
    assert cluster.leader.parked(0, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# CL-L3: the high watermark.


def test_l3_the_watermark_is_the_smallest_end_of_all_in_sync() -> None:
    cluster = Cluster()
    cluster.write(9)
    cluster.fetch(2, 9, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 0
    cluster.fetch(3, 4, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 4
    assert cluster.leader.moved


def test_l3_what_is_not_flushed_here_does_not_count() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.leader.appended(0, 9)
    cluster.fetch(2, 9, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 0
    assert cluster.leader.kept(0, 9, 0)
    assert cluster.leader.high_watermark == 9


def test_l3_it_does_not_move_below_min() -> None:
    cluster = Cluster(isr=(1,))
    assert not cluster.write(5)
    assert cluster.leader.high_watermark == 0


def test_l3_it_never_goes_back() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    cluster.fetch(2, 5, last_epoch=EPOCH)
    cluster.fetch(2, 3, last_epoch=EPOCH)
    cluster.write(6)
    assert cluster.leader.high_watermark == 5


def test_l3_who_has_not_reported_in_this_epoch_holds_it() -> None:
    cluster = Cluster(end=5, high_watermark=2)
    cluster.fetch(2, 5)
    assert cluster.leader.high_watermark == 2


def test_l3_who_was_asked_to_join_counts_from_the_asking() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0)
    assert cluster.leader.wants(0) is not None
    cluster.peers[3].leaving = True
    cluster.write(5)
    cluster.fetch(2, 5, last_epoch=EPOCH)
    assert (cluster.leader.in_sync.largest, cluster.leader.high_watermark) == ((1, 2, 3), 0)


def test_l3_a_live_follower_that_was_caught_up_is_waited_for_as_long_as_the_lag_time() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0, 1_000)
    cluster.write(5, 2_000)
    cluster.fetch(2, 5, 2_000, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 0
    assert not cluster.leader.check_followers(1_000 + LAG_MS)
    assert cluster.leader.check_followers(1_001 + LAG_MS)
    assert cluster.leader.high_watermark == 5


def test_l3_one_that_is_gone_or_goes_is_not_waited_for() -> None:
    for leaving in (True, False):
        cluster = Cluster(isr=(1, 2))
        cluster.fetch(3, 0, 1_000)
        cluster.write(5, 2_000)
        if leaving:
            cluster.peers[3].leaving = True
        else:
            cluster.peers[3].epoch = NO_EPOCH
        cluster.fetch(2, 5, 2_000, last_epoch=EPOCH)
        assert cluster.leader.high_watermark == 5


def test_l3_when_the_one_that_was_waited_for_goes_the_next_fetch_of_another_moves_it() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0, 1_000)
    cluster.write(5, 2_000)
    cluster.fetch(2, 5, 2_000, last_epoch=EPOCH)
    cluster.peers[3].epoch = NO_EPOCH
    cluster.write(6, 2_100)
    assert cluster.leader.high_watermark == 5
    cluster.fetch(2, 6, 2_200, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 6


def test_l3_the_two_logs_of_a_shard_have_a_watermark_each() -> None:
    cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
    cluster.write(5)
    cluster.write(3, half=1)
    cluster.fetch(2, 5, last_epoch=EPOCH)
    assert [half.high_watermark for half in cluster.leader.halves] == [5, 0]
    cluster.fetch(2, 3, half=1, last_epoch=EPOCH)
    assert [half.high_watermark for half in cluster.leader.halves] == [5, 3]


# CL-L4: what counts.


def test_l4_a_fetch_of_a_node_epoch_that_is_not_the_registered_one_does_not_count() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    assert cluster.fetch(2, 5, node_epoch=99, last_epoch=EPOCH) is None
    assert cluster.leader.high_watermark == 0


def test_l4_where_the_logs_part_nothing_counts() -> None:
    cluster = Cluster(isr=(1, 2), end=10)
    cluster.epochs = [(5, 4), (EPOCH, 10)]
    assert cluster.fetch(2, 8, last_epoch=6) == FetchDivergence(5, 4)
    assert cluster.leader.high_watermark == 0


# CL-L6: what a follower is answered, in order.


def test_l6_not_leading_goes_before_all() -> None:
    cluster = Cluster()
    cluster.leader.shown(EPOCH + 1)
    assert cluster.fetch(2, 0, epoch=EPOCH + 2) == FetchRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    ("epoch", "code"), [(EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_l6_another_leader_epoch(epoch: int, code: ErrorCode) -> None:
    assert Cluster().fetch(2, 99, epoch=epoch, node_epoch=1) == FetchRefusal(code)


def test_l6_a_node_that_has_no_replica_hears_75() -> None:
    cluster = Cluster()
    cluster.peers[4] = Peer(4, 14)
    assert cluster.fetch(4, 99, node_epoch=1) == FetchRefusal(ErrorCode.UNKNOWN_LEADER_EPOCH)


def test_l6_a_former_life_hears_6() -> None:
    assert Cluster().fetch(2, 99, node_epoch=11) == FetchRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("offset", [4, 11])
def test_l6_an_offset_before_the_start_or_past_the_end(offset: int) -> None:
    assert Cluster(start=5, end=10).fetch(2, offset) == FetchRefusal(ErrorCode.OFFSET_OUT_OF_RANGE)


def test_l6_a_log_that_is_longer_than_ours_hears_where_it_parts_from_it() -> None:
    """Kafka's order: the pair says more than that the offset is out of range."""
    cluster = Cluster(end=10)
    cluster.epochs = [(5, 10)]
    assert cluster.fetch(2, 12, last_epoch=6) == FetchDivergence(5, 10)
    assert cluster.fetch(2, 12, last_epoch=5) == FetchDivergence(5, 10)


def test_l6_of_the_present_epoch_the_end_is_asked_for_anew() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(3)
    assert cluster.fetch(2, 3, last_epoch=EPOCH) is None
    cluster.write(9)
    assert cluster.fetch(2, 9, last_epoch=EPOCH) is None
    assert cluster.fetch(2, 10, last_epoch=EPOCH) == FetchDivergence(EPOCH, 9)


def test_l6_what_both_agree_on_is_not_looked_up_again() -> None:
    cluster = Cluster(isr=(1, 2), end=10)
    cluster.epochs = [(5, 10)]
    assert cluster.fetch(2, 8, last_epoch=5) is None
    cluster.epochs = []
    assert cluster.fetch(2, 10, last_epoch=5) is None


# CL-L7: parking.


def test_l7_the_first_fetch_of_an_epoch_or_a_session_is_never_parked() -> None:
    cluster = Cluster()
    two = cluster.peers[2]
    cluster.fetch(2, 0)
    assert not cluster.leader.may_park(0, two)
    cluster.fetch(2, 0)
    assert cluster.leader.may_park(0, two)
    two.asks(5, anew=True)
    cluster.leader.fetched(0, two, 12, EPOCH, 0, NO_EPOCH, 0, cluster.end_for_epoch, 5)
    assert not cluster.leader.may_park(0, two)


# CL-L8: consumers.


def test_l8_the_latest_offset_is_not_known_while_the_watermark_is_below_the_beginning_of_the_epoch() -> None:
    cluster = Cluster(isr=(1, 2), end=5, high_watermark=2)
    assert cluster.leader.latest(0) is None
    cluster.fetch(2, 5)
    assert cluster.leader.latest(0) == 5


# CL-L9: a later epoch.


def test_l9_who_is_shown_a_later_epoch_leads_no_more() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    cluster.fetch(2, 0)
    assert cluster.fetch(2, 5, epoch=EPOCH + 1) == FetchRefusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert cluster.leader.over
    assert cluster.leader.may_append(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not cluster.leader.kept(0, 5, 0)
    assert cluster.leader.wants(0) is None


def test_l9_it_remembers_the_highest_epoch_that_it_was_shown() -> None:
    cluster = Cluster()
    cluster.leader.shown(EPOCH + 1)
    assert cluster.fetch(2, 0, epoch=EPOCH + 5) == FetchRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.leader.shown(EPOCH + 3)
    assert cluster.leader.seen_epoch == EPOCH + 5


def test_l9_an_earlier_epoch_or_its_own_ends_nobody() -> None:
    cluster = Cluster()
    assert not cluster.leader.shown(EPOCH)
    assert not cluster.leader.shown(EPOCH - 1)
    assert not cluster.leader.over


# CL-A3b: where followers' logs begin.


def test_a3b_records_are_gone_when_the_logs_of_all_in_sync_begin_behind_them() -> None:
    cluster = Cluster(isr=(1, 2), start=6, end=9)
    assert cluster.leader.low_watermark(0) == -1
    cluster.fetch(2, 9, start=2)
    assert cluster.leader.low_watermark(0) == 2
    cluster.fetch(2, 9, start=7)
    assert cluster.leader.low_watermark(0) == 6


def test_a3b_who_is_behind_the_beginning_hears_that_he_is_out_of_range() -> None:
    cluster = Cluster(isr=(1, 2), end=9, high_watermark=9)
    cluster.leader.begins(0, 6)
    assert cluster.fetch(3, 5) == FetchRefusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert cluster.fetch(3, 6) is None


# Whether it may have been passed by: neither ZooKeeper nor anybody in sync is heard.


def looks_around(cluster: Cluster, now_ms: int, *, in_touch: bool = False) -> bool:
    cluster.leader.look_around(SESSION_MS, now_ms, in_touch=in_touch)
    return cluster.leader.passed_by


def test_who_hears_nobody_for_a_session_may_have_been_passed_by() -> None:
    """Who waits for copies hears 6, and finds the one that leads: not 7, which would keep him here."""
    cluster = Cluster()
    cluster.write(5)
    cluster.fetch(2, 0, now_ms=1_000)
    assert not looks_around(cluster, SESSION_MS + 999)
    assert cluster.leader.parked(0, 5) is None
    assert looks_around(cluster, SESSION_MS + 1_000)
    assert cluster.leader.parked(0, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("heard", ["zookeeper", "a follower"])
def test_z9_one_of_them_is_enough_to_go_on_and_to_go_on_again(heard: str) -> None:
    cluster = Cluster()
    if heard == "a follower":
        cluster.fetch(3, 0, now_ms=SESSION_MS)
    assert not looks_around(cluster, 2 * SESSION_MS - 1, in_touch=heard == "zookeeper")
    assert looks_around(cluster, 2 * SESSION_MS)
    if heard == "a follower":
        cluster.fetch(3, 0, now_ms=2 * SESSION_MS)
    assert not looks_around(cluster, 2 * SESSION_MS, in_touch=heard == "zookeeper")


def test_who_is_in_sync_alone_is_not_passed_by() -> None:
    """Nobody else could be elected: what it has is read there."""
    assert not looks_around(Cluster(isr=(1,)), 2 * SESSION_MS)


def test_who_leads_only_now_is_given_a_session_to_hear_of_others() -> None:
    assert not looks_around(Cluster(), SESSION_MS - 1)
