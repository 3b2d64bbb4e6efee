"""The judge of the truth table accepts what is true and detects each kind of false report."""

from typing import Any

import pytest

from tests.truth.expectation import GONE, Expectation, TopicFact, back, expired, joined, left, topic_changed
from tests.truth.judge import HALF, RIGHT, SILENT, UNKNOWN, WRONG, Observation, judge
from tests.truth.situations.registry import SITUATIONS

NAMES = frozenset({"ann", "bob", "cat"})
ORDERS = [("orders", number) for number in range(2)]


def member(name: str, joined_ms: int = 100) -> dict[str, Any]:
    return {"member_id": f"{name}-1", "client_id": name, "joined_at_ms": 1_000 + joined_ms}


def entry(cause: str, who: str = "", **more: Any) -> dict[str, Any]:
    return {
        "number": 2,
        "cause": cause,
        "outcome": "COMPLETED",
        "culprit": f"{who}-1" if who else "",
        "culprit_client_id": who,
        "detail": f"{who} did it",
        "started_at_ms": 1_000,
        "members": [member("ann"), member("bob")],
        "phases": [],
        "moves": [],
        **more,
    }


def observation(before: dict[Any, str] | None = None, after: dict[Any, str] | None = None) -> Observation:
    return Observation(NAMES, {}, before or {}, after or before or {})


def verdict(
    story: list[dict[str, Any]], expected: Expectation, seen: Observation | None = None, text: str = "ann bob cat"
) -> str:
    return judge(story, text, expected, seen or observation()).word


def test_the_true_cause_by_the_true_member_is_right() -> None:
    assert verdict([entry("MEMBER_LEFT", "bob")], Expectation((left("bob"),))) == RIGHT


def test_a_cause_that_was_none_is_wrong() -> None:
    assert verdict([entry("SESSION_EXPIRED", "bob")], Expectation((left("bob"),))) == WRONG


def test_another_member_that_is_blamed_is_wrong() -> None:
    assert verdict([entry("MEMBER_LEFT", "bob"), entry("MEMBER_LEFT", "ann")], Expectation((left("bob"),))) == WRONG


def test_nothing_told_of_something_is_silent_and_of_nothing_is_right() -> None:
    assert verdict([], Expectation((left("bob"),))) == SILENT
    assert verdict([], Expectation((), quiet=True)) == RIGHT


def test_one_of_two_facts_is_half_and_a_further_trigger_counts() -> None:
    expected = Expectation((joined("cat"), expired("bob")))
    story = [entry("MEMBER_JOINED", "cat")]
    assert verdict(story, expected) == HALF
    triggers = [{"cause": "REBALANCE_CAUSE_SESSION_EXPIRED", "culprit": "bob-1", "culprit_client_id": "bob"}]
    assert verdict([{**story[0], "triggers": triggers}], expected) == RIGHT


def test_who_says_that_nothing_is_known_is_not_wrong() -> None:
    story = [entry("MEMBER_LEFT", "bob"), entry("LEADER_REJOINED", "ann", certainty="unknown")]
    assert verdict(story, Expectation((left("bob"),))) == UNKNOWN


def phase(took_ms: int, *waits: dict[str, Any]) -> dict[str, Any]:
    return {"name": "join", "duration_ms": took_ms, "waits": list(waits)}


def wait(who: str, came: str, after_ms: int) -> dict[str, Any]:
    return {"member_id": f"{who}-1", "client_id": who, "came": f"WAIT_END_{came}", "after_ms": after_ms}


@pytest.mark.parametrize(
    ("phases", "wanted"),
    [
        ([phase(5_000, wait("bob", "EXPIRED", 5_000))], RIGHT),
        ([phase(5_000)], HALF),
        ([phase(5_000, wait("bob", "EXPIRED", 5_000), wait("ann", "NEVER", 5_000))], WRONG),
        ([phase(5_000, wait("bob", "EXPIRED", 5_000), wait("ann", "JOINED", 4_900))], WRONG),
        ([{"name": "join", "duration_ms": 5_000, "waited_for": ["bob-1", "ann-1"]}], WRONG),
        ([{"name": "join", "duration_ms": 5_000, "waited_for": [{"member": "bob-1", "came": "expired"}]}], RIGHT),
    ],
)
def test_the_dead_are_waited_for_and_the_healthy_are_not(phases: list[dict[str, Any]], wanted: str) -> None:
    expected = Expectation((joined("cat"),), waited={"bob": GONE})
    assert verdict([entry("MEMBER_JOINED", "cat", phases=phases)], expected) == wanted


def test_a_change_of_a_topic_is_told_with_its_figures() -> None:
    expected = Expectation((topic_changed("orders"),), topics=(TopicFact("orders", "GREW", 2, 3),))
    grew = {"topic": "orders", "kind": "TOPIC_CHANGE_KIND_GREW", "before": 2, "after": 3}
    story = [entry("PARTITIONS_CHANGED", detail="orders grew from 2 to 3 partitions")]
    assert verdict(story, expected) == HALF
    assert verdict([{**story[0], "topics": [grew]}], expected) == RIGHT
    assert verdict([{**story[0], "topics": [{**grew, "before": 1}]}], expected) == WRONG


def test_moves_lead_from_who_read_before_to_who_reads_now() -> None:
    expected = Expectation((left("bob"),))
    seen = observation({ORDERS[0]: "ann", ORDERS[1]: "bob"}, dict.fromkeys(ORDERS, "ann"))
    move = {"topic": "orders", "partition": 1, "source": "bob-1", "target": "ann-1"}
    assert verdict([entry("MEMBER_LEFT", "bob", moves=[move])], expected, seen) == RIGHT
    assert verdict([entry("MEMBER_LEFT", "bob")], expected, seen) == HALF


def test_an_outage_of_a_group_that_had_no_owners_is_wrong() -> None:
    story = [entry("MEMBER_JOINED", "ann", unowned_partition_seconds=18.0)]
    assert verdict(story, Expectation((joined("ann"),), outage=False)) == WRONG


def test_a_member_has_its_client_s_name_in_the_text() -> None:
    expected = Expectation((back("bob"),))
    story = [entry("MEMBER_RESTARTED", "bob", culprit="x7Gq_random-id")]
    assert verdict(story, expected, text="bob restarted") == RIGHT
    assert verdict(story, expected, text="x7Gq_random restarted") == HALF


def test_there_are_situations_enough() -> None:
    assert len(SITUATIONS) >= 30


def late(who: str, partition: int) -> list[dict[str, Any]]:
    return [{"member_id": f"{who}-1", "topic": "orders", "partitions": [partition], "after_ms": 4_000}]


@pytest.mark.parametrize(
    ("found", "word"),
    [(late("bob", 1), RIGHT), ([], HALF), (late("ann", 0), WRONG), (late("bob", 0), WRONG)],
)
def test_who_reads_on_is_named_and_nobody_else(found: list[dict[str, Any]], word: str) -> None:
    expected = Expectation((left("bob"),), moves=False, reads_on="bob")
    seen = observation({ORDERS[0]: "ann", ORDERS[1]: "bob"})
    assert verdict([entry("MEMBER_LEFT", "bob", late_fetches=found)], expected, seen) == word
