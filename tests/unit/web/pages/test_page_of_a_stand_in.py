"""Whole pages, from a node's answers to HTML, without a node."""

import asyncio
from html.parser import HTMLParser

import pytest
from google.protobuf.message import Message

from muster.coordinator.config import load_settings
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1.ledger_pb2 import (
    REBALANCE_OUTCOME_POSITIONS_CHANGED,
    REBALANCE_OUTCOME_SETTINGS_CHANGED,
    PlanScore,
)
from muster.coordinator.web.app import make_app as whole
from muster.coordinator.web.http.node_port import NOBODY, HttpCaller, NodeHealth
from muster.workshop.bench.web_costs import LARGE, StandInNode, fetch_page, make_app

VOID = {"meta", "link", "input", "br", "img"}


class Nesting(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids.extend(value or "" for name, value in attrs if name == "id")
        assert not any(name in ("style", "onclick", "onload") for name, _ in attrs), tag
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed by itself, as SVG's are."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(path: str, members: int = 4, partitions: int = 10) -> str:
    body = asyncio.run(fetch_page(make_app(StandInNode(members, partitions, 5)), path)).decode()
    nesting = Nesting()
    nesting.feed(body)
    assert nesting.open == []
    assert len(nesting.ids) == len(set(nesting.ids)), "ids are there once"
    return body


def test_a_group_shows_its_map_its_last_moves_and_its_whole_ledger() -> None:
    body = shown(f"/groups/{LARGE}")
    assert body.count('<g class="cell ') >= 10
    assert "consumer-0 stopped answering" in body
    assert body.count("Permanent address of this rebalance") == 3
    assert 'data-events="/events?group=large&amp;group=&amp;since=' in body


def test_a_group_shows_committed_and_end_offset_lag_and_rates_of_each_partition() -> None:
    body = shown(f"/groups/{LARGE}", partitions=120)
    table = body.partition('id="positions"')[2].partition("</section>")[0]
    assert table.count("<tr>") == 51, "a page of them, below the head"
    for column in ("committed", "end", "lag", "written", "read", "owner"):
        assert table.count(f'data-h="{column}"') == 50
    assert "1 to 50 of 120 partitions" in table
    assert 'href="?positions=2#positions"' in table
    last = shown(f"/groups/{LARGE}?by=rate&positions=3", partitions=120)
    assert "101 to 120 of 120 partitions" in last
    assert 'href="?by=rate&amp;positions=2#positions"' in last


def test_what_the_doctor_finds_is_on_the_page_with_what_to_do() -> None:
    node = StandInNode(4, 12, 1)
    del node.large.members[1]
    body = asyncio.run(fetch_page(make_app(node), f"/groups/{LARGE}")).decode()
    assert "What stands out" in body
    assert "What to do" in body
    assert "muster doctor</code>; it takes too long" not in body


def test_what_shadows_would_have_done_stands_beside_what_was_done() -> None:
    node = StandInNode(4, 12, 2)
    assert "Shadows" not in asyncio.run(fetch_page(make_app(node), f"/groups/{LARGE}")).decode()
    node.explained.rebalances[0].shadows.extend(
        [PlanScore(assignor="range", moves=4, members=4), PlanScore(assignor="lag", failure="too slow", took_ms=1)]
    )
    body = asyncio.run(fetch_page(make_app(node), f"/groups/{LARGE}")).decode()
    assert f"the decision of rebalance {node.explained.rebalances[0].number}, made again" in body
    assert "too slow" in body


def test_a_group_too_large_for_the_doctor_on_a_page_is_said_to_be() -> None:
    body = shown(f"/groups/{LARGE}", members=3, partitions=2_001)
    assert "What stands out</h2>" not in body
    assert "muster doctor</code>; it takes too long" in body


def test_large_groups_have_a_bar_for_each_member() -> None:
    body = shown(f"/groups/{LARGE}", members=90, partitions=900)
    assert body.count("<li><b>consumer-") == 90
    assert "all 90 members" not in body


class Operated(StandInNode):
    """Its large group was changed by operators after its last rebalance, more than once."""

    def __init__(self, entries: int, groups: int = 2) -> None:
        super().__init__(4, 12, groups)
        newest = self.explained.rebalances[0]
        for number in range(1, entries + 1):
            entry = self.explained.rebalances.add(group_id=LARGE, number=newest.number + number)
            entry.started_at_ms = newest.started_at_ms + number
            odd = number % 2
            entry.outcome = REBALANCE_OUTCOME_SETTINGS_CHANGED if odd else REBALANCE_OUTCOME_POSITIONS_CHANGED
        newest_first = sorted(self.explained.rebalances, key=lambda entry: -entry.number)
        del self.explained.rebalances[:]
        self.explained.rebalances.extend(newest_first)

    def _explain(self, request: pb.ExplainGroupRequest) -> pb.ExplainGroupResponse:
        found = super()._explain(request)
        return pb.ExplainGroupResponse(rebalances=found.rebalances[: request.limit or None], stalls=found.stalls)


@pytest.mark.parametrize("entries", [1, 30])
@pytest.mark.parametrize("order", ["", "?sort=rebalance"])
def test_the_last_rebalance_of_a_group_is_none_of_what_operators_did_beside(entries: int, order: str) -> None:
    body = asyncio.run(fetch_page(make_app(Operated(entries)), f"/{order}")).decode()
    assert f'href="/groups/{LARGE}/rebalances/3"' in body
    assert "consumer-0 stopped answering" in body
    assert "An operator changed" not in body


def test_what_moved_last_is_none_of_what_operators_did_beside() -> None:
    node = Operated(1)
    for entry in node.explained.rebalances:
        del entry.moves[:]
    said = asyncio.run(fetch_page(make_app(node), f"/groups/{LARGE}")).decode().partition('class="said">')[2]
    assert said.startswith("consumer-0 stopped answering")


def test_of_a_large_group_some_members_are_listed_and_anybody_may_be_named() -> None:
    body = shown(f"/groups/{LARGE}", members=101, partitions=101)
    assert "all 101 members</a>" in body
    assert body.count("out after") + body.count('data-h="heard of"') == 50
    assert body.count('list="member-ids"') == 4, "to be removed, imagined away, drained, and to have a partition pinned"
    whole = shown(f"/groups/{LARGE}?members=all", members=101, partitions=101)
    assert whole.count('data-h="heard of"') == 101


def test_a_page_of_ten_thousand_partitions_has_air_below_its_limit() -> None:
    assert len(shown(f"/groups/{LARGE}", members=1_000, partitions=10_000)) <= 265_000, "300,000 are the limit"


def test_a_rebalance_keeps_its_address() -> None:
    body = shown(f"/groups/{LARGE}/rebalances/2")
    assert "Rebalance 2 of large" in body
    assert f'href="/groups/{LARGE}/rebalances/1"' in body
    assert f'href="/groups/{LARGE}/rebalances/3"' in body


class Loading(StandInNode):
    """Of which some shards are not loaded."""

    def health(self) -> NodeHealth:
        return NodeHealth(True, False, (3, 4, 5, 9), ())


@pytest.mark.parametrize("path", ["/", "/ledger"])
def test_groups_that_are_not_loaded_are_said_to_be_missing(path: str) -> None:
    """A list without them says that there are none: it is believed."""
    said = "shards 3-5,9</a> are missing here"
    assert said in asyncio.run(fetch_page(make_app(Loading(2, 4, 1)), path)).decode()
    assert "missing here" not in shown(path)


@pytest.mark.parametrize("path", ["/", "/ledger"])
def test_lists_have_a_line_for_each(path: str) -> None:
    assert shown(path).count("<tr>") + shown(path).count("<li><details") >= 5


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/groups/{LARGE}/rebalances/99", "the ledger has no rebalance 99"),
        (f"/groups/{LARGE}/nothing", "there is no such page of a group"),
        (f"/groups/{LARGE}/rebalances/x", "expected a number"),
    ],
)
def test_what_is_not_there_is_said_in_words(path: str, said: str) -> None:
    with pytest.raises(RuntimeError, match="answered 40"):
        shown(path)
    body = asyncio.run(fetch_page(make_app(StandInNode(2, 4, 1)), path, expected=(400, 404))).decode()
    assert said in body
    assert "<main" in body


