"""EndTxn in every state and epoch, decisions, markers, and what a new life of the shard goes on with."""

from typing import Any

import pytest

from muster.coordinator.transactions import state
from muster.coordinator.transactions.effects import AbortNoted, EndCause, MarkerTrouble, ProducerIdWanted
from muster.coordinator.transactions.events import (
    NO_ORIGIN,
    AddPartitions,
    DescribeTransaction,
    MarkersWritten,
    ProducerIdDrawn,
    RequestOrigin,
    TopicsDeleted,
    TransactionsStoodStill,
)
from muster.coordinator.transactions.records import (
    MOVES,
    IllegalMove,
    TransactionState,
    TransactionStored,
    check_move,
)
from tests.support.transactions import TIMEOUT_MS, Desk

LEVEL_2 = [
    ("Empty", False, 90, "PrepareAbort"),
    ("Empty", True, 90, 48),
    ("CompleteAbort", False, 0, "PrepareAbort"),
    ("CompleteAbort", True, 48, 48),
    ("CompleteCommit", False, 48, "PrepareAbort"),
    ("CompleteCommit", True, 0, 48),
    ("Ongoing", False, 90, "PrepareAbort"),
    ("Ongoing", True, 90, "PrepareCommit"),
]
"""As a Kafka 4.1.1 broker answers: state, commit, with the epoch before the current one, with the current one."""

LEVEL_0 = [
    ("Empty", False, 48),
    ("Empty", True, 48),
    ("CompleteAbort", False, 0),
    ("CompleteAbort", True, 48),
    ("CompleteCommit", False, 48),
    ("CompleteCommit", True, 0),
    ("Ongoing", False, "PrepareAbort"),
    ("Ongoing", True, "PrepareCommit"),
]


def in_state(title: str, epoch: int = 5) -> Desk:
    """An id that is in this state at that epoch."""
    desk = Desk()
    state = next(state for state in TransactionState if state.title == title)
    partitions = {} if state.idle else {"t": (0, 1)}
    desk.log.append(TransactionStored("A", 7, epoch, TIMEOUT_MS, state, partitions, 900, 900, previous_producer_id=7))
    desk.reload()
    return desk


def decided_after(desk: Desk, before: int) -> list[str]:
    return [record.state.title for record in desk.log[before:] if isinstance(record, TransactionStored)]


@pytest.mark.parametrize(("state", "commit", "repeated", "current"), LEVEL_2)
def test_at_level_2_an_end_is_judged_by_its_epoch(state: str, commit: bool, repeated: int, current: Any) -> None:
    desk = in_state(state)
    answer = desk.end(7, 4, commit, level=2)
    assert (answer.code, answer.producer_id, answer.epoch) == (repeated, *((-1, -1) if repeated else (7, 5)))
    assert len(desk.log) == 1
    answer = desk.end(7, 5, commit, level=2)
    if isinstance(current, str):
        assert (answer.code, answer.producer_id, answer.epoch) == (0, 7, 6)
        assert decided_after(desk, 1)[0] == current
        assert desk.told()[2] == 6
    else:
        assert (answer.code, answer.producer_id, answer.epoch) == (current, -1, -1)
        assert len(desk.log) == 1


@pytest.mark.parametrize(("state", "commit", "expected"), LEVEL_0)
def test_at_level_0_an_end_is_judged_by_the_state(state: str, commit: bool, expected: Any) -> None:
    desk = in_state(state)
    answer = desk.end(7, 5, commit)
    assert answer.code == (0 if isinstance(expected, str) else expected)
    assert decided_after(desk, 1) == ([expected] if isinstance(expected, str) else [])
    assert desk.stored().epoch == 5


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_other_epochs_and_producers_are_refused(state: str, level: int) -> None:
    desk = in_state(state)
    for epoch in (3, 6):
        assert desk.end(7, epoch, level=level).code == 90
    assert desk.end(8, 5, level=level).code == 49
    assert desk.end(7, 5, name="B", level=level).code == 49
    assert desk.end(7, 5, name="", level=level).code == 42


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_while_markers_are_under_way_everything_has_to_wait(state: str) -> None:
    desk = in_state(state)
    for producer_id, epoch in ((7, 5), (7, 4), (8, 0)):
        for commit in (False, True):
            assert desk.end(producer_id, epoch, commit, level=2).code == 51
    assert desk.end(7, 5).code == 51
    assert desk.add(7, 5).code == 51
    assert desk.add(7, 5, verify_only=True).code == 51


