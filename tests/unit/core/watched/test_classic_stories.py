"""What is concluded from two records of a classic group that another broker coordinates (docs/design/watch.md)."""

import pytest

from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Outcome,
    RebalanceEntry,
    RebalanceSource,
    TopicChangeKind,
)
from tests.support.watched_groups import ClassicStory

Told = tuple[Cause, str, Certainty]

BOTH = {"ann-1": "orders 0-2", "bob-1": "orders 3-5"}
ANN = {"ann-1": "orders 0-5"}

RECORDED, INFERRED, UNKNOWN = Certainty.RECORDED, Certainty.INFERRED, Certainty.UNKNOWN


def told(entry: RebalanceEntry | None) -> list[Told]:
    """Cause, client id and certainty: of the entry, then of its further triggers."""
    assert entry is not None
    assert entry.source is RebalanceSource.WATCHED
    first = (entry.cause, entry.culprit_client_id, entry.certainty)
    return [first, *((each.cause, each.culprit_client_id, each.certainty) for each in entry.triggers)]


def running(story: ClassicStory, shares: dict[str, str] | None = None, until_s: float = 100.0) -> ClassicStory:
    """A group whose members have committed each five seconds until then."""
    shares = shares or BOTH
    story.generation(10.0, shares)
    for share in shares.values():
        story.commits(share, 10.0, until_s)
    return story


# Members that come and go
# ------------------------


def test_an_id_that_was_not_there_has_joined() -> None:
    story = running(ClassicStory(), ANN)
    assert told(story.generation(100.5, BOTH)) == [(Cause.MEMBER_JOINED, "bob", RECORDED)]


def test_who_committed_just_before_has_left() -> None:
    assert told(running(ClassicStory()).generation(100.1, ANN)) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]


def test_a_silence_shorter_than_the_session_is_a_goodbye() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 140.0)
    assert told(story.generation(144.0, ANN)) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]


def test_a_silence_as_long_as_the_session_is_its_end() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 146.0)
    entry = story.generation(146.3, ANN)
    assert told(entry) == [(Cause.SESSION_EXPIRED, "bob", INFERRED)]
    assert entry is not None
    assert "45.0 s" in entry.evidence
    assert "46.3 s" in entry.evidence


def test_whose_session_expired_had_no_reader_for_that_long_at_the_least() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 146.0)
    entry = story.generation(146.3, ANN)
    assert entry is not None
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(45_000, 46_300)}
    # The three that ann kept had no reader while it joined again, for as long as since its last commit at the most.
    assert (entry.unowned_at_least_partition_ms, entry.unowned_partition_ms) == (3 * 45_000, 3 * 46_300 + 3 * 300)


def test_of_an_owner_that_left_only_the_longest_is_known() -> None:
    entry = running(ClassicStory()).generation(100.1, ANN)
    assert entry is not None
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(0, 100)}


def test_what_a_cooperative_plan_withheld_is_free_from_its_record_on_at_the_most() -> None:
    story = running(ClassicStory(protocol="cooperative-sticky"), ANN)
    story.generation(100.5, {"ann-1": "orders 0-2", "bob-1": ""}, owned={"ann-1": "orders 0-5"})
    entry = story.generation(102.5, BOTH, owned={"ann-1": "orders 0-2"})
    assert entry is not None
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(0, 2_000)}


def test_what_stays_withheld_was_free_at_the_latest_when_its_owner_joined_without_it() -> None:
    story = running(ClassicStory(protocol="cooperative-sticky"), ANN)
    story.generation(100.5, {"ann-1": "orders 0-2", "bob-1": ""}, owned={"ann-1": "orders 0-5"})
    story.generation(102.5, {"ann-1": "orders 0-2", "bob-1": ""}, owned={"ann-1": "orders 0-2"})
    entry = story.generation(103.0, BOTH, owned={"ann-1": "orders 0-2"})
    assert entry is not None
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(500, 2_500)}


