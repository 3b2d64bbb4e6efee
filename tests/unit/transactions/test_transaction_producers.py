"""Producer ids, epochs, fencing, timeouts, the order of connections, orphans, and what is asked about ids."""

import pytest

from muster.coordinator.transactions.effects import MarkerTrouble, OrphanVerdict
from muster.coordinator.transactions.events import (
    DescribeTransaction,
    ExpireIds,
    ForgetRequest,
    ListTransactions,
    OrphanFound,
    OrphansSearched,
    TerminateTransaction,
    TransactionsStoodStill,
    UnloadTransactions,
)
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored
from muster.coordinator.transactions.state import TransactionLimits
from tests.support.transactions import DEFAULTS, TIMEOUT_MS, Desk


def at_epoch(epoch: int, *, ongoing: bool = False, limits: TransactionLimits = DEFAULTS) -> Desk:
    """An id whose producer 7 has that epoch."""
    desk = Desk(limits)
    desk.log.append(TransactionStored("A", 7, epoch, TIMEOUT_MS, TransactionState.EMPTY, previous_producer_id=7))
    desk.reload()
    if ongoing:
        desk.add(7, epoch)
    return desk


# InitProducerId
# --------------


def test_a_new_id_gets_the_fresh_producer_id_and_epoch_0() -> None:
    desk = Desk()
    answer = desk.init()
    assert (answer.code, answer.producer_id, answer.epoch) == (0, desk.fresh, 0)
    assert desk.told() == ("Empty", desk.fresh, 0)


def test_a_new_instance_gets_the_next_epoch_of_the_same_producer_id() -> None:
    desk = at_epoch(4)
    answer = desk.init()
    assert (answer.producer_id, answer.epoch) == (7, 5)
    assert desk.init("A", 7, 4).code == 90


def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_again() -> None:
    desk = at_epoch(4)
    for _ in range(3):
        answer = desk.init("A", 7, 4)
        assert (answer.code, answer.producer_id, answer.epoch) == (0, 7, 5)
    assert desk.init("A", 7, 3).code == 90
    assert desk.init("A", 8, 5).code == 90
    desk.reload()  # The epoch before is in no record.
    assert desk.init("A", 7, 4).code == 90


def test_an_id_that_was_forgotten_takes_whoever_names_an_epoch() -> None:
    desk = Desk()
    answer = desk.init("A", 7, 4)
    assert (answer.code, answer.producer_id, answer.epoch) == (0, desk.fresh, 0)


@pytest.mark.parametrize(
    ("name", "given", "timeout_ms", "code"),
    [
        ("A", (7, -1), 1, 42),
        ("A", (-1, 0), 1, 42),
        ("", (-1, -1), 1, 42),
        ("é" * 16_384, (-1, -1), 1, 42),
        ("A", (-1, -1), 0, 50),
        ("A", (-1, -1), 900_001, 50),
        ("A", (-1, -1), 900_000, 0),
    ],
)
def test_what_can_never_be_right_is_refused(name: str, given: tuple[int, int], timeout_ms: int, code: int) -> None:
    assert Desk().init(name, *given, timeout_ms=timeout_ms).code == code


def test_the_open_transaction_is_aborted_before_a_new_instance_gets_its_epoch() -> None:
    desk = at_epoch(4, ongoing=True)
    assert desk.init() is None
    waiting = desk.requests
    assert desk.told() == ("PrepareAbort", 7, 5)
    desk.write_markers()
    answer = desk.answers[waiting]
    assert (answer.code, answer.epoch) == (0, 6)
    assert desk.end(7, 4, False, level=2).code == 90
    assert desk.end(7, 5, False, level=2).code == 90


def test_the_epoch_that_fences_is_given_to_no_producer() -> None:
    desk = at_epoch(4, ongoing=True)
    assert desk.init() is None
    desk.wait(100)
    assert desk.answers[desk.requests].code == 51
    desk.write_markers()
    assert desk.told() == ("CompleteAbort", 7, 5)
    assert desk.end(7, 4, False, level=2).code == 90
    assert desk.init("A", 7, 4).code == 90
    assert desk.init().epoch == 6


