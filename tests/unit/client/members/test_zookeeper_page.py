"""The page on the ZooKeeper era says what the code does."""

import re
from pathlib import Path

import pytest

from muster.cli.workshop import choose_generations, join_row
from muster.client.config import ZOOKEEPER_ONLY, ConsumerConfig
from muster.client.members.zookeeper_member import MOVES, ZookeeperState
from muster.storage.settings_text import to_dotted
from muster.workshop.lab.comparison import measure_joins

PAGES = Path(__file__).parents[4] / "docs" / "protocol"
PAGE = (PAGES / "zookeeper.md").read_text(encoding="utf-8")
BEGIN, END = "<!-- moves: from muster.client.members.zookeeper_member.MOVES -->\n", "<!-- end of moves -->"


def moves_table() -> str:
    rows = [
        f"| {state.name} | {state.value} | {', '.join(to.name for to in ZookeeperState if to in MOVES[state])} |"
        for state in ZookeeperState
    ]
    return "\n".join(["| from | where it stands | to |", "|---|---|---|", *rows, ""])


def test_the_page_shows_the_legal_moves() -> None:
    shown = PAGE.partition(BEGIN)[2].partition(END)[0]
    assert shown == moves_table(), f"write this between the comments of zookeeper.md:\n{moves_table()}"


def test_the_page_tells_every_property_with_its_default() -> None:
    told = dict(re.findall(r"^\| `([a-z.]+)` \| ?(\w*) \|", PAGE, re.MULTILINE))
    assert {to_dotted(name) for name in ZOOKEEPER_ONLY} <= told.keys()
    for name in ZOOKEEPER_ONLY - {"rebalance_backoff_ms", "zookeeper_connect", "consumer_id", "dual_commit_enabled"}:
        assert told[to_dotted(name)] == str(ConsumerConfig.model_fields[name].default)


@pytest.mark.timeout(240)
def test_the_page_shows_what_a_join_costs() -> None:
    """The two that differ most; all four would take three times as long."""
    shown = [line.split() for line in PAGE.splitlines()]
    for costs in measure_joins((10, 50, 100), choose_generations(("zookeeper", "pushed"))):
        row = [str(value) for value in join_row(costs).values()]
        assert row in shown, f"the page is stale: paste what `muster lab join` prints; found {' '.join(row)}"


def test_the_way_up_names_what_there_is() -> None:
    way = (PAGES / "moving-up.md").read_text(encoding="utf-8")
    for anchor in re.findall(r"\]\((\w[\w-]*\.md)#([\w-]+)\)", way):
        titles = re.findall(r"^#+ (.+)$", (PAGES / anchor[0]).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor[1] in {title.lower().replace(" ", "-") for title in titles}
