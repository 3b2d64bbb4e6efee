"""KB-T1, KB-T4: what a broker's answer says of topics, and what it does not."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership.topic_presence import (
    ASK_AGAIN_MS,
    NO_ID,
    TopicPresence,
    TopicQuestion,
    UpstreamTopic,
)

GONE_AFTER = 60_000
ORDERS, OTHER = UpstreamTopic(b"o" * 16, 4), UpstreamTopic(b"x" * 16, 1)
NEITHER = (3, 100)


def seen() -> TopicPresence:
    topics = TopicPresence(GONE_AFTER)
    assert topics.heard({"orders": ORDERS, "other": OTHER}, 0).created == {"orders": ORDERS, "other": OTHER}
    return topics


def left_out() -> tuple[TopicPresence, TopicQuestion]:
    topics = seen()
    assert not topics.heard({"other": OTHER}, 1_000)
    [question] = topics.questions(1_000)
    return topics, question


def test_t1_changes_are_told_once() -> None:
    topics = seen()
    assert not topics.heard({"orders": ORDERS, "other": OTHER}, 1_000)
    more = ORDERS._replace(partitions=6)
    assert topics.heard({"orders": more, "other": OTHER}, 2_000).grown == {"orders": more}
    assert not topics.heard({"orders": more, "other": OTHER}, 3_000)
    assert not topics.learn_some({"orders": ORDERS})
    assert topics.topics["orders"] == more


def test_t4_a_shorter_answer_takes_nothing_away() -> None:
    topics, question = left_out()
    assert topics.topics["orders"] == ORDERS
    assert topics.unseen(31_000) == {"orders": 30_000}
    assert question == TopicQuestion("orders", ORDERS.id, -1)


def test_t4_two_brokers_a_good_while_apart_have_to_know_neither_name_nor_id() -> None:
    topics, question = left_out()
    assert not topics.answered(question, 1, *NEITHER, 1_010)
    assert topics.wish() == 1_010 + GONE_AFTER
    assert topics.questions(1_009 + GONE_AFTER) == []
    [again] = topics.questions(1_010 + GONE_AFTER)
    assert again.besides == 1
    assert not topics.answered(again, 1, *NEITHER, 1_011 + GONE_AFTER)
    assert topics.answered(again, 2, *NEITHER, 1_012 + GONE_AFTER).gone == {"orders": ORDERS.id}
    assert topics.topics == {"other": OTHER}


def test_t4_too_early_does_not_count() -> None:
    topics, question = left_out()
    topics.answered(question, 1, *NEITHER, 1_010)
    assert not topics.answered(question, 2, *NEITHER, 1_009 + GONE_AFTER)


@pytest.mark.parametrize("codes", [(0, 100), (3, 0), (0, 0)])
def test_t4_who_knows_either_ends_the_doubt(codes: tuple[int, int]) -> None:
    topics, question = left_out()
    topics.answered(question, 1, *NEITHER, 1_010)
    topics.answered(question, 2, *codes, 2_000)
    assert not topics.answered(question, 2, *NEITHER, 2_000 + GONE_AFTER)
    assert "orders" in topics.topics
    topics.heard({"other": OTHER}, 3_000 + GONE_AFTER)
    assert topics.unseen(3_000 + GONE_AFTER) == {"orders": 0}


@pytest.mark.parametrize("codes", [(29, 29), (3, 29), (5, 100), (29, 100)])
def test_t4_another_error_says_nothing(codes: tuple[int, int]) -> None:
    topics, question = left_out()
    assert not topics.answered(question, 1, *codes, 1_010)
    assert [again.besides for again in topics.questions(1_000 + ASK_AGAIN_MS)] == [-1]


def test_t4_it_is_seen_again() -> None:
    topics, question = left_out()
    topics.answered(question, 1, *NEITHER, 1_010)
    assert not topics.heard({"orders": ORDERS, "other": OTHER}, 2_000)
    assert topics.unseen(2_000) == {}
    assert not topics.answered(question, 2, *NEITHER, 2_000 + GONE_AFTER)


def test_t4_the_same_name_with_another_id_is_another_topic() -> None:
    topics = seen()
    anew = UpstreamTopic(b"n" * 16, 2)
    change = topics.heard({"orders": anew, "other": OTHER}, 1_000)
    assert (change.gone, change.created) == ({"orders": ORDERS.id}, {"orders": anew})


def test_t4_a_broker_that_is_behind_brings_nothing_back() -> None:
    """Or the positions committed since would go with what it takes for another topic."""
    topics = seen()
    anew = UpstreamTopic(b"n" * 16, 2)
    topics.heard({"orders": anew, "other": OTHER}, 1_000)
    assert not topics.heard({"orders": ORDERS, "other": OTHER}, 2_000)
    assert topics.topics["orders"] == anew


def test_t4_a_question_about_what_has_changed_is_nobodys() -> None:
    topics, question = left_out()
    topics.learn_some({"orders": UpstreamTopic(b"n" * 16, 2)})
    assert not topics.answered(question, 1, *NEITHER, 2_000)
    assert topics.unseen(2_000) == {}


def test_t4_a_topic_of_positions_that_no_answer_tells_of_is_there_and_unseen() -> None:
    topics = seen()
    lost = UpstreamTopic(b"l" * 16, 3)
    assert topics.recalled({"lost": lost, "orders": ORDERS}, 1_000).created == {"lost": lost}
    assert topics.unseen(1_500) == {"lost": 500}
    [question] = topics.questions(1_500)
    topics.answered(question, 1, *NEITHER, 1_500)
    [again] = topics.questions(1_500 + GONE_AFTER)
    assert topics.answered(again, 2, *NEITHER, 1_500 + GONE_AFTER).gone == {"lost": lost.id}
    assert topics.recalled({"lost": lost}, 90_000).gone == {"lost": lost.id}, "it is known to be gone"


def test_t4_it_is_the_one_that_answers_tell_of_unless_its_positions_name_another() -> None:
    topics = seen()
    topics.recalled(
        {
            "nameless": UpstreamTopic(NO_ID, 2),
            "same": UpstreamTopic(b"s" * 16, 2),
            "other id": UpstreamTopic(b"i" * 16, 2),
        },
        0,
    )
    told = {name: UpstreamTopic(name[:1].encode() * 16, 4) for name in ("nameless", "same", "other id")}
    change = topics.learn_some(told)
    assert change.gone == {"other id": b"i" * 16}
    assert change.grown == {"nameless": told["nameless"], "same": told["same"]}
    assert topics.unseen(0) == {}
