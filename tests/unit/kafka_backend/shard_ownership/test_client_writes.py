"""KB-E2, KB-E3: positions written in clients' names, under whose sequences, and what becomes of each answer; stories
over a model of Kafka."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.client_transactions import MOST_TRIES, UNKNOWN_TRANSACTION
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient
from tests.support.client_transactions import (
    APP,
    adds,
    after_a_transaction,
    is_there_and_answered,
    marks,
    outcomes,
    sequences,
    served,
)
from tests.support.owning import Kafka


def test_e2_sequences_go_on_over_the_transactions_of_an_epoch_and_begin_anew_in_the_next() -> None:
    kafka = Kafka()
    node = served(kafka)
    for offset in (b"1", b"2", b"3"):
        adds(kafka)
        node.commits(APP, b"a", offset)
        marks(kafka)
        node.passes(500)
    later = TransactionalClient("app", ProducerEpoch(50, 1))
    adds(kafka, later)
    node.commits(later, b"a", b"4")
    assert sequences(node) == [1, 2, 3, 0], "they begin where the log ended"
    assert outcomes(node) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert len(node.of(fx.DescribeProducer)) == 1, "of what it wrote itself it need not be told"


def test_e3_a_new_owner_asks_where_sequences_stand() -> None:
    """What it would take for the first is there already: a broker would take it for the very same batch."""
    kafka = after_a_transaction()
    second = served(kafka, 2)
    second.commits(APP, b"a", b"2")
    marks(kafka)
    second.passes(500)
    assert second.state == {b"a": b"2"}
    assert (sequences(second), outcomes(second)) == ([2], [(1, 0)])


def test_e3_a_late_word_of_an_epoch_that_is_over_takes_nothing_from_the_one_that_is() -> None:
    """Seed 400784: what was asked for it was kept as the producer's; the sequence of the epoch that counts began anew,
    the broker took the next batch for one that it had, and positions that were acknowledged were in no transaction."""
    kafka = Kafka()
    node = served(kafka)
    later = TransactionalClient("app", ProducerEpoch(50, 4))
    adds(kafka)
    node.commits(later, b"a", b"1")
    node.commits(TransactionalClient("app", ProducerEpoch(50, 2)), b"b", b"2")
    node.commits(later, b"c", b"3")
    assert outcomes(node) == [(1, 0), (2, 47), (3, 0)]
    assert sequences(node) == [1, 2], "nor is it sent"
    marks(kafka, later)
    node.passes(1_000)
    assert node.state == {b"a": b"1", b"c": b"3"}


def test_e3_so_does_one_that_comes_to_a_new_owner() -> None:
    kafka = Kafka()
    node = served(kafka)
    later = TransactionalClient("app", ProducerEpoch(50, 4))
    adds(kafka)
    node.commits(later, b"a", b"1")
    other = served(kafka, node=2)
    other.commits(TransactionalClient("app", ProducerEpoch(50, 2)), b"b", b"2")
    other.commits(later, b"c", b"3")
    assert outcomes(other) == [(1, 47), (2, 0)]
    assert sequences(other) == [2]


def test_e3_what_a_broker_has_forgotten_the_next_leader_may_know() -> None:
    """Seed 402901: replicas forget producers each by its own clock (producer.id.expiration.ms). Whoever began at 0
    where nothing was known had its batch taken for the first one of long ago."""
    kafka = after_a_transaction()
    known = kafka.partitions[0].producers.pop(APP.producer.id)
    second = served(kafka, 2)
    second.hold = {fx.WriteClientBatch}
    second.commits(APP, b"a", b"2")
    kafka.partitions[0].producers[APP.producer.id] = known
    second.releases()
    second.passes(1_000)
    marks(kafka)
    second.passes(500)
    assert outcomes(second) == [(1, 0)]
    assert second.state == {b"a": b"2"}


@pytest.mark.parametrize(("code", "told"), [(47, 47), (90, 90), (48, 48), (53, 53), (10, 10), (18, 10)])
def test_e3_what_a_broker_refuses_is_over(code: int, told: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    node.codes = {fx.WriteClientBatch: code}
    node.commits(APP, b"a", b"1")
    assert outcomes(node) == [(1, told)]
    node.passes(1_000)
    assert not node.of(fx.FollowLog)


def test_e3_not_in_the_transaction() -> None:
    node = served(Kafka())
    node.commits(APP, b"a", b"1")
    assert outcomes(node) == [(1, 48)]


@pytest.mark.parametrize("code", [45, 59])
def test_e3_another_sequence_is_asked_for_and_not_for_ever(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    node.codes = {fx.WriteClientBatch: code}
    node.commits(APP, b"a", b"1")
    assert len(node.of(fx.DescribeProducer)) == 2
    assert outcomes(node) == [(1, code)]


@pytest.mark.parametrize("code", [14, 19, 51])
def test_e3_what_is_surely_not_in_the_log_is_tried_some_times(code: int) -> None:
    """One client's transaction whose coordinator is away must not take the shard along."""
    kafka = Kafka()
    node = served(kafka)
    node.codes = {fx.WriteClientBatch: code}
    node.commits(APP, b"a", b"1")
    node.passes(5_000)
    assert len(node.of(fx.WriteClientBatch)) == MOST_TRIES
    assert outcomes(node) == [(1, 15)]
    assert node.serves


