"""Fetch sessions (KIP-227): what the next request names, what the leader makes of it, and how both begin anew."""

import random
from itertools import count
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.replication import sessions as module
from muster.coordinator.replication.sessions import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    LAST_EPOCH,
    NO_SESSION,
    Asked,
    Fetch,
    Following,
    Opened,
    Place,
    Session,
    Sessions,
)
from muster.coordinator.replication.translate import fetch_request

TOPIC, OTHER = b"t" * 16, b"o" * 16


def at(offset: int) -> Asked:
    return Asked(3, offset, 2, 0, 1 << 20)


def request(fetch: Fetch, node: int = 2) -> Any:
    """Through its bytes, as it comes."""
    message = fetch_request("id", node, 77, fetch, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
    return decode_frame("FetchRequest", 15, b"".join(encode("FetchRequest", 15, message)))


def leader(slots: int = 3, evict_ms: int = 100) -> Sessions:
    return Sessions(slots, evict_ms, count(11).__next__)


def begun(sessions: Sessions, node: int = 2, now_ms: int = 0, *places: Place) -> Session:
    opened = sessions.take(request(Fetch(0, 0, dict.fromkeys(places, at(0)), []), node), now_ms)
    assert isinstance(opened, Opened)
    sessions.done(opened.session, now_ms)
    return opened.session


def test_a_full_request_names_all_and_the_next_ones_what_changed() -> None:
    follower, sessions = Following(), leader()
    for partition in range(3):
        follower.want((TOPIC, partition), at(0))
    first = follower.next()
    assert (first.session_id, first.epoch, len(first.named)) == (0, 0, 3)
    opened = sessions.take(request(first), 0)
    assert isinstance(opened, Opened)
    assert opened.anew
    assert follower.answered(0, opened.session.id)
    sessions.done(opened.session, 0)

    follower.want((TOPIC, 1), at(5))
    follower.want((TOPIC, 2), at(0))
    follower.want((OTHER, 0), at(9))
    follower.drop((TOPIC, 0))
    second = follower.next()
    assert second == Fetch(11, 1, {(TOPIC, 1): at(5), (OTHER, 0): at(9)}, [(TOPIC, 0)])
    again = sessions.take(request(second), 10)
    assert isinstance(again, Opened)
    assert not again.anew
    assert again.session is opened.session
    assert [part.place for part in again.named] == [(TOPIC, 1), (OTHER, 0)]
    assert [part.place for part in again.forgotten] == [(TOPIC, 0)]
    assert {place: part.offset for place, part in again.session.parts.items()} == {
        (TOPIC, 1): 5,
        (TOPIC, 2): 0,
        (OTHER, 0): 9,
    }
    assert follower.answered(0, again.session.id)
    assert follower.next() == Fetch(11, 2, {}, [])


def test_what_is_dropped_and_wanted_again_before_anybody_was_told_is_no_change() -> None:
    follower = Following()
    follower.want((TOPIC, 0), at(0))
    follower.next()
    follower.answered(0, 7)
    follower.drop((TOPIC, 0))
    follower.want((TOPIC, 0), at(0))
    follower.want((TOPIC, 1), at(0))
    follower.drop((TOPIC, 1))
    assert follower.next() == Fetch(7, 1, {}, [])


@pytest.mark.parametrize(("code", "closes"), [(FETCH_SESSION_ID_NOT_FOUND, 0), (INVALID_FETCH_SESSION_EPOCH, 7)])
def test_a_session_that_is_lost_begins_anew_with_all(code: int, closes: int) -> None:
    follower = Following()
    for partition in range(2):
        follower.want((TOPIC, partition), at(0))
    follower.next()
    follower.answered(0, 7)
    follower.want((TOPIC, 0), at(1))
    follower.drop((TOPIC, 1))
    follower.next()
    assert not follower.answered(code, 0)
    assert follower.begins
    assert follower.next() == Fetch(closes, 0, {(TOPIC, 0): at(1)}, [])


def test_an_answer_of_another_session_is_not_believed() -> None:
    follower = Following()
    follower.next()
    follower.answered(0, 7)
    follower.next()
    assert not follower.answered(0, 8)
    assert follower.begins


def test_after_a_broken_connection_nobody_knows_what_the_leader_counted() -> None:
    follower = Following()
    follower.want((TOPIC, 0), at(0))
    follower.next()
    follower.answered(0, 7)
    follower.next()
    follower.lost()
    assert follower.next() == Fetch(7, 0, {(TOPIC, 0): at(0)}, [])


def test_a_leader_without_room_for_a_session_is_asked_for_all_each_time() -> None:
    follower = Following()
    follower.want((TOPIC, 0), at(0))
    for _ in range(3):
        assert follower.next() == Fetch(0, 0, {(TOPIC, 0): at(0)}, [])
        assert follower.answered(0, 0)


def test_epochs_go_round_without_beginning_anew() -> None:
    follower = Following()
    follower.next()
    follower.answered(0, 7)
    follower._epoch = LAST_EPOCH
    assert follower.next().epoch == LAST_EPOCH
    follower.answered(0, 7)
    assert follower.next().epoch == 1


def test_the_leader_knows_a_session_by_its_id_node_and_epoch() -> None:
    sessions = leader()
    session = begun(sessions, 2, 0, (TOPIC, 0))
    unknown, wrong = FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH
    for fetch, node, code in (
        (Fetch(session.id + 1, 1, {}, []), 2, unknown),
        (Fetch(session.id, 1, {}, []), 3, unknown),
        (Fetch(session.id, 2, {}, []), 2, wrong),
        (Fetch(session.id, -7, {}, []), 2, wrong),
    ):
        assert sessions.take(request(fetch, node), 0) == code
    assert isinstance(sessions.take(request(Fetch(session.id, 1, {}, [])), 0), Opened), "refusals change nothing"


def test_two_requests_of_one_session_are_not_served_at_once() -> None:
    sessions = leader()
    session = begun(sessions)
    assert isinstance(sessions.take(request(Fetch(session.id, 1, {}, [])), 0), Opened)
    assert sessions.take(request(Fetch(session.id, 2, {}, [])), 0) == INVALID_FETCH_SESSION_EPOCH


def test_a_follower_has_one_session_and_a_new_one_takes_its_place() -> None:
    sessions = leader()
    old = begun(sessions, 2, 0, (TOPIC, 0))
    new = begun(sessions, 2, 0, (TOPIC, 1))
    assert len(sessions) == 1
    assert list(new.parts) == [(TOPIC, 1)]
    assert sessions.take(request(Fetch(old.id, 1, {}, [])), 0) == FETCH_SESSION_ID_NOT_FOUND


def test_a_request_that_is_about_this_once_ends_the_session() -> None:
    sessions = leader()
    session = begun(sessions)
    opened = sessions.take(request(Fetch(session.id, NO_SESSION, {(TOPIC, 0): at(4)}, [])), 0)
    assert isinstance(opened, Opened)
    assert (opened.anew, opened.session.id, len(sessions)) == (True, 0, 0)
    assert [part.offset for part in opened.named] == [4]


def test_where_all_places_are_taken_the_one_that_rested_longest_makes_room() -> None:
    sessions = leader(slots=2, evict_ms=100)
    first, second = begun(sessions, 1, 0), begun(sessions, 2, 50)
    assert begun(sessions, 3, 99).id == 0, "nobody has rested for long enough"
    assert begun(sessions, 3, 100).id != 0
    assert sessions.take(request(Fetch(first.id, 1, {}, []), 1), 100) == FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(sessions.take(request(Fetch(second.id, 1, {}, []), 2), 100), Opened)
    assert begun(sessions, 4, 199).id == 0, "the one waits for its answer, the other is young"


def test_a_session_has_at_most_as_many_partitions_as_a_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    sessions = leader()
    session = begun(sessions, 2, 0, (TOPIC, 0), (TOPIC, 1))
    more = Fetch(session.id, 1, {(OTHER, 0): at(0), (OTHER, 1): at(0)}, [])
    assert sessions.take(request(more), 0) == ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_what_had_records_is_read_last_the_next_time() -> None:
    session = begun(leader(), 2, 0, (TOPIC, 0), (TOPIC, 1), (TOPIC, 2))
    session.took_its_turn([session.parts[TOPIC, 0], session.parts[TOPIC, 1]])
    assert [partition for _, partition in session.parts] == [2, 0, 1]


def test_news_is_what_the_follower_was_not_told() -> None:
    session = begun(leader(), 2, 0, (TOPIC, 0))
    part = session.parts[TOPIC, 0]
    told = [part.is_news(code, mark, start) for code, mark, start in (
        (0, 5, 0), (0, 5, 0), (0, 6, 0), (0, 6, 1), (6, -1, -1), (6, -1, -1), (0, 6, 1), (0, 6, 1),
    )]  # fmt: skip
    assert told == [True, False, True, True, True, True, True, False]


@pytest.mark.parametrize("seed", range(30))
def test_both_sides_agree_whatever_changes_gets_lost_or_is_evicted(seed: int) -> None:
    """After each answer the leader's session has exactly what the follower wanted when it asked."""
    rng = random.Random(seed)
    follower, sessions = Following(), Sessions(2, 50, count(1).__next__)
    places = [(topic, partition) for topic in (TOPIC, OTHER) for partition in range(4)]
    incremental = 0
    for now_ms in range(0, 4_000, 10):
        for _ in range(rng.randrange(4)):
            place = rng.choice(places)
            if rng.random() < 0.7:
                follower.want(place, at(rng.randrange(3)))
            else:
                follower.drop(place)
        if rng.random() < 0.05:
            for stranger in (5, 6, 7):
                begun(sessions, stranger, now_ms + 60)
        wanted = dict(follower.wanted)
        fetch = follower.next()
        if rng.random() < 0.03:  # it never came
            follower.lost()
            continue
        opened = sessions.take(request(fetch), now_ms)
        if isinstance(opened, int):
            assert not follower.answered(opened, 0)
            continue
        assert {place: part.offset for place, part in opened.session.parts.items()} == {
            place: asked.offset for place, asked in wanted.items()
        }
        incremental += fetch.epoch > 0
        sessions.done(opened.session, now_ms)
        if rng.random() < 0.03:  # the answer never came
            follower.lost()
        else:
            assert follower.answered(0, opened.session.id)
    assert incremental > 100
