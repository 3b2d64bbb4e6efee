"""Advice on a page and in the API, without a node: each opens into its proof, and few are judged at a time."""

import asyncio
import time

import pytest

from muster.coordinator.web.api import reading
from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.api.reading import MOST_JUDGED, GroupAdviser
from muster.coordinator.web.http.node_port import NOBODY, HttpRefusal
from muster.workshop.bench.web_costs import LARGE, StandInNode
from tests.support.group_history import GroupHistory
from tests.support.web import get


def deployed_node() -> StandInNode:
    """A node whose large group was restarted member by member a moment ago."""
    history = GroupHistory("range")
    history.start("abcdef")
    for name in "abcdef":
        history.restart(name, 4_000)
        history.live(20_000)
    node, ago_ms = StandInNode(4, 12, 1), time.time_ns() // 1_000_000 - history.now_ms
    del node.explained.rebalances[:]
    for entry in reversed(history.entries()):
        entry.started_at_ms += ago_ms
        entry.ended_at_ms += ago_ms
        node.explained.rebalances.append(entry)
    return node


def test_each_advice_opens_into_its_setting_and_its_proof() -> None:
    page = get(deployed_node(), f"/groups/{LARGE}/advice")
    assert page.status_code == 200
    first = page.text.partition('<details id="advice-1">')[2].partition("</details>")[0]
    assert "Give members a group.instance.id: 6 restarts set off 12 of 13 rebalances" in first
    assert "group.instance.id=NAME" in first
    assert f'<a href="/groups/{LARGE}/rebalances/2">#2</a>' in first
    assert "13 rebalances in" in page.text


def test_a_group_without_a_habit_has_one_line() -> None:
    page = get(StandInNode(4, 12, 1), f"/groups/{LARGE}/advice").text
    assert "Nothing to change: no rebalance on record." in page


def test_the_page_of_a_group_loads_its_advice_once_it_is_shown() -> None:
    page = get(StandInNode(4, 12, 1), f"/groups/{LARGE}").text
    panel = page.partition('id="advice"')[2].partition("</section>")[0]
    assert f'hx-get="/groups/{LARGE}/advice"' in panel
    assert f'<a href="/groups/{LARGE}/advice">' in panel, "without a script as well"
    # What is asked for again at each change ends before it.
    assert page.index('id="live"') < page.index('</div>\n<section class="panel" id="advice"')


def test_programs_get_the_same() -> None:
    (found,) = get(deployed_node(), f"/api/v1/groups/{LARGE}/advice").json()
    assert found["advice"][0]["kind"] == "static-membership"
    assert found["nothing_to_change"] is None
    short = get(deployed_node(), f"/api/v1/groups/{LARGE}/advice?window_ms=1").json()
    assert short[0]["advice"] == []


def test_no_more_histories_are_judged_at_a_time_than_may_be() -> None:
    async def ask() -> int:
        adviser = GroupAdviser()
        asking = NodeQueries(StandInNode(4, 12, 1), NOBODY)
        answers = await asyncio.gather(
            *(adviser.advise(asking, LARGE) for _ in range(MOST_JUDGED + 3)), return_exceptions=True
        )
        refused = [each for each in answers if isinstance(each, HttpRefusal)]
        assert {(each.status, each.code) for each in refused} == {(503, "OVERLOADED")}
        await adviser.advise(asking, LARGE)  # a place is free again
        return len(refused)

    assert asyncio.run(ask()) == 3


def test_a_page_says_that_it_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.ADVISER, "_running", MOST_JUDGED)
    page = get(StandInNode(4, 12, 1), f"/groups/{LARGE}/advice")
    assert page.status_code == 200
    assert "The histories of 2 groups are being judged; try again shortly." in page.text
    assert get(StandInNode(4, 12, 1), f"/api/v1/groups/{LARGE}/advice").status_code == 503