@pytest.mark.parametrize("code", [3, 5, 6, 7, 20, 56])
def test_e3_of_what_nobody_knows_the_same_bytes_are_sent_again(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.codes = {fx.WriteClientBatch: code}
    node.commits(APP, b"a", b"1")
    node.passes(2_000)
    writes = node.of(fx.WriteClientBatch)
    assert len(writes) > MOST_TRIES
    assert {id(each.batch) for each in writes} == {id(writes[0].batch)}
    assert outcomes(node) == []
    del node.codes[fx.WriteClientBatch]
    node.passes(1_000)
    assert outcomes(node) == [(1, 0)]


@pytest.mark.parametrize("code", [-1, 134])
def test_e3_of_a_code_that_nobody_knows_nor_does_anybody_know_the_sequence_behind_it(code: int) -> None:
    """It went on with the same one: the broker took what came next for the batch that was there, and told that it was
    written. The client's next transaction committed nothing."""
    kafka = Kafka()
    node = served(kafka)
    is_there_and_answered(kafka, node, code)
    assert outcomes(node) == [(1, code)]
    marks(kafka, commits=False)
    adds(kafka)
    node.commits(APP, b"a", b"2")
    node.passes(500)
    assert outcomes(node) == [(1, code), (2, 0)]
    marks(kafka)
    node.passes(500)
    assert node.state == {b"a": b"2"}


@pytest.mark.parametrize("code", [-1, 134])
def test_e3_nor_whether_it_is_there_which_is_looked_for_when_its_client_comes_again(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    is_there_and_answered(kafka, node, code)
    node.commits(APP, b"a", b"2")
    assert [unload.why for unload in node.of(fx.UnloadShard)] == [UNKNOWN_TRANSACTION]
    marks(kafka)
    node.passes(1_000)
    assert node.serves
    assert node.state == {b"a": b"1"}


def test_a3_what_waits_for_clients_takes_room() -> None:
    kafka = Kafka()
    node = served(kafka, unacked_bytes=200)
    node.hold = {fx.WriteClientBatch}
    for number in range(8):
        adds(kafka)
        node.commits(APP, b"key-%d" % number, b"1")
    assert not node.shards.has_room(0)
    assert node.shards.unacked(0) >= 200
    node.releases()
    node.passes(1_000)
    assert node.shards.has_room(0)


def test_a_commit_that_has_no_room_in_any_batch_is_refused() -> None:
    node = served(Kafka(), batch_bytes=300)
    node.commits(APP, b"a", b"x" * 400)
    assert outcomes(node) == [(1, 10)]
    assert not node.of(fx.DescribeProducer)
