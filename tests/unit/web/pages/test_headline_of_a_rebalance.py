"""The largest letters of a rebalance's page are the sentence of `muster groups explain`, incidents included."""

import asyncio
import re

from muster.coordinator.observability.views.incidents import find_incidents
from muster.coordinator.observability.views.member_names import names_of
from muster.workshop.bench.web_costs import LARGE, StandInNode, fetch_page, make_app


def heading(body: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", body)
    assert found is not None
    return found.group(1)


def test_the_headline_is_the_sentence_of_explain() -> None:
    node = StandInNode(4, 12, 2, 1_700_000_000_000)
    entries = list(node.explained.rebalances)
    incidents = find_incidents(entries, names_of(entries))
    numbers = {number: each.sentence for each in incidents for number in each.entries}
    assert len(numbers) == len(entries) > 1
    for number, sentence in numbers.items():
        body = asyncio.run(fetch_page(make_app(node), f"/groups/{LARGE}/rebalances/{number}")).decode()
        assert heading(body) == sentence
        assert f"Rebalance {number}" in body