def test_a_node_that_only_shows_offers_no_act_and_refuses_one() -> None:
    settings = {"http.listeners": "127.0.0.1:9291", "http.actions": "false"}
    app = whole(StandInNode(2, 4, 1), load_settings(None, settings))
    assert 'id="actions"' in shown(f"/groups/{LARGE}")
    assert 'id="actions"' not in asyncio.run(fetch_page(app, f"/groups/{LARGE}")).decode()
    refused = asyncio.run(fetch_page(app, f"/groups/{LARGE}/act", expected=(403,))).decode()
    assert "this node only shows (http.actions=false)" in refused


class Seen(HTMLParser):
    """What a reader sees or hears of a page, and what its forms send."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.values: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            (self.values if name == "value" else self.text).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_what_turns_writing_round_is_spelt_out_and_forms_keep_the_true_name() -> None:
    evil = "gpj\u202etxe\u0007"
    node = StandInNode(3, 6, 1)
    node.large.members[0].member_id = evil
    for entry in node.explained.rebalances:
        entry.culprit = entry.moves[0].target = evil
        entry.detail = f"{evil}\x1b[2J left"
    seen = Seen()
    app = make_app(node)
    seen.feed(asyncio.run(fetch_page(app, f"/groups/{LARGE}/rebalances/2")).decode())
    seen.feed(asyncio.run(fetch_page(app, f"/groups/{LARGE}")).decode())
    text = "".join(seen.text).replace("\n", "")
    assert text.isprintable()
    assert "gpj\\u202etxe\\x07" in text
    assert seen.values.count(evil) == 4, "to be removed, imagined away, drained, and to have a partition pinned"


def test_what_is_no_act_is_refused_in_words() -> None:
    body = asyncio.run(fetch_page(make_app(StandInNode(2, 4, 1)), f"/groups/{LARGE}/act", expected=(400,))).decode()
    assert "is not an act; expected remove, reset, delete, set, unset" in body


class OneOfThree(StandInNode):
    """A node of a cluster of which one is gone; it leads two shards."""

    def leads(self) -> frozenset[int]:
        return frozenset({3, 7})

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        if method != "DescribeCluster":
            return await super().call(method, request, by)
        answer = cluster_pb.DescribeClusterResponse(
            cluster_id="c1", controller_id=2, partition_count=1200, under_replicated_count=1100, heard_ms_ago=300
        )
        for number in (1, 2, 3):
            node = answer.nodes.add(node_id=number, host=f"node-{number}", port=9290, leads=number, holds=1200)
            node.state = cluster_pb.NODE_STATE_GONE if number == 3 else cluster_pb.NODE_STATE_LIVE
            if number != 3:
                node.endpoints.add(listener="HTTP", host=f"node-{number}", port=9291)
        answer.cut_off = self.cut_off
        return answer

    cut_off = ""


def test_a_node_of_a_cluster_shows_all_of_them_and_what_it_leads() -> None:
    body = shown_of(OneOfThree(4, 10, 5), "/nodes")
    assert '<a href="http://node-2:9291/nodes">node-2:9291</a>' in body
    assert "node-1:9291/nodes" not in body, "no link from a page to itself"
    assert [body.count(f'class="pill {kind}"') for kind in ("ok", "bad")] == [2, 1]
    assert "1,100 with a copy behind or gone" in body
    assert "of 50 lead here" in body
    assert (body.count('<g class="cell l0">'), body.count('<g class="cell ln">')) == (2, 48)
    assert "this node is not in the cluster" not in body


def test_one_that_is_cut_off_says_so_first() -> None:
    node = OneOfThree(4, 10, 5)
    node.cut_off = "this node is not in the cluster"
    body = shown_of(node, "/nodes")
    assert '<p class="notice bad">as of 0.3 s ago: this node is not in the cluster</p>' in body


def test_a_node_on_its_own_leads_all_and_knows_of_no_others() -> None:
    body = shown("/nodes")
    assert "all of them lead here" in body
    assert "All nodes" not in body


def shown_of(node: StandInNode, path: str) -> str:
    return asyncio.run(fetch_page(make_app(node), path)).decode()