def test_a_transaction_is_fenced_once_however_many_new_instances_meet_it() -> None:
    """KAFKA-19367: the second one raised the epoch of the abort that was under way."""
    desk = at_epoch(4, ongoing=True)
    assert desk.init() is None
    assert desk.init() is None
    first, second = desk.requests - 1, desk.requests
    assert desk.told() == ("PrepareAbort", 7, 5)
    assert {(each.producer_id, each.epoch) for each in desk.sent} == {(7, 5)}
    desk.write_markers()
    assert [desk.answers[each].epoch for each in (first, second)] == [6, 7]
    aborted = [each for each in desk.log if isinstance(each, TransactionStored) and each.state.title == "PrepareAbort"]
    assert len(aborted) == 1


def test_a_fence_at_the_last_epoch_ends_the_transaction_and_the_producer_id() -> None:
    """KAFKA-20090: there is no epoch above 32767 to fence with, so the next abort could never be written."""
    desk = at_epoch(32_766, ongoing=True)
    assert desk.init() is None
    fresh = desk.fresh
    assert desk.told() == ("PrepareAbort", 7, 32_767)
    assert desk.init() is None, "it waits as the first one does"
    assert desk.told() == ("PrepareAbort", 7, 32_767)
    desk.reload()
    desk.write_markers()
    assert desk.told() == ("CompleteAbort", fresh, 0)
    assert desk.init().producer_id == fresh
    assert desk.end(7, 32_766, False, level=2).code in (49, 90)
    assert desk.add(7, 32_766).code in (49, 90)


def test_a_producer_that_asks_for_a_new_epoch_in_its_transaction_gets_the_raised_one() -> None:
    desk = at_epoch(4, ongoing=True)
    assert desk.init("A", 7, 4) is None
    waiting = desk.requests
    desk.write_markers()
    assert (desk.answers[waiting].code, desk.answers[waiting].epoch) == (0, 5)


def test_a_fenced_producer_does_not_abort_the_transaction_of_the_newer_one() -> None:
    desk = at_epoch(4)
    desk.init()
    desk.add(7, 5)
    assert desk.init("A", 7, 4).code == 90
    assert desk.told() == ("Ongoing", 7, 5)


def test_requests_that_wait_are_decided_in_their_order() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4, level=2)
    assert desk.add(7, 5, ("u", 0), level=2) is None
    first = desk.requests
    assert desk.init() is None
    second = desk.requests
    desk.write_markers()
    assert desk.answers[first].code == 0
    assert desk.told() == ("PrepareAbort", 7, 6)
    desk.write_markers()
    assert desk.answers[second].epoch == 7


def test_a_request_waits_no_longer_than_its_patience() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4)
    desk.init()
    first = desk.requests
    desk.wait(50)
    desk.init()
    second = desk.requests
    desk.wait(50)
    assert desk.answers[first].code == 51
    assert second not in desk.answers
    desk.wait(50)
    assert desk.answers[second].code == 51


def test_no_more_requests_wait_than_are_allowed() -> None:
    desk = at_epoch(4, ongoing=True, limits=TransactionLimits(max_waiting=2))
    assert [desk.init(), desk.init()] == [None, None]
    assert desk.init().code == 51


def test_a_request_whose_client_is_gone_waits_no_longer() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.init()
    desk.step(ForgetRequest(desk.requests))
    desk.write_markers()
    assert desk.answers.get(desk.requests) is None
    assert desk.told() == ("CompleteAbort", 7, 5)


def test_a_shard_that_goes_away_answers_who_waits() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.init()
    desk.step(UnloadTransactions())
    assert desk.answers[desk.requests].code == 16
    assert desk.shard.deadlines == {}


