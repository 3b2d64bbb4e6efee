"""What programs read of an entry: how its cause is known, for whom it waited, topics and incarnations."""

import json

from muster.coordinator.observability.views.ledger import entry_document, took_words
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import (
    REBALANCE_SOURCE_WATCHED,
    FurtherTrigger,
    Incarnation,
    LateFetch,
    Rebalance,
    RebalancePhase,
    TopicChange,
)
from tests.support.ledger_entries import BEGIN_MS, ledger_entry, member_id


def test_an_entry_says_how_its_cause_is_known_and_for_whom_it_waited() -> None:
    entry = ledger_entry(
        7,
        "MEMBER_LEFT",
        0,
        ["a"],
        by="b",
        waits={"b": ("EXPIRED", 5), "a": ("JOINED", 0.9)},
        certainty=ledger_pb2.CERTAINTY_INFERRED,
        evidence="its connection is still open",
        triggers=[
            FurtherTrigger(
                cause=ledger_pb2.REBALANCE_CAUSE_MEMBER_JOINED,
                culprit="c-1",
                culprit_client_id="c",
                detail="c joined",
                at_ms=BEGIN_MS,
                certainty=ledger_pb2.CERTAINTY_RECORDED,
            )
        ],
        topics=[
            TopicChange(
                topic="t", kind=ledger_pb2.TOPIC_CHANGE_KIND_GREW, before=3, after=5, at_ms=BEGIN_MS, by="User:admin"
            )
        ],
        incarnations=[Incarnation(member_id="a-2", previous_id="a-1", away_ms=3000, how="left")],
        late_fetches=[
            LateFetch(
                member_id="b-1", topic="t", partitions=[1], after_ms=4200, certainty=ledger_pb2.CERTAINTY_INFERRED
            )
        ],
    )
    found = json.loads(json.dumps(entry_document(entry)))
    assert (found["certainty"], found["evidence"]) == ("inferred", "its connection is still open")
    assert found["phases"] == [
        {
            "name": "join",
            "duration_ms": 100,
            "waited_for": [
                {"member": member_id("b"), "client_id": "b", "came": "expired", "after_ms": 5000},
                {"member": member_id("a"), "client_id": "a", "came": "joined", "after_ms": 900},
            ],
        }
    ]
    assert found["triggers"] == [
        {
            "cause": "MEMBER_JOINED",
            "culprit": "c-1",
            "culprit_client_id": "c",
            "culprit_client_host": "",
            "detail": "c joined",
            "at_ms": BEGIN_MS,
            "certainty": "recorded",
        }
    ]
    assert found["topics"] == [
        {"topic": "t", "kind": "grew", "before": 3, "after": 5, "at_ms": BEGIN_MS, "by": "User:admin"}
    ]
    assert found["incarnations"] == [{"member_id": "a-2", "previous_id": "a-1", "away_ms": 3000, "how": "left"}]
    assert found["late_fetches"] == [
        {"member_id": "b-1", "topic": "t", "partitions": [1], "after_ms": 4200, "certainty": "inferred"}
    ]


def test_an_entry_of_an_older_version_has_ids_and_says_that_no_more_is_known() -> None:
    old = Rebalance(number=1, phases=[RebalancePhase(name="join", duration_ms=4, waited_for=["a-1"])])
    found = entry_document(old)
    assert found["certainty"] is None
    assert found["phases"][0]["waited_for"] == [{"member": "a-1", "client_id": "", "came": None, "after_ms": None}]


def test_how_long_a_watched_rebalance_took_is_said_as_far_as_it_was_seen() -> None:
    own = Rebalance(number=1, started_at_ms=10, ended_at_ms=10)
    assert took_words(own) == "0 ms"
    unseen = Rebalance(number=1, started_at_ms=10, ended_at_ms=40, source=REBALANCE_SOURCE_WATCHED)
    assert took_words(unseen) == ""
    seen = Rebalance(source=REBALANCE_SOURCE_WATCHED, phases=[RebalancePhase(name="join", duration_ms=2_000)])
    assert took_words(seen) == "at least 2.00 s"
    recorded = Rebalance(source=REBALANCE_SOURCE_WATCHED, phases=[RebalancePhase(name="assign", duration_ms=4)])
    assert took_words(recorded) == "4 ms"
