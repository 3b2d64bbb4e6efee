"""KB-E4: what markers make of positions written in clients' names; each story over a model of Kafka."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.client_transactions import OUTCOME_IN_DOUBT, UNKNOWN_TRANSACTION
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient
from tests.support.client_transactions import (
    APP,
    adds,
    ends,
    is_there_and_answered,
    marks,
    outcomes,
    served,
)
from tests.support.owning import Kafka


@pytest.mark.parametrize("commits", [True, False])
def test_e4_a_marker_decides(commits: bool) -> None:
    kafka = Kafka()
    node = served(kafka)
    node.writes(b"a", b"1")
    adds(kafka)
    assert not node.of(fx.FollowLog), "a shard without open transactions is not read"
    node.commits(APP, b"a", b"2")
    assert outcomes(node) == [(1, 0)]
    node.passes(1_000)
    assert ends(node) == []
    assert node.of(fx.FollowLog)
    marks(kafka, commits=commits)
    node.passes(1_000)
    assert ends(node) == [(50, commits, [b"a"] if commits else [])]
    assert node.state == {b"a": b"2" if commits else b"1"}
    polls = len(node.of(fx.FollowLog))
    node.passes(5_000)
    assert len(node.of(fx.FollowLog)) == polls, "nor is it any more"


def test_e4_what_was_written_behind_it_is_the_later_word() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.commits(APP, b"a", b"2")
    node.writes(b"a", b"3")
    node.commits(APP, b"b", b"4")
    marks(kafka)
    node.passes(1_000)
    assert ends(node) == [(50, True, [b"b"])]
    assert node.state == {b"a": b"3", b"b": b"4"}


def test_e4_what_was_decided_before_and_comes_into_the_log_behind_it_is_the_later_word() -> None:
    """Nobody orders a shard's own batches and those of clients: the log tells which came first."""
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.hold = {fx.Produce}
    node.writes(b"a", b"3")
    node.commits(APP, b"a", b"2")
    node.releases()
    marks(kafka)
    node.passes(1_000)
    assert ends(node) == [(50, True, [])]


def test_e4_the_next_transaction_may_begin_before_the_marker_of_the_one_before_is_read() -> None:
    """Found by the simulator: the marker of the first ended both."""
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.commits(APP, b"a", b"1")
    marks(kafka)
    adds(kafka)
    node.commits(APP, b"b", b"2")
    node.passes(500)
    assert ends(node) == [(50, True, [b"a"])]
    assert [each.offset for each in node.of(fx.TransactionEnded)] == [2]
    marks(kafka, commits=False)
    node.passes(500)
    assert ends(node) == [(50, True, [b"a"]), (50, False, [])]


@pytest.mark.parametrize("code", [3, 5, 6, 7, 20, 56])
def test_e4_what_may_be_in_the_log_is_not_gone_past(code: int) -> None:
    """Found by the simulator: who leads no more says so of what it had appended, too. The shard went on behind it, and
    found nothing that its marker could commit."""
    kafka = Kafka()
    node = served(kafka)
    is_there_and_answered(kafka, node, code)
    node.writes(b"b", b"2")
    node.passes(500)
    assert outcomes(node) == [(1, 0)]
    marks(kafka)
    node.passes(500)
    assert ends(node) == [(50, True, [b"a"])]
    assert node.state == {b"a": b"1", b"b": b"2"}