def test_a_commit_is_decided_marked_and_complete() -> None:
    desk = in_state("Empty")
    desk.add(7, 5, ("t", 1), ("s", 0), ("t", 0), level=2)
    answer = desk.end(7, 5, level=2)
    assert (answer.code, answer.producer_id, answer.epoch) == (0, 7, 6)
    sent = desk.sent[-1]
    assert (sent.producer_id, sent.epoch, sent.commit, sent.level) == (7, 6, True, 2)
    assert sent.partitions == (("s", 0), ("t", 0), ("t", 1))
    assert desk.told() == ("PrepareCommit", 7, 6)
    desk.write_markers()
    assert desk.told() == ("CompleteCommit", 7, 6)
    assert (desk.stored().partitions, desk.stored().started_ms) == ({}, 1_000)


def test_complete_waits_for_every_marker() -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    sent = desk.sent[-1]
    desk.step(MarkersWritten("A", sent.life, sent.number, {("t", 0): 0}))
    assert desk.told()[0] == "PrepareCommit"
    desk.step(MarkersWritten("A", sent.life, sent.number, {("t", 0): 0}))
    assert desk.told()[0] == "PrepareCommit"
    desk.step(MarkersWritten("A", sent.life, sent.number, {("t", 1): 0}))
    assert desk.told()[0] == "CompleteCommit"


def test_an_abort_without_partitions_is_complete_at_once() -> None:
    desk = in_state("CompleteCommit")
    assert desk.end(7, 5, False, level=2).epoch == 6
    assert decided_after(desk, 1) == ["PrepareAbort", "CompleteAbort"]
    assert desk.sent == []


def test_markers_of_another_transaction_or_life_count_for_nothing() -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    sent = desk.sent[-1]
    every = dict.fromkeys(sent.partitions, 0)
    desk.step(MarkersWritten("A", sent.life, sent.number - 1, every))
    desk.step(MarkersWritten("B", sent.life, sent.number, every))
    desk.reload()
    desk.step(MarkersWritten("A", sent.life, sent.number, every))
    assert desk.told()[0] == "PrepareCommit"
    desk.write_markers()
    assert desk.told()[0] == "CompleteCommit"


@pytest.mark.parametrize(("error", "gone"), [(0, False), (35, False), (43, False), (3, True), (47, False)])
def test_what_lets_a_marker_count_as_written(error: int, gone: bool) -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    desk.write_markers(error, gone=gone)
    assert desk.told()[0] == "CompleteCommit"
    assert [type(notice) for notice in desk.notices].count(MarkerTrouble) == (2 if error == 47 else 0)


@pytest.mark.parametrize("error", [3, 6, 7, 19, 20, 56])
def test_a_partition_that_cannot_be_reached_is_tried_again_soon(error: int) -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    pauses = []
    for _ in range(6):
        desk.write_markers(error)
        sent = len(desk.sent)
        for ms in range(1, 1_001):
            desk.wait(1)
            if len(desk.sent) > sent:
                pauses.append(ms)
                break
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    assert not any(isinstance(notice, MarkerTrouble) for notice in desk.notices)
    desk.write_markers()
    assert desk.told()[0] == "CompleteCommit"


