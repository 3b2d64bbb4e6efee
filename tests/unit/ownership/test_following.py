"""E2 to E4: positions written in clients' names, and what markers make of them; each story over a model of Kafka."""

import pytest

from muster.coordinator.ownership import effects as fx
from muster.coordinator.ownership import events as ev
from muster.coordinator.ownership.appends import Limits
from muster.coordinator.ownership.client_writes import MOST_TRIES
from muster.coordinator.ownership.facts import Client, Producer
from muster.coordinator.ownership.following import IN_DOUBT, UNKNOWN
from tests.support.owning import Kafka, OwningNode

APP = Client("app", Producer(50, 0))


def served(kafka: Kafka, node: int = 1, **given: int) -> OwningNode:
    owner = OwningNode(kafka, node, limits=Limits(**given))
    owner.deals()
    assert owner.serves
    return owner


def adds(kafka: Kafka, client: Client = APP) -> None:
    """AddOffsetsToTxn."""
    kafka.partitions[0].added.add(client.producer.id)


def marks(kafka: Kafka, client: Client = APP, *, commits: bool = True) -> None:
    kafka.partitions[0].mark(client.producer, kafka.now_ms, commits=commits)
    kafka.partitions[0].commit()


def after_a_transaction() -> Kafka:
    """An owner has written a position, and its marker is there; the client is in its next transaction."""
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.commits(APP, b"a", b"1")
    marks(kafka)
    first.passes(500)
    adds(kafka)
    return kafka


def outcomes(node: OwningNode) -> list[tuple[int, int]]:
    return [(each.token, each.code) for each in node.of(fx.TxnOutcome)]


def sequences(node: OwningNode) -> list[int]:
    return [each.batch.sequence for each in node.of(fx.WriteTxn)]


def ends(node: OwningNode) -> list[tuple[int, bool, list[bytes | None]]]:
    return [(each.producer.id, each.committed, [r.key for r in each.records]) for each in node.of(fx.Ended)]


@pytest.mark.parametrize("commits", [True, False])
def test_e4_a_marker_decides(commits: bool) -> None:
    kafka = Kafka()
    node = served(kafka)
    node.writes(b"a", b"1")
    adds(kafka)
    assert not node.of(fx.Follow), "a shard without open transactions is not read"
    node.commits(APP, b"a", b"2")
    assert outcomes(node) == [(1, 0)]
    node.passes(1_000)
    assert ends(node) == []
    assert node.of(fx.Follow)
    marks(kafka, commits=commits)
    node.passes(1_000)
    assert ends(node) == [(50, commits, [b"a"] if commits else [])]
    assert node.state == {b"a": b"2" if commits else b"1"}
    polls = len(node.of(fx.Follow))
    node.passes(5_000)
    assert len(node.of(fx.Follow)) == polls, "nor is it any more"


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
    assert [each.offset for each in node.of(fx.Ended)] == [2]
    marks(kafka, commits=False)
    node.passes(500)
    assert ends(node) == [(50, True, [b"a"]), (50, False, [])]


def test_e2_sequences_go_on_over_the_transactions_of_an_epoch_and_begin_anew_in_the_next() -> None:
    kafka = Kafka()
    node = served(kafka)
    for offset in (b"1", b"2", b"3"):
        adds(kafka)
        node.commits(APP, b"a", offset)
        marks(kafka)
        node.passes(500)
    later = Client("app", Producer(50, 1))
    adds(kafka, later)
    node.commits(later, b"a", b"4")
    assert sequences(node) == [1, 2, 3, 0], "they begin where the log ended"
    assert outcomes(node) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert len(node.of(fx.AskProducer)) == 1, "of what it wrote itself it need not be told"


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
    later = Client("app", Producer(50, 4))
    adds(kafka)
    node.commits(later, b"a", b"1")
    node.commits(Client("app", Producer(50, 2)), b"b", b"2")
    node.commits(later, b"c", b"3")
    assert outcomes(node) == [(1, 0), (2, 47), (3, 0)]
    assert sequences(node) == [1, 2], "nor is it sent"
    marks(kafka, later)
    node.passes(1_000)
    assert node.state == {b"a": b"1", b"c": b"3"}