def test_after_the_last_epoch_a_new_instance_gets_a_fresh_producer_id() -> None:
    desk = at_epoch(32_765)
    assert (desk.init().producer_id, desk.told()[2]) == (7, 32_766)
    answer = desk.init()
    assert (answer.producer_id, answer.epoch) == (desk.fresh, 0)
    assert desk.stored().previous_producer_id == 7
    assert desk.init("A", 7, 32_766).code == 90  # It has been fenced, and is no repetition.


def test_a_producer_at_the_last_epoch_may_ask_again_for_its_fresh_id() -> None:
    desk = at_epoch(32_766)
    fresh = desk.init("A", 7, 32_766).producer_id
    again = desk.init("A", 7, 32_766)
    assert (again.code, again.producer_id, again.epoch) == (0, fresh, 0)


def test_there_are_no_more_ids_than_are_allowed() -> None:
    desk = Desk(TransactionLimits(max_ids=1))
    assert desk.init("A").code == 0
    assert desk.init("B").code == 89
    assert desk.init("A").code == 0


def test_an_operator_ends_a_transaction_and_keeps_the_timeout() -> None:
    desk = at_epoch(4, ongoing=True)
    assert desk.request(TerminateTransaction, "A", 50) is None
    waiting = desk.requests
    desk.write_markers()
    assert desk.answers[waiting].code == 0
    assert desk.told() == ("Empty", 7, 6)
    assert desk.stored().timeout_ms == TIMEOUT_MS
    assert desk.request(TerminateTransaction, "B", 50).code == 105


# Partitions
# ----------


def test_partitions_join_in_their_order_and_the_first_begins_the_transaction() -> None:
    desk = at_epoch(4)
    desk.wait(10)
    desk.add(7, 4, ("t", 3))
    desk.wait(10)
    desk.add(7, 4, ("a", 1), ("t", 0))
    assert desk.stored().partitions == {"t": (0, 3), "a": (1,)}
    assert (desk.stored().started_ms, desk.stored().updated_ms) == (1_010, 1_020)
    records = len(desk.log)
    assert desk.add(7, 4, ("a", 1)).code == 0
    assert len(desk.log) == records


def test_who_may_not_add_partitions() -> None:
    desk = at_epoch(4)
    assert desk.add(7, 4, name="B").code == 49
    assert desk.add(8, 4).code == 49
    assert desk.add(7, 3).code == 90
    assert desk.add(7, 5).code == 90
    assert desk.add(7, 4, name="").code == 42


def test_a_transaction_has_no_more_partitions_than_are_allowed() -> None:
    desk = at_epoch(4, limits=TransactionLimits(max_partitions=2))
    assert desk.add(7, 4, ("t", 0), ("t", 1)).code == 0
    assert desk.add(7, 4, ("t", 2)).code == 42
    assert desk.stored().size == 2
    assert desk.add(7, 4, ("t", 0), ("t", 1), ("t", 0)).code == 42, "too many are named, though all of them have joined"


def test_a_verification_tells_which_partitions_are_in_the_transaction() -> None:
    desk = at_epoch(4)
    assert desk.add(7, 4, ("t", 0), verify_only=True).partitions == {("t", 0): 120}
    desk.add(7, 4, ("t", 0))
    answer = desk.add(7, 4, ("t", 0), ("t", 1), verify_only=True)
    assert answer.partitions == {("t", 0): 0, ("t", 1): 120}
    assert desk.add(7, 3, verify_only=True).code == 90
    assert desk.add(8, 4, verify_only=True).code == 49
    desk.end(7, 4)
    desk.write_markers()
    assert desk.add(7, 4, ("t", 0), verify_only=True).partitions == {("t", 0): 120}


# Time
# ----


def test_a_transaction_that_is_open_too_long_is_aborted_with_the_next_epoch() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.wait(TIMEOUT_MS - 1)
    assert desk.told() == ("Ongoing", 7, 4)
    desk.wait(1)
    assert desk.told() == ("PrepareAbort", 7, 5)
    desk.write_markers()
    assert desk.end(7, 4, False, level=2).epoch == 5  # A client of level 2 takes its abort for a repetition.
    assert desk.end(7, 4, False).code == 90  # One of level 0 is refused,
    assert desk.add(7, 4).code == 90
    assert desk.init("A", 7, 4).epoch == 5  # and asks for the new epoch.


