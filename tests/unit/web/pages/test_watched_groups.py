"""What the page shows of groups that a Kafka coordinates, and what it leaves out."""

import asyncio
from dataclasses import replace

import pytest
from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.read_model.group_mapper import map_lags
from muster.coordinator.observability.read_model.groups import GroupDescription
from muster.coordinator.observability.views.groups import offset_row
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.observability.views.sentences import describe_certainty, sentence
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import PartitionMove, Rebalance
from muster.coordinator.runtime.node_status import Condition
from muster.coordinator.web.http.node_port import NOBODY, HttpCaller, NodeFacts, NodeHealth
from muster.coordinator.web.pages.group_view import SampledFigures, make_group_view
from muster.coordinator.web.pages.page_data import GroupPageData
from muster.workshop.bench.web_costs import LARGE, StandInNode, fetch_page, make_app

KAFKA = "the Kafka at b1:9092"
READING = "__consumer_offsets-7 is being read: 40% of 900 records"


class WatchingNode(StandInNode):
    """Its groups are those of a Kafka. excuse: why it cannot answer yet."""

    def __init__(self, excuse: str = "") -> None:
        super().__init__(4, 12, 2)
        self.large.watched = KAFKA
        self.excuse = excuse

    def node(self) -> NodeFacts:
        return replace(super().node(), watched=KAFKA)

    def health(self) -> NodeHealth:
        said = (Condition("watched-reading", f"5 of 50 partitions read: {self.excuse}", 1, 1),) if self.excuse else ()
        return NodeHealth(True, False, (), said)

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        if method == "DescribeGroups" and self.excuse:
            group = pb.DescribedGroup(group_id=LARGE, error_message=self.excuse)
            group.error_code = pb.DescribedGroup(error_code=14).error_code
            return pb.DescribeGroupsResponse(groups=[group])
        return await super().call(method, request, by)


def body_of(node: StandInNode, path: str, status: int = 200) -> str:
    return asyncio.run(fetch_page(make_app(node), path, (status,))).decode()


def test_a_watched_group_has_a_badge_and_none_of_the_actions_that_need_a_coordinator() -> None:
    own, watched = (body_of(node, f"/groups/{LARGE}") for node in (StandInNode(4, 12, 2), WatchingNode()))
    for act in ("remove", "freeze", "deploy", "drain", "pin", "canary", "reset", "delete", "set"):
        assert f'id="act-{act}"' in own
    assert 'id="act-' not in watched
    assert "watched: the Kafka at b1:9092 coordinates it" in watched
    assert "muster engine adopt large" in watched
    assert "docs/over-your-kafka.md" in watched
    assert "watched" not in own
    assert 'id="what-if"' in watched, "a plan can be made of what is read"
    assert "Heard of" in own
    assert "Heard of" not in watched, "heartbeats are in no record"


def test_the_list_says_whose_groups_these_are() -> None:
    assert "watched: the Kafka at b1:9092 coordinates them" in body_of(WatchingNode(), "/")
    assert "watched" not in body_of(StandInNode(4, 12, 2), "/")


def test_an_action_of_an_old_page_is_refused_with_what_to_do() -> None:
    refused = body_of(WatchingNode(), f"/groups/{LARGE}/act?act=freeze", 409)
    assert "watched: the Kafka at b1:9092 coordinates it, so nothing can be changed here" in refused
    assert "muster engine adopt" in refused


def test_while_records_are_read_the_page_shows_how_far_it_is_and_asks_again() -> None:
    assert READING in body_of(WatchingNode(READING), "/")
    group = body_of(WatchingNode(READING), f"/groups/{LARGE}", 503)
    assert "Not read yet" in group
    assert READING in group
    assert 'data-again="3"' in group
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name not in group


# Sentences
# ---------


@pytest.mark.parametrize(
    ("certainty", "told", "known"),
    [
        (ledger_pb2.CERTAINTY_RECORDED, "b left; its 1 partition went to a.", ""),
        (ledger_pb2.CERTAINTY_SAID, "b left; its 1 partition went to a.", "the broker says: it committed as it went"),
        (
            ledger_pb2.CERTAINTY_INFERRED,
            "Probably b left; its 1 partition went to a.",
            "probably: it committed as it went",
        ),
        (
            ledger_pb2.CERTAINTY_UNKNOWN,
            "b left or stopped answering; its 1 partition went to a.",
            "unknown: it committed as it went",
        ),
    ],
)
def test_what_was_concluded_is_told_as_such(certainty: ledger_pb2.Certainty, told: str, known: str) -> None:
    entry = Rebalance(
        cause=ledger_pb2.REBALANCE_CAUSE_MEMBER_LEFT,
        outcome=ledger_pb2.REBALANCE_OUTCOME_COMPLETED,
        source=ledger_pb2.REBALANCE_SOURCE_WATCHED,
        culprit="b",
        detail="b left, or its session expired",
        evidence="it committed as it went",
        certainty=certainty,
        moves=[PartitionMove(topic="t", partition=0, source="b", target="a")],
    )
    assert sentence(entry, names_of([entry])) == told
    assert describe_certainty(entry, names_of([entry])) == known


def test_who_joined_first_may_be_inferred_and_that_it_joined_is_certain() -> None:
    entry = Rebalance(
        cause=ledger_pb2.REBALANCE_CAUSE_MEMBER_JOINED,
        outcome=ledger_pb2.REBALANCE_OUTCOME_COMPLETED,
        source=ledger_pb2.REBALANCE_SOURCE_WATCHED,
        certainty=ledger_pb2.CERTAINTY_INFERRED,
        culprit="a",
    )
    assert sentence(entry, names_of([entry])) == "a joined; nothing moved."


# Copies of segments
# ------------------


def test_of_segments_positions_are_shown_and_nothing_is_said_of_lag() -> None:
    answer = pb.OffsetFetchResponse()
    row = answer.topics.add(name="t").partitions.add(partition_index=0, committed_offset=7)
    assert map_lags([answer], {}) == {}, "there is no such partition"
    row.log_offsets_unknown = True
    (lag,) = map_lags([answer], {}).values()
    told = offset_row("g", lag, None)
    assert (told["current_offset"], told["log_end_offset"], told["lag"]) == (7, None, None)
    facts = GroupPageData(
        GroupDescription("g", "Stable", "consumer", "range", 1, "", "", ()),
        "classic",
        [],
        positions={lag.partition: lag},
    )
    view = make_group_view(facts, SampledFigures(), 1)
    assert view.lag is None
    assert "everything read" not in view.headline
