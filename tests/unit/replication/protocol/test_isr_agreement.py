"""Who is in sync, and how a leader agrees on it with the controller (CL-L5)."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, PartitionState
from muster.coordinator.replication.protocol.leader import IsrAnswer, IsrProposal
from tests.support.led import EPOCH, LAG_MS, SHARD, UNIT, Cluster


def granted(isr: tuple[int, ...], partition_epoch: int = 5) -> IsrAnswer:
    return IsrAnswer(ErrorCode.NONE, EPOCH, partition_epoch, isr)


def asking(cluster: Cluster, now_ms: int = 0) -> IsrProposal:
    question = cluster.leader.wants(now_ms)
    assert question is not None
    return question


def joining() -> tuple[Cluster, IsrProposal]:
    """Node 3 has caught up, and was asked for."""
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(2, 0)
    cluster.fetch(3, 0)
    return cluster, asking(cluster)


def test_l5_a_follower_that_has_caught_up_is_asked_for_with_the_epoch_of_its_fetches() -> None:
    cluster, question = joining()
    assert question == IsrProposal(UNIT, EPOCH, 4, ((1, 11), (2, 12), (3, 13)))
    assert (cluster.leader.isr, cluster.leader.in_sync.largest) == ((1, 2), (1, 2, 3))


def test_l5_the_order_is_that_of_assignment() -> None:
    cluster = Cluster(isr=(1, 3))
    cluster.fetch(3, 0)
    cluster.fetch(2, 0)
    assert asking(cluster).nodes == (1, 2, 3)


def test_l5_who_lacks_what_is_committed_does_not_join() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.write(5)
    cluster.fetch(2, 5, last_epoch=EPOCH)
    cluster.fetch(3, 4, last_epoch=EPOCH)
    assert not cluster.leader.wishes
    assert cluster.leader.wants(0) is None


def test_l5_who_lacks_what_was_there_when_the_epoch_began_does_not_join() -> None:
    """In sync when the epoch began, out of it since, without a disk: by the watermark alone it would be let in."""
    cluster = Cluster(end=5)
    cluster.learns((1, 2), 5)
    cluster.fetch(3, 0)
    assert cluster.leader.wants(0) is None
    cluster.fetch(3, 5)
    assert asking(cluster).nodes == (1, 2, 3)


def test_l5_who_was_not_caught_up_of_late_does_not_join() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0, 0)
    cluster.write(100, 1)
    cluster.peers[2].asks(LAG_MS + 1, anew=True)
    cluster.fetch(3, 50, LAG_MS + 1, last_epoch=EPOCH)
    assert cluster.leader.wants(LAG_MS + 1) is None or 3 not in cluster.leader.in_sync.largest


@pytest.mark.parametrize("gone", ["leaving", "unregistered", "registered anew"])
def test_l5_who_goes_is_gone_or_has_come_anew_is_not_asked_for(gone: str) -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0)
    if gone == "leaving":
        cluster.peers[3].leaving = True
    else:
        cluster.peers[3].epoch = NO_EPOCH if gone == "unregistered" else 99
    assert cluster.leader.wants(0) is None


def test_l5_a_shard_s_replica_joins_when_it_is_in_sync_in_both_halves() -> None:
    cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
    cluster.fetch(3, 0)
    assert cluster.leader.wants(0) is None
    cluster.fetch(3, 0, half=1)
    assert asking(cluster).nodes == (1, 2, 3)


def test_l5_caught_up_is_who_fetches_at_the_end_there_was_at_the_fetch_before() -> None:
    """As Kafka: under steady appends nobody is ever at the end of the moment."""
    cluster = Cluster(isr=(1, 2))
    for now_ms in range(0, 3 * LAG_MS, 1_000):
        cluster.write(now_ms + 1_000, now_ms)
        cluster.fetch(2, now_ms, now_ms, last_epoch=EPOCH if now_ms else NO_EPOCH)
        cluster.leader.check_followers(now_ms)
        assert not cluster.leader.wishes


def test_l5_who_is_behind_for_longer_than_the_lag_time_is_to_leave() -> None:
    cluster = Cluster()
    cluster.write(5)
    for now_ms in (0, LAG_MS, LAG_MS + 1):
        cluster.fetch(2, 5, now_ms, last_epoch=EPOCH)
        cluster.fetch(3, 1, now_ms, last_epoch=EPOCH)
        cluster.leader.check_followers(now_ms)
        assert cluster.leader.wishes == (now_ms > LAG_MS)
    assert asking(cluster, LAG_MS + 1).nodes == (1, 2)


def test_l5_where_nothing_is_written_each_request_of_the_session_is_a_fetch() -> None:
    cluster = Cluster()
    cluster.fetch(2, 0)
    cluster.fetch(3, 0)
    cluster.peers[2].asks(LAG_MS, anew=False)
    cluster.leader.check_followers(LAG_MS + 1)
    assert asking(cluster, LAG_MS + 1).nodes == (1, 2)


def test_l5_a_log_that_its_session_let_go_of_falls_behind() -> None:
    cluster = Cluster()
    cluster.fetch(2, 0)
    cluster.fetch(3, 0)
    cluster.leader.forgotten(0, cluster.peers[3])
    for node in (2, 3):
        cluster.peers[node].asks(LAG_MS, anew=False)
    cluster.leader.check_followers(LAG_MS + 1)
    assert asking(cluster, LAG_MS + 1).nodes == (1, 2)


def test_l5_one_question_at_a_time() -> None:
    cluster, _ = joining()
    assert cluster.leader.wants(10_000) is None


def test_l5_an_expansion_that_is_granted_is_committed() -> None:
    cluster, question = joining()
    cluster.leader.altered(question, granted((1, 2, 3)), 1)
    assert (cluster.leader.isr, cluster.leader.in_sync.partition_epoch) == ((1, 2, 3), 5)


def test_l5_a_shrink_counts_only_once_it_is_confirmed() -> None:
    cluster = Cluster()
    cluster.write(5)
    cluster.fetch(2, 5, LAG_MS + 1, last_epoch=EPOCH)
    question = asking(cluster, LAG_MS + 1)
    assert question.nodes == (1, 2)
    assert cluster.leader.high_watermark == 0
    assert cluster.leader.altered(question, granted((1, 2)), LAG_MS + 2)
    assert cluster.leader.high_watermark == 5


def test_l5_what_is_refused_as_ineligible_is_as_it_was() -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 1)
    assert cluster.leader.in_sync.largest == (1, 2)
    assert cluster.leader.wants(100) is None
    assert asking(cluster, 101).nodes == (1, 2, 3)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_l5_who_is_behind_the_controller_waits_for_the_image(code: ErrorCode) -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(code), 1)
    assert cluster.leader.wants(60_000) is None
    assert cluster.leader.in_sync.largest == (1, 2, 3)
    cluster.learns((1, 2), 6, 60_000)
    assert cluster.leader.in_sync.largest == (1, 2)
    cluster.fetch(3, 0, 60_000)
    assert asking(cluster, 60_000).partition_epoch == 6


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.REQUEST_TIMED_OUT])
def test_l5_the_controller_is_asked_again_after_100_ms(code: ErrorCode) -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(code), 1)
    assert cluster.leader.wants(100) is None
    assert cluster.leader.wishes
    assert asking(cluster, 101) == question


def test_l5_what_nobody_answered_may_have_been_done() -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 1)
    assert cluster.leader.in_sync.largest == (1, 2, 3)
    cluster.write(5, 2)
    cluster.fetch(2, 5, 2, last_epoch=EPOCH)
    assert cluster.leader.high_watermark == 0


def test_l5_the_committed_set_is_asked_for_when_the_doubtful_one_is_not_wanted_any_more() -> None:
    """The answer names another partition epoch: what is under way under the former one is void."""
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 1)
    cluster.peers[3].leaving = True
    settles = asking(cluster, 200)
    assert settles.nodes == (1, 2)
    assert cluster.leader.in_sync.largest == (1, 2, 3)
    cluster.leader.altered(settles, granted((1, 2)), 201)
    assert cluster.leader.in_sync.largest == (1, 2)


def test_l5_a_refusal_says_nothing_of_an_earlier_question() -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 1)
    cluster.leader.altered(asking(cluster, 200), IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 201)
    assert cluster.leader.in_sync.largest == (1, 2, 3)
    assert asking(cluster, 400).nodes == (1, 2)


def test_l5_a_late_answer_is_void() -> None:
    cluster, question = joining()
    cluster.learns((1,), 5)
    cluster.leader.altered(question, granted((1, 2, 3), 9), 1)
    assert (cluster.leader.isr, cluster.leader.in_sync.partition_epoch) == ((1,), 5)


def test_l5_an_answer_of_another_epoch_is_as_none() -> None:
    cluster, question = joining()
    cluster.leader.altered(question, IsrAnswer(ErrorCode.NONE, EPOCH + 1, 9, (1, 2, 3)), 1)
    assert (cluster.leader.isr, cluster.leader.in_sync.largest) == ((1, 2), (1, 2, 3))


def test_the_image_goes_before_what_was_asked() -> None:
    cluster, _ = joining()
    cluster.learns((1,), 5)
    assert (cluster.leader.isr, cluster.leader.in_sync.largest) == ((1,), (1,))
    assert not cluster.learns((1, 2, 3), 4)
    assert cluster.leader.isr == (1,)


def test_a_replica_that_is_assigned_no_more_is_not_asked_for() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(3, 0)
    replicas = (cluster.peers[1], cluster.peers[2])
    cluster.leader.learn(PartitionState(1, EPOCH, (1, 2), partition_epoch=4), replicas, 2, 0)
    assert cluster.leader.wants(0) is None


def test_l5_after_a_long_rest_nobody_is_behind_because_something_is_written() -> None:
    """All the while its session's requests were fetches of this log, though they did not name it."""
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(2, 0)
    for now_ms in range(0, 10 * LAG_MS, 500):
        cluster.peers[2].asks(now_ms, anew=False)
    cluster.write(5, 10 * LAG_MS)
    cluster.leader.check_followers(10 * LAG_MS)
    assert not cluster.leader.wishes
    cluster.peers[2].asks(10 * LAG_MS + 500, anew=False)
    cluster.leader.check_followers(11 * LAG_MS)
    assert cluster.leader.wishes