def test_nobody_times_out_who_could_not_be_heard() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.now_ms += 10 * TIMEOUT_MS
    desk.reload()
    desk.wait(9_999)
    assert desk.told() == ("Ongoing", 7, 4)
    desk.wait(1)
    assert desk.told() == ("PrepareAbort", 7, 5)


def test_a_short_timeout_begins_again_with_a_load() -> None:
    desk = Desk()
    desk.init("A", timeout_ms=3_000)
    desk.add(desk.fresh, 0)
    desk.now_ms += 60_000
    desk.reload()
    desk.wait(2_999)
    assert desk.told()[0] == "Ongoing"
    desk.wait(1)
    assert desk.told()[0] == "PrepareAbort"


def test_a_clock_that_was_set_back_makes_no_transaction_immortal() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.now_ms = 10
    desk.reload()
    desk.wait(TIMEOUT_MS)
    assert desk.told()[0] == "PrepareAbort"


def test_a_node_that_stood_still_gives_its_producers_that_time() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.step(TransactionsStoodStill(5_000))
    desk.wait(TIMEOUT_MS + 4_999)
    assert desk.told()[0] == "Ongoing"
    desk.wait(1)
    assert desk.told()[0] == "PrepareAbort"


def test_ids_that_nobody_uses_are_forgotten_a_slice_at_a_time() -> None:
    week_ms = 604_800_000
    desk = Desk(TransactionLimits(slice_ids=2))
    for name in "ABCDE":
        desk.init(name)
    desk.wait(week_ms - 3_600_000)
    producer = desk.init("C").producer_id
    desk.add(producer, 1, name="C")
    desk.now_ms += 3_600_000
    turns, chores = 0, list(desk.step(ExpireIds(tuple("ABCDE"))).chores)
    while chores:
        turns += 1
        chores = list(desk.step(chores.pop()).chores)
    assert turns == 2
    assert [record.transactional_id for record in desk.log if isinstance(record, TransactionExpired)] == list("ABDE")
    assert desk.end(100, 0, name="A").code == 49
    assert desk.init("A").epoch == 0


# The order of connections
# ------------------------


def test_a_request_that_its_own_repetition_has_overtaken_is_not_performed() -> None:
    desk = at_epoch(4)
    desk.add(7, 4, connection=1)
    assert desk.end(7, 4, connection=2).code == 0  # repeated on a new connection
    desk.write_markers()
    desk.add(7, 4, connection=2)
    late = desk.end(7, 4, connection=1)
    assert (late.code, late.close_connection) == (15, True)
    assert desk.told()[0] == "Ongoing"
    assert desk.add(7, 4, ("u", 0), connection=1).close_connection
    assert desk.init("A", 7, 4, connection=1).close_connection


def test_each_epoch_has_an_order_of_its_own() -> None:
    desk = at_epoch(4)
    desk.init(connection=9)
    assert not desk.init("A", 7, 5, connection=3).close_connection
    assert desk.init(connection=3).close_connection
    assert desk.init(connection=10).code == 0


def test_requests_of_nodes_and_of_level_2_partitions_have_no_order() -> None:
    desk = at_epoch(4)
    desk.add(7, 4, connection=5)
    assert desk.add(7, 4, verify_only=True, connection=1).code == 0
    assert desk.add(7, 4, ("u", 0), level=2, connection=1).code == 0
    assert desk.add(7, 4, ("v", 0)).code == 0


def test_the_order_can_be_switched_off() -> None:
    desk = at_epoch(4, limits=TransactionLimits(newest_connection=False))
    desk.add(7, 4, connection=5)
    assert desk.end(7, 4, connection=1).code == 0


