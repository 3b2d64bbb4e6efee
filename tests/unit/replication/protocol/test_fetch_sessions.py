"""Fetch sessions (KIP-227) as the machines keep them: counts, sizes, limits, and topics made again (CL-F1)."""

from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol import fetch_sessions
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.fetch_sessions import COMING_FOR_MS, COMING_MS, GATHER_MS, NO_HURRY_MS
from muster.coordinator.replication.protocol.replica_fetch import (
    LAST_EPOCH,
    NO_SUCH_SESSION,
    WRONG_SESSION_EPOCH,
    FetchAnswer,
    FetchItem,
    ForgottenPartition,
)
from tests.unit.replication.protocol.test_node_replicas import (
    HERE,
    ID,
    OTHER_ID,
    PLACE,
    THERE,
    Pair,
    copy_once,
    orders,
    two,
)


def test_f1_epochs_go_round_without_beginning_anew() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    leader.replicas.serving._sessions[THERE].epoch = LAST_EPOCH - 1
    follower.replicas.fetchers[HERE]._session_epoch = LAST_EPOCH
    assert [copy_once(leader, follower).session_epoch for _ in range(3)] == [LAST_EPOCH, 1, 2]


def test_f1_a_session_is_known_by_its_id_node_and_epoch() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    [(_, request)] = follower.replicas.requests(0)
    codes = [
        leader.serves(asked)[0].code
        for asked in (
            request._replace(session=request.session + 1),
            request._replace(node=3),
            request._replace(session_epoch=2),
            request._replace(session_epoch=-1),
            request,
        )
    ]
    assert codes == [NO_SUCH_SESSION, NO_SUCH_SESSION, WRONG_SESSION_EPOCH, WRONG_SESSION_EPOCH, 0]


def test_f1_an_answer_has_no_more_than_was_asked_for() -> None:
    leader, follower = two()
    leader.writes(90)
    [(_, request)] = follower.replicas.requests(0)
    for part_bytes, answer_bytes, records in ((1 << 30, 1 << 30, 64), (1 << 19, 1 << 20, 32), (1 << 20, 1 << 18, 16)):
        [answer] = leader.serves(request._replace(part_bytes=part_bytes, answer_bytes=answer_bytes))
        assert [len(part.records) for part in answer.parts] == [records]


def test_f1_a_session_has_at_most_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSION_PARTITIONS", 2)
    leader, follower = two()
    copy_once(leader, follower)
    [(_, request)] = follower.replicas.requests(0)
    items = tuple(FetchItem(TopicPartition("orders", number), ID, 1, 0, -1, 0) for number in range(3))
    [answer] = leader.serves(request._replace(items=items[:2]))
    assert answer.code == 0
    [answer] = leader.serves(request._replace(items=items, session_epoch=request.session_epoch + 1))
    assert answer.code == ErrorCode.INVALID_REQUEST
    assert not leader.replicas.serving._sessions


def test_f1_what_is_forgotten_of_a_former_topic_takes_nothing_from_the_present_one() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    copied = leader.replicas.serving._sessions[THERE].copied
    [(_, request)] = follower.replicas.requests(0)
    leader.serves(request._replace(forgotten=(ForgottenPartition(PLACE, OTHER_ID),)))
    assert PLACE in copied
    leader.serves(request._replace(session_epoch=2, forgotten=(ForgottenPartition(PLACE, ID),)))
    assert PLACE not in copied


def test_l6_a_divergence_of_which_no_more_is_known_can_be_told_on_the_wire() -> None:
    """Kafka leaves a pair of (-1, -1) out of its message: the follower would have waited for ever."""
    leader, follower = two()
    [(_, request)] = follower.replicas.requests(0)
    items = tuple(item._replace(last_epoch=7, offset=0) for item in request.items)
    [answer] = leader.serves(request._replace(items=items))
    assert [(part.code, part.diverging) for part in answer.parts] == [(ErrorCode.OFFSET_OUT_OF_RANGE, None)]


def test_f1_an_answer_about_a_former_topic_of_the_name_is_not_believed() -> None:
    leader, follower = two()
    leader.writes(2)
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    parts = tuple(part._replace(topic_id=OTHER_ID) for part in answer.parts)
    follower.replicas.answered(HERE, request, answer._replace(parts=parts), 0)
    assert follower.log().end == 0


def test_l7_a_high_watermark_alone_waits_a_moment_for_records_to_go_along_with() -> None:
    """Under load it always goes along with them: a follower asks once for what a turn wrote, not twice."""
    leader, follower = two()
    leader.writes(2)
    leader.flushes()
    for _ in range(3):
        copy_once(leader, follower)
    answers: list[FetchAnswer] = []

    def asks(now_ms: int) -> None:
        [(_, request)] = follower.replicas.requests(now_ms)
        leader.replicas.fetch(request, answers.append, 10_000, now_ms)

    def gets(now_ms: int) -> FetchAnswer:
        leader.replicas.serving.wake(now_ms)
        answer = answers.pop()
        follower.replicas.answered(HERE, follower.replicas.fetchers[HERE]._under_way, answer, now_ms)
        follower.flushes(follower.replicas.unkept())
        return answer

    asks(0)
    leader.writes(1)
    leader.flushes()
    assert sum(len(part.records) for part in gets(0).parts) == 1
    asks(0)
    assert leader.log().high_watermark == 3
    leader.replicas.serving.wake(0)
    assert not answers, "the high watermark has moved, and that is all"
    assert leader.replicas.serving.next_ms(0) == NO_HURRY_MS
    leader.writes(1)
    leader.flushes()
    [part] = gets(1).parts
    assert (len(part.records), part.high_watermark) == (1, 3)
    asks(1)
    leader.replicas.serving.wake(NO_HURRY_MS)
    assert not answers
    [part] = gets(1 + NO_HURRY_MS).parts
    assert (len(part.records), part.high_watermark) == (0, 4)