@pytest.mark.parametrize("code", [47, 48, 90])
def test_e4_what_was_refused_and_may_be_in_the_log_is_looked_for_there(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    is_there_and_answered(kafka, node, 7)
    node.codes = {fx.WriteClientBatch: code}
    node.passes(500)
    assert outcomes(node) == [(1, code)]
    assert [unload.why for unload in node.of(fx.UnloadShard)] == [OUTCOME_IN_DOUBT]
    marks(kafka)
    node.passes(1_000)
    assert node.serves
    assert node.state == {b"a": b"1"}


def test_a4_where_nobody_says_for_long_what_became_of_it_the_log_is_read_anew() -> None:
    kafka = Kafka()
    node = served(kafka, delivery_timeout_ms=4_000)
    node.codes = {fx.WriteClientBatch: 7}
    node.commits(APP, b"a", b"1")
    node.passes(3_500)
    assert not node.of(fx.UnloadShard)
    node.passes(1_000)
    assert len(node.of(fx.UnloadShard)) == 1
    node.passes(1_000)
    assert node.serves


def test_e4_a_marker_waits_for_the_answer_about_what_is_in_front_of_it() -> None:
    """Else it would be told before its positions are, and they would wait for ever."""
    kafka = Kafka()
    node = served(kafka)
    other = TransactionalClient("other", ProducerEpoch(60, 0))
    for client in (APP, other):
        adds(kafka, client)
    node.commits(other, b"b", b"1")
    node.hold = {fx.WriteClientBatch}
    node.commits(APP, b"a", b"1")
    [written] = node.held
    partition = kafka.partitions[0]
    pairs = [(key, value) for key, value, _ in written.batch.records]
    at = partition.append(APP.producer, 0, pairs, kafka.now_ms, transactional=True).offset
    marks(kafka, commits=False)
    node.passes(1_000)
    assert ends(node) == []
    node.tell(ev.ClientBatchAnswered(0, written.request, 0, at))
    node.passes(1_000)
    assert [type(each) for each in node.seen if isinstance(each, fx.ClientWriteOutcome | fx.TransactionEnded)][-2:] == [
        fx.ClientWriteOutcome,
        fx.TransactionEnded,
    ]
    assert ends(node) == [(50, False, [])]


def test_e4_a_new_owner_is_told_what_waits_before_it_serves_and_follows_it() -> None:
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.commits(APP, b"a", b"1")
    second = served(kafka, 2)
    kinds = [type(each) for each in second.seen if isinstance(each, fx.TransactionPending | fx.ServeShard)]
    assert kinds == [fx.TransactionPending, fx.ServeShard]
    assert [(each.producer_id, [r.key for r in each.records]) for each in second.of(fx.TransactionPending)] == [
        (50, [b"a"])
    ]
    marks(kafka)
    second.passes(500)
    assert second.state == {b"a": b"1"}


def test_e4_what_an_owner_before_wrote_late_is_found_when_its_client_comes_again() -> None:
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.hold = {fx.WriteClientBatch}
    first.commits(APP, b"a", b"1")
    second = served(kafka, 2)
    first.releases()
    assert not second.of(fx.TransactionPending)
    second.commits(APP, b"b", b"2")
    assert [unload.why for unload in second.of(fx.UnloadShard)] == [UNKNOWN_TRANSACTION]
    second.passes(1_000)
    assert second.serves
    assert [each.producer_id for each in second.of(fx.TransactionPending)] == [50]
    second.commits(APP, b"b", b"2")
    marks(kafka)
    second.passes(1_000)
    assert second.state == {b"a": b"1", b"b": b"2"}


def test_what_a_cleaner_left_of_a_transaction_is_none() -> None:
    """It keeps a producer's last batch, without records, for its sequence, and not the marker."""
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.commits(APP, b"a", b"1")
    marks(kafka)
    node.passes(500)
    node.writes(b"a", b"2")
    partition = kafka.partitions[0]
    partition.clean(kafka.now_ms + 1, 0)
    partition.log = [stored for stored in partition.log if stored.seen.marker is None]
    later = served(kafka, 2)
    later.passes(1_000)
    assert not later.of(fx.FollowLog)


def test_f7_without_a_lease_nothing_is_written_nor_followed() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.commits(APP, b"a", b"1")
    node.passes(9_500, beats=False)
    polls = len(node.of(fx.FollowLog))
    node.commits(APP, b"b", b"2")
    node.passes(1_000, beats=False)
    assert (len(node.of(fx.FollowLog)), len(node.of(fx.WriteClientBatch))) == (polls, 1)
    node.passes(1_000)
    assert outcomes(node) == [(1, 0), (2, 0)]


def test_f8_a_shard_is_let_go_of_when_what_it_writes_for_clients_is_there() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.hold = {fx.WriteClientBatch}
    node.commits(APP, b"a", b"1")
    node.tell(ev.RevokeShards(7, frozenset({0}), kafka.now_ms + 60_000))
    node.passes(1_000)
    assert not node.of(fx.ShardsLetGo)
    node.releases()
    node.passes(500)
    assert [each.token for each in node.of(fx.ShardsLetGo)] == [7]


def test_what_cannot_be_fetched_is_asked_for_again() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.codes = {fx.FollowLog: 6}
    node.commits(APP, b"a", b"1")
    marks(kafka)
    node.passes(3_000)
    assert len(node.of(fx.FollowLog)) > 2
    assert ends(node) == []
    del node.codes[fx.FollowLog]
    node.passes(2_000)
    assert ends(node) == [(50, True, [b"a"])]