def test_a_connection_older_than_the_load_is_closed() -> None:
    desk = at_epoch(4)
    desk.reload(newest_connection=6)
    assert desk.add(7, 4, connection=6).close_connection
    assert desk.init(connection=2).close_connection
    assert desk.add(7, 4, connection=7).code == 0


def test_connections_are_remembered_of_the_live_epochs_only() -> None:
    desk = Desk()
    desk.init(connection=1)
    for number in range(50):
        desk.init(connection=2 + number)
        desk.add(desk.stored().producer_id, desk.stored().epoch, connection=2 + number)
        desk.end(desk.stored().producer_id, desk.stored().epoch, connection=2 + number)
        desk.write_markers()
    assert len(desk.shard.state.ids["A"].connections) <= 4


# Orphans
# -------


def orphan(
    desk: Desk, epoch: int, producer_id: int = 7, place: tuple[str, int] = ("t", 5)
) -> tuple[OrphanVerdict, int]:
    answer = desk.request(OrphanFound, producer_id, epoch, place)
    return answer.verdict, answer.marker_epoch


def test_an_open_transaction_of_the_log_joins_the_id_s_present_one() -> None:
    desk = at_epoch(4)
    desk.reload(orphans=True)
    assert orphan(desk, 4) == (OrphanVerdict.TAKEN, -1)
    assert desk.told()[0] == "Ongoing"
    assert desk.stored().partitions == {"t": (5,)}
    assert orphan(desk, 4, place=("u", 0)) == (OrphanVerdict.TAKEN, -1)
    desk.step(OrphansSearched())
    desk.wait(TIMEOUT_MS)
    assert desk.sent[-1].partitions == (("t", 5), ("u", 0))


def test_a_shard_that_has_lost_nothing_takes_nothing_in() -> None:
    """Another shard is loaded: when this one is asked, the transaction that the log had open has been committed."""
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4)
    desk.write_markers()
    assert orphan(desk, 4, place=("t", 0)) == (OrphanVerdict.TAKEN, -1)
    assert desk.told() == ("CompleteCommit", 7, 4)


def test_an_open_transaction_of_an_older_epoch_hangs() -> None:
    desk = at_epoch(4)
    assert orphan(desk, 3) == (OrphanVerdict.HANGING, 4)
    assert desk.told()[0] == "Empty"


def test_a_producer_that_no_id_has_is_unknown() -> None:
    assert orphan(at_epoch(4), 4, producer_id=8) == (OrphanVerdict.UNKNOWN, -1)


@pytest.mark.parametrize(("level", "commit"), [(0, True), (2, True), (0, False), (2, False)])
def test_an_open_transaction_of_a_decided_one_gets_its_marker(level: int, commit: bool) -> None:
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4, commit, level=level)
    assert orphan(desk, 4) == (OrphanVerdict.TAKEN, -1)
    assert (desk.sent[-1].partitions, desk.sent[-1].commit) == ((("t", 5),), commit)
    assert orphan(desk, 3)[0] is (OrphanVerdict.HANGING if commit else OrphanVerdict.TAKEN)


@pytest.mark.parametrize("commit", [True, False])
def test_data_of_the_epoch_that_an_end_has_given_belongs_to_the_next_transaction(commit: bool) -> None:
    """A power cut took Complete and the next Ongoing, and left the data that was flushed with them."""
    desk = at_epoch(4, ongoing=True)
    assert desk.end(7, 4, commit, level=2).epoch == 5
    desk.reload()
    assert orphan(desk, 5) == (OrphanVerdict.TAKEN, -1)
    assert desk.sent[-1].partitions == (("t", 0),)
    desk.write_markers()
    assert desk.told() == ("Ongoing", 7, 5)
    assert desk.stored().partitions == {"t": (5,)}
    assert decided_states(desk)[-2:] == ["CompleteCommit" if commit else "CompleteAbort", "Ongoing"]