class Loaded:
    """A follower that keeps up with a leader that writes while it copies."""

    def __init__(self) -> None:
        self.leader, self.follower = two()
        self.answers: list[FetchAnswer] = []
        for _ in range(3):
            copy_once(self.leader, self.follower)

    def asks(self, now_ms: int) -> None:
        [(_, request)] = self.follower.replicas.requests(now_ms)
        self.leader.replicas.fetch(request, self.answers.append, 10_000, now_ms)

    def gets(self, now_ms: int) -> int | None:
        """How many records; None while it waits."""
        self.leader.replicas.serving.wake(now_ms)
        if not self.answers:
            return None
        answer = self.answers.pop()
        self.follower.replicas.answered(HERE, self.follower.replicas.fetchers[HERE]._under_way, answer, now_ms)
        self.follower.flushes(self.follower.replicas.unkept())
        return sum(len(part.records) for part in answer.parts)


def test_l7_who_keeps_up_and_finds_records_gets_those_with_them_that_come_within_a_moment() -> None:
    """Half as many fetches, and flushes, for as many records: what a fetch commits lets producers send more."""
    loaded = Loaded()
    loaded.asks(0)
    loaded.leader.writes(1)
    assert loaded.gets(0) == 1, "who waits is told of records at once"
    loaded.leader.writes(1)
    loaded.asks(0)
    assert loaded.gets(0) is None
    loaded.leader.writes(2)
    assert loaded.gets(0) == 3
    loaded.leader.writes(1)
    loaded.asks(1)
    assert loaded.gets(GATHER_MS) is None
    assert loaded.leader.replicas.serving.next_ms(1) == 1 + GATHER_MS
    assert loaded.gets(1 + GATHER_MS) == 1, "nothing has come within that time"


def test_l7_who_is_behind_waits_for_nothing() -> None:
    loaded = Loaded()
    loaded.asks(0)
    loaded.leader.writes(90)
    assert loaded.gets(0) == 64, "a part has no room for more"
    loaded.asks(0)
    assert loaded.gets(0) == 26


def test_l7_what_is_left_for_later_is_not_looked_at_until_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node settles several times for each commit, and each follower would be looked at each time."""
    loaded, looks = Loaded(), 0
    look = fetch_sessions.FollowerSessions._news

    def counted(self: Any, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(self, *args)

    loaded.asks(0)
    loaded.leader.writes(1)
    loaded.leader.flushes()
    assert loaded.gets(0) == 1
    loaded.asks(0)
    loaded.leader.replicas.serving.wake(0)
    monkeypatch.setattr(fetch_sessions.FollowerSessions, "_news", counted)
    for now_ms in range(5):
        assert loaded.gets(now_ms) is None, "the high watermark alone waits"
    assert looks == 0
    loaded.leader.writes(1)
    assert loaded.gets(5) == 1
    assert looks == 1


BILLS = TopicPartition("bills", 0)


def and_bills(*pair: Pair) -> None:
    """They hear of a second topic, which the first of the two leads as well."""
    for each in pair:
        each.hears(replace(orders(HERE, 1, topic_id=OTHER_ID), name="bills"))


def parks(leader: Pair, follower: Pair, answers: list[FetchAnswer], now_ms: int = 0) -> list[TopicPartition]:
    """The follower asks, and may wait for half a second; what it names."""
    [(_, request)] = follower.replicas.requests(now_ms)
    leader.replicas.fetch(request, answers.append, 500, now_ms)
    if answers:
        follower.replicas.answered(HERE, request, answers.pop(), now_ms)
    return [item.place for item in request.items]


def test_who_waits_for_records_is_answered_when_there_is_more_to_ask_for() -> None:
    """A new leader's lease waits for its followers' word: with one that was parked for another topic, for half a
    second, in which nobody heard from the groups' coordinator."""
    leader, follower = two()
    copy_once(leader, follower)
    answers: list[FetchAnswer] = []
    [(_, request)] = follower.replicas.requests(0)
    leader.replicas.fetch(request, answers.append, 500, 0)
    and_bills(leader, follower)
    leader.replicas.serving.wake(0)
    follower.replicas.answered(HERE, request, answers.pop(), 0)
    assert parks(leader, follower, answers) == [BILLS]


def test_who_has_not_heard_yet_that_there_is_more_to_ask_for_does_not_wait_long_until_it_has() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    and_bills(leader)
    answers: list[FetchAnswer] = []
    assert parks(leader, follower, answers) == []
    assert leader.replicas.serving.next_ms(0) == COMING_MS
    leader.replicas.serving.wake(COMING_MS)
    follower.replicas.answered(HERE, follower.replicas.fetchers[HERE]._under_way, answers.pop(), COMING_MS)
    and_bills(follower)
    assert parks(leader, follower, answers, COMING_MS) == [BILLS]
    assert parks(leader, follower, answers, COMING_MS) == []
    assert leader.replicas.serving.next_ms(COMING_MS) == COMING_MS + 500


def test_nobody_is_expected_for_ever() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    and_bills(leader)
    answers: list[FetchAnswer] = []
    parks(leader, follower, answers, COMING_FOR_MS)
    assert leader.replicas.serving.next_ms(COMING_FOR_MS) == COMING_FOR_MS + 500


def test_who_is_not_in_sync_is_not_waited_for() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    leader.hears(replace(orders(HERE, 1, isr=(HERE,), topic_id=OTHER_ID), name="bills"))
    answers: list[FetchAnswer] = []
    parks(leader, follower, answers)
    assert leader.replicas.serving.next_ms(0) == 500