@pytest.mark.parametrize("error", [-1, 52, 87])
def test_an_unexpected_error_is_told_and_tried_again_for_ever(error: int) -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    for sent in range(1, 20):
        assert len(desk.sent) == sent
        desk.write_markers(error)
        desk.wait(999)
        assert len(desk.sent) == sent
        desk.wait(1)
    assert sum(isinstance(notice, MarkerTrouble) for notice in desk.notices) == 2 * 19


def test_only_what_failed_is_sent_again() -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5)
    sent = desk.sent[-1]
    desk.step(MarkersWritten("A", sent.life, sent.number, {("t", 0): 0, ("t", 1): 6}))
    desk.wait(100)
    assert desk.sent[-1].partitions == (("t", 1),)
    assert desk.sent[-1].number == sent.number


def test_a_deleted_topic_leaves_the_decided_transaction() -> None:
    desk = in_state("Ongoing")
    desk.add(7, 5, ("s", 0))
    desk.end(7, 5)
    desk.step(TopicsDeleted(frozenset({"t"})))
    assert desk.told()[0] == "PrepareCommit"
    sent = desk.sent[-1]
    desk.step(MarkersWritten("A", sent.life, sent.number, {("s", 0): 0}))
    assert desk.told()[0] == "CompleteCommit"


def test_a_deleted_topic_stays_named_in_the_open_transaction_and_gets_no_marker() -> None:
    desk = in_state("Ongoing")
    desk.add(7, 5, ("s", 0))
    desk.step(TopicsDeleted(frozenset({"t"})))
    assert desk.stored().partitions == {"t": (0, 1), "s": (0,)}
    desk.add(7, 5, ("t", 1))  # It was made again since, and joins.
    desk.end(7, 5)
    assert desk.sent[-1].partitions == (("t", 1), ("s", 0))


def test_nobody_waits_for_a_marker_whose_topic_was_deleted_meanwhile() -> None:
    """The topic is made again, and the next transaction, at level 0 with the same epoch, begins in it."""
    desk = in_state("Ongoing")
    desk.add(7, 5, ("s", 0))
    desk.end(7, 5)
    held = desk.sent[-1]
    assert desk.shard.waits_for(held, ("t", 0))
    desk.step(TopicsDeleted(frozenset({"t"}), {"t", "s"}))
    assert not desk.shard.waits_for(held, ("t", 0))
    assert desk.shard.waits_for(held, ("s", 0))
    desk.step(MarkersWritten("A", held.life, held.number, {("s", 0): 0}))
    desk.add(7, 5, ("t", 0))
    assert not desk.shard.waits_for(held, ("t", 0))
    desk.end(7, 5)
    assert not desk.shard.waits_for(held, ("t", 0))
    assert desk.shard.waits_for(desk.sent[-1], ("t", 0))
    desk.reload()
    assert not desk.shard.waits_for(held, ("t", 0))


def test_markers_name_the_topics_that_they_are_for() -> None:
    """One that is under way must not get into another topic of that name."""
    desk = in_state("Ongoing")
    desk.step(TopicsDeleted(frozenset(), {"t", "s"}, {"t": b"old", "s": b"s"}))
    desk.end(7, 5)
    assert desk.sent[-1].topic_ids == {"t": b"old"}
    desk.write_markers()
    desk.add(7, 5, ("t", 0), ("s", 0))
    desk.step(TopicsDeleted(frozenset({"t"}), {"t", "s"}, {"t": b"new", "s": b"s"}))
    desk.end(7, 5)
    assert desk.sent[-1].topic_ids == {"t": b"new", "s": b"s"}


@pytest.mark.parametrize("together", [True, False])
def test_a_topic_that_is_there_again_gets_its_marker_though_nobody_adds_it_again(together: bool) -> None:
    """A client of level 0 has added it, and is let into the new log: without a marker its records would hang there."""
    desk = in_state("Ongoing")
    if together:
        desk.step(TopicsDeleted(frozenset({"t"}), {"t", "s"}))
    else:
        desk.step(TopicsDeleted(frozenset({"t"}), {"s"}))
        desk.step(TopicsDeleted(frozenset(), {"t", "s"}))
    verified = desk.request(AddPartitions, "A", 7, 5, (("t", 0),), verify_only=True)
    assert set(verified.partitions.values()) == {0}
    desk.end(7, 5)
    assert desk.sent[-1].partitions == (("t", 0), ("t", 1))