def test_a_silence_much_longer_than_the_session_tells_nothing() -> None:
    """There may have been nothing to commit: many clients commit only what has changed."""
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 200.0)
    assert told(story.generation(200.3, ANN)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_who_never_committed_has_left_or_expired() -> None:
    story = ClassicStory()
    story.generation(10.0, BOTH)
    assert told(story.generation(100.0, ANN)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_who_commits_more_rarely_than_its_session_lasts_has_left_or_expired() -> None:
    story = ClassicStory()
    story.generation(10.0, BOTH)
    story.commits("orders 3-5", 10.0, 190.0, every_s=60.0)
    assert told(story.generation(240.0, ANN)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_who_had_no_partitions_has_left_or_expired() -> None:
    story = running(ClassicStory(), {"ann-1": "orders 0-5", "bob-1": ""})
    assert told(story.generation(100.1, ANN)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_a_silence_as_long_as_the_poll_interval_is_that() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 400.0)
    assert told(story.generation(400.9, ANN)) == [(Cause.POLL_TIMEOUT, "bob", INFERRED)]


BOTH_TOPICS = {"ann-1": "orders 0-2, clicks 0-1", "bob-1": "orders 3-5, clicks 2-3"}


def waited_out(protocol: str = "range") -> ClassicStory:
    """Seen of Kafka's own client with automatic commits, when a topic was deleted: before it joins again it commits
    all that it has, and repeats that until max.poll.interval.ms is over. When ann's is over, the round begins; when
    bob's is, the coordinator has gone on without it."""
    story = running(ClassicStory(topics=("orders", "clicks"), poll_ms=20_000, protocol=protocol), BOTH_TOPICS)
    story.commits("orders 0-2", 101.0, 120.0, every_s=0.1)
    story.commits("orders 3-5", 101.0, 140.0, every_s=0.1)
    return story


def test_who_commits_until_the_rebalance_timeout_is_over_has_not_joined_in_time() -> None:
    entry = waited_out().generation(140.2, ANN)
    assert told(entry) == [(Cause.PARTITIONS_CHANGED, "", INFERRED), (Cause.REBALANCE_TIMEOUT, "bob", INFERRED)]
    assert entry is not None
    (late,) = entry.triggers
    assert "did not rejoin in time" in late.detail
    assert "its owner did not rejoin within the rebalance timeout" in {move.why for move in entry.moves}


def test_the_same_where_it_is_back_before_the_others_get_a_plan() -> None:
    story = waited_out()
    story.number += 1
    entry = story.generation(140.7, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"})
    assert told(entry) == [(Cause.PARTITIONS_CHANGED, "", INFERRED), (Cause.REBALANCE_TIMEOUT, "bob", INFERRED)]
    assert entry is not None
    assert "back under a new id (was bob-1)" in entry.triggers[0].detail


@pytest.mark.parametrize("seconds", [130.0, 160.0])
def test_a_round_of_another_length_was_not_waited_out(seconds: float) -> None:
    story = running(ClassicStory(poll_ms=20_000))
    story.commits("orders 0-2", 101.0, 120.0, every_s=0.1)
    story.commits("orders 3-5", 101.0, seconds - 0.2, every_s=0.1)
    assert told(story.generation(seconds, ANN)) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]


def test_of_a_cooperative_member_it_is_not_known_whether_it_left_or_was_late_for_a_deleted_topic() -> None:
    """Cooperative members commit on through a round, so nothing tells when it began."""
    entry = waited_out("cooperative-sticky").generation(140.2, ANN)
    assert told(entry) == [(Cause.PARTITIONS_CHANGED, "", INFERRED), (Cause.MEMBER_LEFT, "bob", UNKNOWN)]
    assert entry is not None
    assert "left, or did not rejoin in time" in entry.triggers[0].detail


def test_the_same_where_one_that_stayed_claims_the_deleted_topic_still() -> None:
    entry = waited_out("cooperative-sticky").generation(140.2, ANN, owned={"ann-1": "orders 0-2, clicks 0-1"})
    assert told(entry) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_who_stopped_polling_and_is_back_in_the_same_round_is_told_once() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 400.0)
    entry = story.generation(400.9, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"})
    assert told(entry) == [(Cause.POLL_TIMEOUT, "bob", INFERRED)]
    assert entry is not None
    assert entry.incarnations[0].previous_id == "bob-1"


def test_who_comes_back_naming_its_generation_after_a_long_silence_had_stopped_polling() -> None:
    """The silence alone told nothing: it was longer than any timeout."""
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 480.0)
    assert told(story.generation(480.2, ANN)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]
    entry = story.generation(500.0, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"}, claims={"bob-2": 1})
    assert told(entry) == [(Cause.POLL_TIMEOUT, "bob", INFERRED)]


def test_the_same_client_and_host_under_a_new_id_is_back() -> None:
    story = running(ClassicStory())
    story.generation(100.1, ANN)
    entry = story.generation(112.0, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"})
    assert told(entry) == [(Cause.MEMBER_RESTARTED, "bob", INFERRED)]
    assert entry is not None
    assert (entry.incarnations[0].how, entry.incarnations[0].away_ms) == ("left", 12_000)


def test_of_one_that_left_or_expired_it_is_not_said_how_it_went() -> None:
    story = ClassicStory()
    story.generation(10.0, BOTH)
    entry = story.generation(100.0, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"})
    assert told(entry) == [(Cause.MEMBER_RESTARTED, "bob", INFERRED)]
    assert entry is not None
    assert entry.incarnations[0].how == "gone"
    assert {move.why for move in entry.moves} == {"its owner is no longer in the group"}


def test_names_that_several_share_do_not_tell_who_is_back() -> None:
    """Clients without a client.id of their own, several on one host."""
    shares = {"app-1": "orders 0-1", "app-2": "orders 2-3", "app-3": "orders 4-5"}
    story = running(ClassicStory(), shares)
    story.generation(100.1, {"app-1": "orders 0-2", "app-2": "orders 3-5"})
    entry = story.generation(110.0, {"app-1": "orders 0-1", "app-2": "orders 2-3", "app-4": "orders 4-5"})
    assert told(entry) == [(Cause.MEMBER_JOINED, "app", RECORDED)]


def test_one_that_joined_while_another_one_s_session_ran_is_the_cause() -> None:
    story = running(ClassicStory())
    entry = story.generation(145.4, {"ann-1": "orders 0-2", "cat-1": "orders 3-5"})
    assert told(entry) == [(Cause.MEMBER_JOINED, "cat", INFERRED), (Cause.SESSION_EXPIRED, "bob", INFERRED)]


def test_one_that_left_before_another_one_joined_is_the_cause() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 101.0, 101.0)
    entry = story.generation(101.5, {"ann-1": "orders 0-2", "cat-1": "orders 3-5"})
    assert told(entry) == [(Cause.MEMBER_LEFT, "bob", INFERRED), (Cause.MEMBER_JOINED, "cat", RECORDED)]


def test_the_others_tell_that_a_slow_round_was_not_for_one_that_expired() -> None:
    """They stopped as soon as it was gone; that one of them took long to come is another story."""
    shares = {"ann-1": "orders 0-1", "bob-1": "orders 2-3", "cat-1": "orders 4-5"}
    story = running(ClassicStory(), shares)
    story.commits("orders 0-1", 100.4, 100.4)
    story.commits("orders 4-5", 105.0, 145.2)
    entry = story.generation(145.4, {"ann-1": "orders 0-2", "cat-1": "orders 3-5"})
    assert told(entry) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]


def test_all_went() -> None:
    story = running(ClassicStory(), ANN)
    entry = story.generation(100.1, {})
    assert told(entry) == [(Cause.MEMBER_LEFT, "ann", INFERRED)]
    assert entry is not None
    assert entry.outcome is Outcome.EMPTIED


def test_all_back_under_new_ids_at_once_is_nobody_s_doing() -> None:
    story = running(ClassicStory())
    entry = story.generation(150.0, {"ann-2": "orders 0-2", "bob-2": "orders 3-5"})
    assert told(entry) == [(Cause.UNSPECIFIED, "", UNKNOWN)]
    assert entry is not None
    assert len(entry.incarnations) == 2


def test_the_same_where_the_coordinator_moved() -> None:
    story = running(ClassicStory())
    entry = story.generation(150.0, {"ann-2": "orders 0-2", "bob-2": "orders 3-5"}, leader_epoch=1)
    assert told(entry) == [(Cause.COORDINATOR_FAILOVER, "", INFERRED)]


# Static members
# --------------

STATIC = {each: f"i-{each.partition('-')[0]}" for each in ("ann-1", "bob-1", "bob-2")}


def test_a_static_member_that_is_back_moves_nothing() -> None:
    story = running(ClassicStory(instances=STATIC))
    entry = story.generation(102.0, {"ann-1": "orders 0-2", "bob-2": "orders 3-5"}, again=True)
    assert told(entry) == [(Cause.STATIC_MEMBER_REPLACED, "bob", RECORDED)]
    assert entry is not None
    assert entry.outcome is Outcome.MEMBER_CHANGED
    assert not entry.moves
    assert entry.incarnations[0].away_ms == 2_000


def test_a_static_member_that_is_gone_has_expired_however_rarely_it_commits() -> None:
    story = ClassicStory(instances=STATIC)
    story.generation(10.0, BOTH)
    assert told(story.generation(100.0, ANN)) == [(Cause.SESSION_EXPIRED, "bob", INFERRED)]


def test_a_static_member_that_is_gone_at_once_was_removed_or_left() -> None:
    entry = running(ClassicStory(instances=STATIC)).generation(100.1, ANN)
    assert told(entry) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]
    assert entry is not None
    assert "removed" in entry.detail


# What members want
# -----------------


def test_who_gives_up_a_topic_that_others_read_has_changed_its_subscription() -> None:
    story = running(ClassicStory())
    wanted = {"bob-1": ("clicks",)}
    entry = story.generation(100.5, {"ann-1": "orders 0-5", "bob-1": "clicks 0-3"}, subscribed=wanted)
    assert told(entry) == [(Cause.SUBSCRIPTION_CHANGED, "bob", RECORDED)]
    assert entry is not None
    assert "+clicks" in entry.detail
    assert "-orders" in entry.detail


def test_who_names_another_topic_too_may_have_found_one_that_was_made() -> None:
    story = running(ClassicStory())
    wanted = {"bob-1": ("clicks", "orders")}
    entry = story.generation(100.5, {"ann-1": "orders 0-2", "bob-1": "orders 3-5, clicks 0-3"}, subscribed=wanted)
    assert told(entry) == [(Cause.SUBSCRIPTION_CHANGED, "bob", INFERRED)]


def test_more_partitions_in_shares_than_there_were_is_a_topic_that_grew() -> None:
    entry = running(ClassicStory()).generation(100.5, {"ann-1": "orders 0-3", "bob-1": "orders 4-7"})
    assert told(entry) == [(Cause.PARTITIONS_CHANGED, "", RECORDED)]
    assert entry is not None
    assert [(each.kind, each.before, each.after) for each in entry.topics] == [(TopicChangeKind.GREW, 6, 8)]


def test_a_topic_of_which_nobody_has_anything_any_more_is_taken_for_deleted() -> None:
    story = running(ClassicStory(topics=("orders", "clicks")), {"ann-1": "orders 0-5", "bob-1": "clicks 0-3"})
    entry = story.generation(100.5, {"ann-1": "orders 0-2", "bob-1": "orders 3-5"})
    assert told(entry) == [(Cause.PARTITIONS_CHANGED, "", INFERRED)]
    assert entry is not None
    assert [(each.topic, each.kind, each.before) for each in entry.topics] == [("clicks", TopicChangeKind.DELETED, 4)]
    assert {move.why for move in entry.moves if move.topic == "clicks"} == {"its topic was deleted"}


def test_a_topic_that_is_named_in_claims_alone_has_lost_no_partitions() -> None:
    """Seen of Java's cooperative members when a topic was deleted: one was back before it owned anything."""
    story = running(
        ClassicStory(topics=("orders", "clicks"), protocol="cooperative-sticky"),
        {"ann-1": "orders 0-2, clicks 0-2", "bob-1": "orders 3-5, clicks 3"},
    )
    shares = {"ann-1": "orders 0-2", "bob-2": "orders 3-5"}
    back = story.generation(100.5, shares, owned={"ann-1": "orders 0-2, clicks 0-2"})
    assert back is not None
    assert back.topics == ()
    after = story.generation(101.5, shares, owned={"ann-1": "orders 0-2", "bob-2": "orders 3-5"})
    assert after is not None
    assert [(each.topic, each.kind, each.before) for each in after.topics] == [("clicks", TopicChangeKind.DELETED, 4)]


def test_clients_that_name_only_topics_that_there_are_drop_a_deleted_one_one_after_the_other() -> None:
    story = running(ClassicStory(topics=("orders", "clicks")), {"ann-1": "orders 0-5", "bob-1": "clicks 0-3"})
    first = story.generation(100.5, BOTH, subscribed={"bob-1": ("orders",)})
    assert told(first) == [(Cause.PARTITIONS_CHANGED, "", INFERRED)]
    both = {"ann-1": ("orders",), "bob-1": ("orders",)}
    assert told(story.generation(101.5, BOTH, subscribed=both)) == [(Cause.PARTITIONS_CHANGED, "", INFERRED)]


def test_a_topic_that_all_name_from_now_on_was_made() -> None:
    story = running(ClassicStory())
    wanted = {"ann-1": ("clicks", "orders"), "bob-1": ("clicks", "orders")}
    shares = {"ann-1": "orders 0-2, clicks 0-1", "bob-1": "orders 3-5, clicks 2-3"}
    entry = story.generation(100.5, shares, subscribed=wanted)
    assert entry is not None
    assert entry.cause is Cause.PARTITIONS_CHANGED
    assert [(each.kind, each.after) for each in entry.topics] == [(TopicChangeKind.MADE, 4)]


@pytest.mark.parametrize(("seconds", "cause"), [(1.0, Cause.LEADER_REJOINED), (60.0, Cause.PARTITIONS_CHANGED)])
def test_a_leader_may_need_two_rounds_to_learn_of_a_topic_but_not_a_minute(seconds: float, cause: Cause) -> None:
    story = running(ClassicStory())
    wanted = {"bob-1": ("clicks", "orders")}
    story.generation(100.0, BOTH, subscribed=wanted)
    story.generation(100.5, BOTH, subscribed=wanted)
    shares = {"ann-1": "orders 0-2", "bob-1": "orders 3-5, clicks 0-3"}
    entry = story.generation(100.0 + seconds, shares, subscribed=wanted)
    assert entry is not None
    assert (entry.cause, entry.certainty) == (cause, INFERRED)


def test_another_protocol_is_an_assignor_rolled_out() -> None:
    entry = running(ClassicStory()).generation(100.5, BOTH, protocol="roundrobin")
    assert told(entry) == [(Cause.PROTOCOL_CHANGED, "", RECORDED)]


def test_nothing_that_differs_is_unknown() -> None:
    assert told(running(ClassicStory()).generation(100.5, BOTH)) == [(Cause.UNSPECIFIED, "", UNKNOWN)]


# Cooperative members
# -------------------


def test_what_a_cooperative_plan_withheld_is_given_up_in_the_next_round() -> None:
    story = running(ClassicStory(protocol="cooperative-sticky"), ANN)
    first = story.generation(
        100.5, {"ann-1": "orders 0-2", "bob-1": ""}, owned={"ann-1": "orders 0-5"}, claims={"ann-1": 1}
    )
    assert told(first) == [(Cause.MEMBER_JOINED, "bob", RECORDED)]
    second = story.generation(100.9, BOTH, owned={"ann-1": "orders 0-2"}, claims={"ann-1": 2, "bob-1": 2})
    assert told(second) == [(Cause.REVOCATION_FOLLOW_UP, "ann", RECORDED)]
    assert second is not None
    assert [(move.partition, move.target, move.unowned_ms) for move in second.moves] == [
        (3, "bob-1", 400),
        (4, "bob-1", 400),
        (5, "bob-1", 400),
    ]


# The beginning of a history, and what breaks it
# ----------------------------------------------


def test_the_first_record_tells_of_no_rebalance() -> None:
    assert ClassicStory().generation(10.0, BOTH) is None


def test_a_lower_generation_is_a_group_that_was_made_anew() -> None:
    story = running(ClassicStory())
    story.number = -1
    assert story.generation(100.0, ANN) is None


def test_a_group_that_was_forgotten_begins_anew() -> None:
    story = running(ClassicStory())
    story.history.take_deletion()
    assert story.generation(100.0, ANN) is None


def test_a_crash_is_without_an_owner_from_its_last_commit_on() -> None:
    story = running(ClassicStory())
    story.commits("orders 0-2", 105.0, 146.0)
    entry = story.generation(146.3, ANN)
    assert entry is not None
    assert {move.unowned_ms for move in entry.moves} == {46_300}