def test_markers_of_a_recovery_are_sent_once_the_orphans_are_told() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.add(7, 4, ("t", 1))
    desk.end(7, 4, level=2)
    sent = len(desk.sent)
    desk.reload(orphans=True)
    orphan(desk, 4, place=("t", 5))
    orphan(desk, 5, place=("t", 0))
    assert len(desk.sent) == sent
    desk.step(OrphansSearched())
    assert [each.partitions for each in desk.sent[sent:]] == [(("t", 1), ("t", 5))]
    desk.write_markers()
    assert (desk.told(), desk.stored().partitions) == (("Ongoing", 7, 5), {"t": (0,)})


def test_where_the_next_transaction_has_begun_the_marker_of_this_one_is_written() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4, level=2)
    desk.reload()
    assert orphan(desk, 5, place=("t", 0)) == (OrphanVerdict.TAKEN, -1)
    assert desk.told() == ("Ongoing", 7, 5)
    desk.write_markers(47)  # The log tells that marker from a later transaction by its epoch.
    assert not any(isinstance(notice, MarkerTrouble) for notice in desk.notices)
    assert desk.stored().partitions == {"t": (0,)}


def test_data_of_the_next_producer_id_belongs_to_the_next_transaction() -> None:
    desk = at_epoch(32_766, ongoing=True)
    fresh = desk.end(7, 32_766, level=2).producer_id
    desk.reload()
    assert orphan(desk, 0, producer_id=fresh) == (OrphanVerdict.TAKEN, -1)
    desk.write_markers()
    assert desk.told() == ("Ongoing", fresh, 0)


def test_a_request_that_waited_comes_behind_what_has_begun() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.end(7, 4, level=2)
    orphan(desk, 5)
    assert desk.init() is None
    desk.write_markers()
    assert desk.told() == ("PrepareAbort", 7, 6)
    assert desk.sent[-1].partitions == (("t", 5),)


def decided_states(desk: Desk) -> list[str]:
    return [record.state.title for record in desk.log if isinstance(record, TransactionStored)]


def test_requests_are_refused_as_loading_until_the_orphans_are_told() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.reload(orphans=True)
    assert desk.end(7, 4).code == 14
    assert desk.request(ListTransactions).code == 14
    assert orphan(desk, 4) == (OrphanVerdict.TAKEN, -1)
    desk.step(OrphansSearched())
    assert desk.end(7, 4).code == 0
    assert desk.sent[-1].partitions == (("t", 0), ("t", 5))


# Questions
# ---------


def test_an_id_is_described() -> None:
    desk = at_epoch(4, ongoing=True)
    told = desk.request(DescribeTransaction, "A")
    assert (told.code, told.state, told.producer_id, told.epoch) == (0, "Ongoing", 7, 4)
    assert (told.timeout_ms, told.started_ms, told.partitions) == (TIMEOUT_MS, 1_000, {"t": (0,)})
    assert desk.request(DescribeTransaction, "B").code == 105
    assert desk.request(DescribeTransaction, "").code == 42


def test_ids_are_listed_by_state_producer_and_age() -> None:
    desk = at_epoch(4, ongoing=True)
    desk.init("B")
    desk.wait(500)

    def listed(*values: object) -> list[str]:
        answer = desk.request(ListTransactions, *values)
        return [each.transactional_id for each in answer.transactions]

    assert listed() == ["A", "B"]
    assert listed(("Ongoing",)) == ["A"]
    assert listed((), (desk.stored("B").producer_id,)) == ["B"]
    assert listed((), (), 499) == ["A"]
    assert listed((), (), 500) == []
    answer = desk.request(ListTransactions, ("Ongoing", "Sleeping"))
    assert (answer.unknown_states, len(answer.transactions)) == (("Sleeping",), 1)
    assert desk.request(ListTransactions, ("Sleeping",)).transactions == ()


def test_questions_and_verifications_leave_no_record() -> None:
    shard = at_epoch(4).shard
    assert shard.writes_nothing(DescribeTransaction(1, "A"))
    assert not shard.writes_nothing(TerminateTransaction(1, "A", 9))