# Epochs that are used up
# -----------------------


def test_the_last_epoch_goes_with_the_markers_and_a_fresh_producer_id_follows() -> None:
    desk = in_state("Ongoing", epoch=32_766)
    answer = desk.end(7, 32_766, level=2)
    fresh = desk.fresh
    assert (answer.code, answer.producer_id, answer.epoch) == (0, fresh, 0)
    assert desk.told() == ("PrepareCommit", 7, 32_767)
    assert desk.stored().next_producer_id == fresh
    desk.reload()
    assert (desk.sent[-1].producer_id, desk.sent[-1].epoch) == (7, 32_767)
    desk.write_markers()
    assert desk.told() == ("CompleteCommit", fresh, 0)
    assert (desk.stored().previous_producer_id, desk.stored().next_producer_id) == (7, -1)
    again = desk.end(7, 32_766, level=2)
    assert (again.code, again.producer_id, again.epoch) == (0, fresh, 0)
    assert desk.end(7, 32_766, False, level=2).code == 48
    assert desk.end(7, 32_765, level=2).code == 49


def test_a_transaction_that_times_out_at_the_last_epoch_asks_for_a_producer_id() -> None:
    desk = in_state("Ongoing", epoch=32_766)
    desk.wait(TIMEOUT_MS + 5_000)
    assert desk.told() == ("Ongoing", 7, 32_766)
    assert ProducerIdWanted("A") in desk.notices
    desk.reload()
    desk.step(ProducerIdDrawn("A", 54))  # An earlier life has asked for it.
    assert desk.told() == ("Ongoing", 7, 32_766)
    desk.wait(10_000)
    desk.step(ProducerIdDrawn("A", 55))
    assert desk.told() == ("PrepareAbort", 7, 32_767)
    desk.write_markers()
    assert desk.told() == ("CompleteAbort", 55, 0)
    assert desk.end(7, 32_766, False, level=2).producer_id == 55


# Recovery
# --------


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_after_a_load_an_id_without_a_transaction_is_left_alone(state: str) -> None:
    desk = in_state(state)
    assert (desk.sent, len(desk.log)) == ([], 1)


@pytest.mark.parametrize(("state", "commit"), [("PrepareCommit", True), ("PrepareAbort", False)])
def test_after_a_load_a_decided_transaction_gets_all_its_markers_again(state: str, commit: bool) -> None:
    desk = in_state(state)
    assert [each.commit for each in desk.sent] == [commit]
    desk.reload()
    assert desk.sent[-1].partitions == (("t", 0), ("t", 1))
    assert desk.sent[-1].coordinator_epoch == desk.life
    desk.write_markers()
    assert desk.told()[0] == state.replace("Prepare", "Complete")


def test_an_end_whose_answer_was_lost_in_a_crash_is_told_by_its_epoch() -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5, level=2)
    desk.write_markers()
    desk.reload()
    again = desk.end(7, 5, level=2)
    assert (again.code, again.producer_id, again.epoch) == (0, 7, 6)


def test_an_end_that_a_power_cut_took_back_is_decided_when_it_comes_again() -> None:
    desk = in_state("Ongoing")
    desk.end(7, 5, level=2)
    del desk.log[1:]
    desk.reload()
    assert desk.told() == ("Ongoing", 7, 5)
    assert desk.end(7, 5, level=2).epoch == 6


# Explanations
# ------------


