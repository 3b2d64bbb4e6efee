"""What is concluded from the records of a KIP-848 group that another broker coordinates (docs/design/watch.md)."""

from muster.coordinator.core.model.records import TargetEpochStored
from muster.coordinator.core.model.types import Cause, Certainty, Outcome, RebalanceEntry, TopicChangeKind
from tests.support.watched_groups import GROUP, ConsumerStory, epoch, gone, has, target, wants

RECORDED, INFERRED, UNKNOWN = Certainty.RECORDED, Certainty.INFERRED, Certainty.UNKNOWN

BOTH = {"ann-1": "orders 0-2", "bob-1": "orders 3-5"}


def planned(number: int) -> TargetEpochStored:
    return TargetEpochStored(GROUP, number, 0)


def running(session_ms: int | None = 45_000, until_s: float = 100.0, **instances: str) -> ConsumerStory:
    """Two members that have committed each five seconds until then."""
    story = ConsumerStory(session_ms)
    story.start(10.0, BOTH, instances=instances)
    for share in BOTH.values():
        story.commits(share, 10.0, until_s)
    return story


def told(entries: list[RebalanceEntry]) -> list[tuple[Cause, str, Certainty]]:
    return [(each.cause, each.culprit_client_id, each.certainty) for each in entries]


def bob_is_gone(story: ConsumerStory, at_s: float) -> list[RebalanceEntry]:
    """Until ann has what was his."""
    entries = story.take(at_s, *gone("bob-1"), epoch(2))
    entries += story.take(at_s, target("ann-1", "orders 0-5"), planned(2))
    return entries + story.take(at_s + 0.3, has("ann-1", "orders 0-5", 2))


def test_a_member_joins_and_each_step_of_the_hand_over_is_measured() -> None:
    story = ConsumerStory()
    story.start(10.0, {"ann-1": "orders 0-5"})
    at_once = (wants("bob-1"), epoch(2), target("ann-1", "orders 0-2"), target("bob-1", "orders 3-5"), planned(2))
    assert not story.take(20.0, *at_once, has("bob-1", "", 2))
    assert not story.take(20.5, has("ann-1", "orders 0-2", 1, revoking="orders 3-5"))
    assert not story.take(21.0, has("ann-1", "orders 0-2", 2))
    (entry,) = story.take(21.7, has("bob-1", "orders 3-5", 2))
    assert told([entry]) == [(Cause.MEMBER_JOINED, "bob", RECORDED)]
    assert {(move.source, move.target, move.unowned_ms) for move in entry.moves} == {("ann-1", "bob-1", 700)}
    assert [(phase.name, phase.duration_ms) for phase in entry.phases] == [("assign", 0), ("reconcile", 1_700)]


def test_who_committed_until_it_went_has_left() -> None:
    assert told(bob_is_gone(running(), 100.1)) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]
    assert told(bob_is_gone(running(session_ms=None), 100.1)) == [(Cause.MEMBER_LEFT, "bob", INFERRED)]


def test_a_silence_as_long_as_the_session_is_its_end_from_the_last_commit_on() -> None:
    """A heartbeat is a sign of life, and a commit is none: it may be a little shorter than that."""
    (entry,) = bob_is_gone(running(), 142.0)
    assert told([entry]) == [(Cause.SESSION_EXPIRED, "bob", INFERRED)]
    assert {move.unowned_ms for move in entry.moves} == {42_300}


def test_where_the_broker_s_session_is_not_known_a_silence_tells_nothing() -> None:
    assert told(bob_is_gone(running(session_ms=None), 142.0)) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]


def test_who_did_not_poll_is_silent_for_that_and_its_session() -> None:
    assert told(bob_is_gone(running(), 446.0)) == [(Cause.POLL_TIMEOUT, "bob", INFERRED)]


def test_a_static_member_that_is_back_kept_what_it_had() -> None:
    story = running(**{"bob-1": "i-bob"})
    story.take(100.0, has("bob-1", "orders 3-5", -2))
    entries = story.take(104.0, *gone("bob-1"), wants("bob-2", instance="i-bob"), target("bob-2", "orders 3-5"))
    entries += story.take(104.0, has("bob-2", "orders 3-5", 0), has("bob-2", "orders 3-5", 1))
    assert told(entries) == [(Cause.STATIC_MEMBER_REPLACED, "bob", RECORDED)]
    assert entries[0].outcome is Outcome.MEMBER_CHANGED
    assert entries[0].incarnations[0].away_ms == 4_000
    assert not entries[0].moves


def test_after_that_the_next_epoch_is_about_what_came_with_it() -> None:
    story = running(**{"bob-1": "i-bob"})
    story.take(100.0, has("bob-1", "orders 3-5", -2))
    story.take(104.0, *gone("bob-1"), wants("bob-2", instance="i-bob"), target("bob-2", "orders 3-5"))
    story.take(104.0, has("bob-2", "orders 3-5", 0), has("bob-2", "orders 3-5", 1))
    story.take(110.0, wants("cat-1"), epoch(2), target("bob-2", "orders 3-4"), target("cat-1", "orders 5"), planned(2))
    story.take(110.0, has("ann-1", "orders 0-2", 2), has("bob-2", "orders 3-4", 2))
    (entry,) = story.take(110.4, has("cat-1", "orders 5", 2))
    assert told([entry]) == [(Cause.MEMBER_JOINED, "cat", RECORDED)]
    assert [(move.partition, move.source, move.target) for move in entry.moves] == [(5, "bob-2", "cat-1")]