def test_e3_so_does_one_that_comes_to_a_new_owner() -> None:
    kafka = Kafka()
    node = served(kafka)
    later = Client("app", Producer(50, 4))
    adds(kafka)
    node.commits(later, b"a", b"1")
    other = served(kafka, node=2)
    other.commits(Client("app", Producer(50, 2)), b"b", b"2")
    other.commits(later, b"c", b"3")
    assert outcomes(other) == [(1, 47), (2, 0)]
    assert sequences(other) == [2]


def test_e3_what_a_broker_has_forgotten_the_next_leader_may_know() -> None:
    """Seed 402901: replicas forget producers each by its own clock (producer.id.expiration.ms). Whoever began at 0
    where nothing was known had its batch taken for the first one of long ago."""
    kafka = after_a_transaction()
    known = kafka.partitions[0].producers.pop(APP.producer.id)
    second = served(kafka, 2)
    second.hold = {fx.WriteTxn}
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
    node.codes = {fx.WriteTxn: code}
    node.commits(APP, b"a", b"1")
    assert outcomes(node) == [(1, told)]
    node.passes(1_000)
    assert not node.of(fx.Follow)


def test_e3_not_in_the_transaction() -> None:
    node = served(Kafka())
    node.commits(APP, b"a", b"1")
    assert outcomes(node) == [(1, 48)]