def test_the_last_ends_are_remembered_with_their_cause() -> None:
    desk = in_state("Ongoing")
    client = RequestOrigin("10.0.0.1", "apache-kafka-java 4.1.1", "billing")
    desk.end(7, 5, level=2, client=client)
    desk.write_markers()
    desk.add(7, 6, level=2)
    desk.wait(TIMEOUT_MS)
    desk.write_markers()
    ends = desk.request(DescribeTransaction, "A").ends
    assert [(end.committed, end.decision.cause, end.decision.by, end.partitions) for end in ends] == [
        (False, EndCause.TIMED_OUT, NO_ORIGIN, 1),
        (True, EndCause.CLIENT, client, 2),
    ]
    assert [(end.decision.epoch, end.marker_epoch, end.decision.of) for end in ends] == [(6, 7, client), (5, 6, client)]
    assert ends[0].decided_ms - ends[0].started_ms == TIMEOUT_MS
    noted = [notice for notice in desk.notices if isinstance(notice, AbortNoted)]
    assert [(each.decision.cause, each.decision.epoch, each.open_ms, each.partitions) for each in noted] == [
        (EndCause.TIMED_OUT, 6, TIMEOUT_MS, (("t", 0),))
    ]


def test_what_is_decided_is_described_with_who_did_it_and_what_it_waits_for() -> None:
    desk = Desk()
    first, second = RequestOrigin("10.0.0.1"), RequestOrigin("10.0.0.2")
    given = desk.init(client=first)
    desk.add(given.producer_id, given.epoch, ("t", 0), ("t", 1))
    desk.init(client=second)
    told = desk.request(DescribeTransaction, "A")
    assert (told.state, told.client, told.unmarked, told.unmarked_count) == (
        "PrepareAbort",
        first,
        (("t", 0), ("t", 1)),
        2,
    )
    assert (told.decision.cause, told.decision.by, told.decision.of) == (EndCause.FENCED, second, first)
    desk.write_markers()
    told = desk.request(DescribeTransaction, "A")
    assert (told.state, told.client, told.decision, told.unmarked_count) == ("Empty", second, None, 0)


def test_an_end_knows_for_how_long_the_node_stood_still_meanwhile() -> None:
    desk = in_state("Empty")
    desk.step(TransactionsStoodStill(7_000))
    desk.add(7, 5)
    desk.step(TransactionsStoodStill(3_000))
    desk.wait(TIMEOUT_MS + 3_000)
    desk.write_markers()
    (end,) = desk.request(DescribeTransaction, "A").ends
    assert (end.decision.stood_still_ms, end.decided_ms - end.started_ms) == (3_000, TIMEOUT_MS + 3_000)


def test_at_most_twenty_ends_are_remembered() -> None:
    desk = in_state("Empty")
    for epoch in range(5, 35):
        desk.end(7, epoch, False, level=2)
    assert len(desk.request(DescribeTransaction, "A").ends) == 20


def test_a_shard_remembers_the_latest_ends_of_all_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ENDS_OF_SHARD", 3)
    desk = in_state("Empty")
    for epoch in (5, 6):
        desk.end(7, epoch, False, level=2)
    other = desk.init("B")
    for epoch in range(other.epoch, other.epoch + 2):
        desk.end(other.producer_id, epoch, False, level=2, name="B")
    assert [end.marker_epoch for end in desk.request(DescribeTransaction, "A").ends] == [7]
    assert len(desk.request(DescribeTransaction, "B").ends) == 2


@pytest.mark.parametrize("after", [state for state in TransactionState if state not in MOVES])
def test_states_that_are_never_written_follow_none(after: TransactionState) -> None:
    with pytest.raises(IllegalMove, match="cannot follow Ongoing"):
        check_move("A", TransactionState.ONGOING, after)


def test_an_illegal_move_is_a_bug() -> None:
    with pytest.raises(IllegalMove, match="CompleteCommit cannot follow Ongoing"):
        check_move("A", TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT)
    with pytest.raises(IllegalMove, match="Ongoing cannot follow a new id"):
        check_move("A", None, TransactionState.ONGOING)