def test_a_static_member_that_does_not_come_back_is_taken_out() -> None:
    story = running(**{"bob-1": "i-bob"})
    story.take(100.0, has("bob-1", "orders 3-5", -2))
    (entry,) = bob_is_gone(story, 145.0)
    assert told([entry]) == [(Cause.SESSION_EXPIRED, "bob", RECORDED)]
    assert {move.unowned_ms for move in entry.moves} == {45_300}


def test_who_may_have_expired_was_heard_of_a_session_before_or_has_just_left() -> None:
    story = ConsumerStory()
    story.start(10.0, BOTH)
    (entry,) = bob_is_gone(story, 145.0)
    assert told([entry]) == [(Cause.MEMBER_LEFT, "bob", UNKNOWN)]
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(300, 45_300)}
    assert (entry.unowned_at_least_partition_ms, entry.unowned_partition_ms) == (900, 135_900)


def test_whose_session_expired_was_silent_for_that_long_at_the_least() -> None:
    story = running()
    (entry,) = bob_is_gone(story, 146.0)
    assert told([entry]) == [(Cause.SESSION_EXPIRED, "bob", INFERRED)]
    assert {(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves} == {(45_300, 46_300)}


def test_steps_that_members_report_are_exact() -> None:
    story = running()
    story.take(110.0, wants("cat-1"), epoch(2), target("ann-1", "orders 0-2"), target("bob-1", "orders 3-4"))
    story.take(110.0, target("cat-1", "orders 5-5"), planned(2), has("ann-1", "orders 0-2", 2))
    story.take(111.0, has("bob-1", "orders 3-4", 2))
    (entry,) = story.take(112.5, has("cat-1", "orders 5-5", 2))
    assert [(move.unowned_at_least_ms, move.unowned_ms) for move in entry.moves] == [(None, 1_500)]
    assert entry.unowned_at_least_partition_ms is None


def test_an_epoch_that_comes_with_other_topics_tells_which() -> None:
    story = running()
    story.take(
        110.0, epoch(2, metadata_hash=8), target("ann-1", "orders 0-3"), target("bob-1", "orders 4-7"), planned(2)
    )
    story.take(110.5, has("ann-1", "orders 0-3", 2))
    (entry,) = story.take(111.0, has("bob-1", "orders 4-7", 2))
    assert told([entry]) == [(Cause.PARTITIONS_CHANGED, "", RECORDED)]
    assert [(each.topic, each.kind, each.before, each.after) for each in entry.topics] == [
        ("orders", TopicChangeKind.GREW, 6, 8)
    ]


def test_what_a_deleted_topic_had_goes_to_nobody_for_that_reason() -> None:
    story = running()
    story.take(110.0, epoch(2, metadata_hash=8), target("ann-1", ""), target("bob-1", ""), planned(2))
    story.take(110.5, has("ann-1", "", 2))
    (entry,) = story.take(111.0, has("bob-1", "", 2))
    assert [(each.kind, each.before, each.after) for each in entry.topics] == [(TopicChangeKind.DELETED, 6, 0)]
    assert {(move.target, move.why) for move in entry.moves} == {("", "its topic was deleted")}


def test_an_epoch_that_nothing_came_before_is_unknown() -> None:
    story = running()
    story.take(110.0, epoch(2), target("ann-1", "orders 0-1"), target("bob-1", "orders 2-5"), planned(2))
    entries = story.take(110.5, has("ann-1", "orders 0-1", 2), has("bob-1", "orders 2-5", 2))
    assert told(entries) == [(Cause.UNSPECIFIED, "", UNKNOWN)]


def test_an_epoch_that_is_overtaken_before_it_has_a_target_moves_nothing() -> None:
    """What it freed is free since then, and its reason stays."""
    story = running()
    story.take(142.0, *gone("bob-1"), epoch(2))
    (overtaken,) = story.take(143.0, wants("cat-1"), epoch(3))
    assert (overtaken.outcome, overtaken.moves) == (Outcome.SUPERSEDED, ())
    story.take(143.0, target("ann-1", "orders 0-2"), target("cat-1", "orders 3-5"), planned(3))
    story.take(143.0, has("ann-1", "orders 0-2", 3))
    (entry,) = story.take(143.5, has("cat-1", "orders 3-5", 3))
    assert told([entry]) == [(Cause.MEMBER_JOINED, "cat", RECORDED)]
    assert {(move.unowned_ms, move.why) for move in entry.moves} == {(43_500, "its owner's session expired")}


def test_where_all_read_one_topic_ids_are_of_that() -> None:
    story = ConsumerStory()
    story.history.names = {}
    story.start(10.0, BOTH)
    story.commits("orders 3-5", 10.0, 100.0)
    (entry,) = bob_is_gone(story, 100.1)
    assert {move.topic for move in entry.moves} == {"orders"}