@pytest.mark.parametrize("code", [45, 59])
def test_e3_another_sequence_is_asked_for_and_not_for_ever(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    node.codes = {fx.WriteTxn: code}
    node.commits(APP, b"a", b"1")
    assert len(node.of(fx.AskProducer)) == 2
    assert outcomes(node) == [(1, code)]


@pytest.mark.parametrize("code", [14, 19, 51])
def test_e3_what_is_surely_not_in_the_log_is_tried_some_times(code: int) -> None:
    """One client's transaction whose coordinator is away must not take the shard along."""
    kafka = Kafka()
    node = served(kafka)
    node.codes = {fx.WriteTxn: code}
    node.commits(APP, b"a", b"1")
    node.passes(5_000)
    assert len(node.of(fx.WriteTxn)) == MOST_TRIES
    assert outcomes(node) == [(1, 15)]
    assert node.serves


@pytest.mark.parametrize("code", [3, 5, 6, 7, 20, 56])
def test_e3_of_what_nobody_knows_the_same_bytes_are_sent_again(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.codes = {fx.WriteTxn: code}
    node.commits(APP, b"a", b"1")
    node.passes(2_000)
    writes = node.of(fx.WriteTxn)
    assert len(writes) > MOST_TRIES
    assert {id(each.batch) for each in writes} == {id(writes[0].batch)}
    assert outcomes(node) == []
    del node.codes[fx.WriteTxn]
    node.passes(1_000)
    assert outcomes(node) == [(1, 0)]


def is_there_and_answered(kafka: Kafka, node: OwningNode, code: int) -> None:
    """A commit of a=1 comes into the log, and that is what is heard of it."""
    adds(kafka)
    node.hold = {fx.WriteTxn}
    node.commits(APP, b"a", b"1")
    [written] = node.held
    pairs = [(key, value) for key, value, _ in written.batch.records]
    kafka.partitions[0].append(APP.producer, written.batch.sequence, pairs, kafka.now_ms, transactional=True)
    node.held, node.hold = [], set()
    node.tell(ev.TxnAnswered(0, written.request, code, -1))


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
    assert [unload.why for unload in node.of(fx.Unload)] == [UNKNOWN]
    marks(kafka)
    node.passes(1_000)
    assert node.serves
    assert node.state == {b"a": b"1"}


@pytest.mark.parametrize("code", [47, 48, 90])
def test_e4_what_was_refused_and_may_be_in_the_log_is_looked_for_there(code: int) -> None:
    kafka = Kafka()
    node = served(kafka)
    is_there_and_answered(kafka, node, 7)
    node.codes = {fx.WriteTxn: code}
    node.passes(500)
    assert outcomes(node) == [(1, code)]
    assert [unload.why for unload in node.of(fx.Unload)] == [IN_DOUBT]
    marks(kafka)
    node.passes(1_000)
    assert node.serves
    assert node.state == {b"a": b"1"}


def test_a4_where_nobody_says_for_long_what_became_of_it_the_log_is_read_anew() -> None:
    kafka = Kafka()
    node = served(kafka, delivery_timeout_ms=4_000)
    node.codes = {fx.WriteTxn: 7}
    node.commits(APP, b"a", b"1")
    node.passes(3_500)
    assert not node.of(fx.Unload)
    node.passes(1_000)
    assert len(node.of(fx.Unload)) == 1
    node.passes(1_000)
    assert node.serves


def test_e4_a_marker_waits_for_the_answer_about_what_is_in_front_of_it() -> None:
    """Else it would be told before its positions are, and they would wait for ever."""
    kafka = Kafka()
    node = served(kafka)
    other = Client("other", Producer(60, 0))
    for client in (APP, other):
        adds(kafka, client)
    node.commits(other, b"b", b"1")
    node.hold = {fx.WriteTxn}
    node.commits(APP, b"a", b"1")
    [written] = node.held
    partition = kafka.partitions[0]
    pairs = [(key, value) for key, value, _ in written.batch.records]
    at = partition.append(APP.producer, 0, pairs, kafka.now_ms, transactional=True).offset
    marks(kafka, commits=False)
    node.passes(1_000)
    assert ends(node) == []
    node.tell(ev.TxnAnswered(0, written.request, 0, at))
    node.passes(1_000)
    assert [type(each) for each in node.seen if isinstance(each, fx.TxnOutcome | fx.Ended)][-2:] == [
        fx.TxnOutcome,
        fx.Ended,
    ]
    assert ends(node) == [(50, False, [])]


def test_e4_a_new_owner_is_told_what_waits_before_it_serves_and_follows_it() -> None:
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.commits(APP, b"a", b"1")
    second = served(kafka, 2)
    kinds = [type(each) for each in second.seen if isinstance(each, fx.Waits | fx.Serve)]
    assert kinds == [fx.Waits, fx.Serve]
    assert [(each.producer_id, [r.key for r in each.records]) for each in second.of(fx.Waits)] == [(50, [b"a"])]
    marks(kafka)
    second.passes(500)
    assert second.state == {b"a": b"1"}


def test_e4_what_an_owner_before_wrote_late_is_found_when_its_client_comes_again() -> None:
    kafka = Kafka()
    first = served(kafka)
    adds(kafka)
    first.hold = {fx.WriteTxn}
    first.commits(APP, b"a", b"1")
    second = served(kafka, 2)
    first.releases()
    assert not second.of(fx.Waits)
    second.commits(APP, b"b", b"2")
    assert [unload.why for unload in second.of(fx.Unload)] == [UNKNOWN]
    second.passes(1_000)
    assert second.serves
    assert [each.producer_id for each in second.of(fx.Waits)] == [50]
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
    assert not later.of(fx.Follow)


def test_f7_without_a_lease_nothing_is_written_nor_followed() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.commits(APP, b"a", b"1")
    node.passes(9_500, beats=False)
    polls = len(node.of(fx.Follow))
    node.commits(APP, b"b", b"2")
    node.passes(1_000, beats=False)
    assert (len(node.of(fx.Follow)), len(node.of(fx.WriteTxn))) == (polls, 1)
    node.passes(1_000)
    assert outcomes(node) == [(1, 0), (2, 0)]


def test_f8_a_shard_is_let_go_of_when_what_it_writes_for_clients_is_there() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.hold = {fx.WriteTxn}
    node.commits(APP, b"a", b"1")
    node.tell(ev.Revoke(7, frozenset({0}), kafka.now_ms + 60_000))
    node.passes(1_000)
    assert not node.of(fx.LetGo)
    node.releases()
    node.passes(500)
    assert [each.token for each in node.of(fx.LetGo)] == [7]


def test_a3_what_waits_for_clients_takes_room() -> None:
    kafka = Kafka()
    node = served(kafka, unacked_bytes=200)
    node.hold = {fx.WriteTxn}
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
    assert not node.of(fx.AskProducer)


def test_what_cannot_be_fetched_is_asked_for_again() -> None:
    kafka = Kafka()
    node = served(kafka)
    adds(kafka)
    node.codes = {fx.Follow: 6}
    node.commits(APP, b"a", b"1")
    marks(kafka)
    node.passes(3_000)
    assert len(node.of(fx.Follow)) > 2
    assert ends(node) == []
    del node.codes[fx.Follow]
    node.passes(2_000)
    assert ends(node) == [(50, True, [b"a"])]
