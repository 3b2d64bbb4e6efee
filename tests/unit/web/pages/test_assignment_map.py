"""The assignment map: who owns what, what moved, what nobody has; and how much of it a page carries."""

import xml.etree.ElementTree as ElementTree

from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1.ledger_pb2 import PartitionMove, Rebalance
from muster.coordinator.web.pages.assignment_map import MOST_CELLS, PartitionOwnership, assignment_map

NOBODY = Names({})


def cells(markup: str) -> list[tuple[str, str]]:
    """(class, title) of each cell of some strips."""
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    found = []
    for group in root.iter("g"):
        title = group.find("title")
        assert title is not None
        assert title.text
        found.append((group.attrib["class"], title.text))
    return found


def test_each_partition_is_a_cell_of_its_owner_in_the_colour_of_its_lag() -> None:
    holdings = [
        PartitionOwnership("t", 0, "a", 0),
        PartitionOwnership("t", 1, "a", 5_000),
        PartitionOwnership("t", 2, "b", None),
    ]
    shown = assignment_map(holdings, ["a", "b"], NOBODY, None)
    assert not shown.bundled
    assert shown.unowned is None
    assert [row.name for row in shown.rows] == ["a", "b"]
    assert cells(shown.rows[0].topics[0].picture) == [("cell l0", "t 0: lag 0"), ("cell l3", "t 1: lag 5,000")]
    assert cells(shown.rows[1].topics[0].picture) == [("cell ln", "t 2: lag unknown")]


def test_moves_of_the_last_rebalance_are_marked_where_they_came_and_where_they_went() -> None:
    last = Rebalance(number=7, moves=[PartitionMove(topic="t", partition=1, source="a", target="b")])
    holdings = [PartitionOwnership("t", 0, "a", 0), PartitionOwnership("t", 1, "b", 0)]
    shown = assignment_map(holdings, ["a", "b"], NOBODY, last)
    gave, took = shown.rows
    assert gave.lost == "gave 1 to b"
    assert cells(gave.topics[0].picture)[1] == ("cell  gone", "t 1: went to b in rebalance 7")
    assert took.gained == "took 1 from a"
    assert cells(took.topics[0].picture) == [("cell l0 moved", "t 1: lag 0, came from a in rebalance 7")]


def test_a_partition_without_an_owner_stands_apart_and_loud() -> None:
    shown = assignment_map(
        [PartitionOwnership("t", 0, "", 9), PartitionOwnership("t", 1, "gone", 3)], ["a"], NOBODY, None
    )
    assert shown.unowned is not None
    assert shown.unowned.count == 2
    assert {kind for kind, _ in cells(shown.unowned.topics[0].picture)} == {"cell unowned"}
    assert shown.summary == "2 partitions of 1 topic, 1 member with 0; 1 of them idle."


def test_a_large_group_is_bundled_by_colour_with_the_longest_bar_for_who_has_most() -> None:
    holdings = [
        PartitionOwnership("t", number, f"m{number % 3}", 0 if number % 2 else 500) for number in range(MOST_CELLS + 3)
    ]
    shown = assignment_map(holdings, ["m0", "m1", "m2", "m3"], NOBODY, None)
    assert shown.bundled
    for row in shown.rows:
        root = ElementTree.fromstring(row.bundle)
        widths = [float(rect.attrib["width"].rstrip("%")) for rect in root.iter("rect")]
        assert abs(max(widths, default=0) - 100 * row.count / (MOST_CELLS // 3 + 1)) < 0.1


def test_ten_thousand_partitions_of_a_thousand_members_stay_small() -> None:
    members = [f"consumer-with-a-name-{number}-0a1b2c3d-0000-4000-8000-{number:012d}" for number in range(1_000)]
    holdings = [
        PartitionOwnership("t", number, members[number % 1_000], (number * 7919) % 200_000) for number in range(10_000)
    ]
    names = Names.of_ids(members)
    shown = assignment_map(holdings, members, names, None)
    assert sum(len(row.bundle) for row in shown.rows) < 180_000
    assert shown.rows[0].lag == max(row.lag or 0 for row in shown.rows), "who is most behind stands first"


def test_a_name_full_of_html_is_text() -> None:
    evil = "</title><script>alert(1)</script>"
    shown = assignment_map([PartitionOwnership(evil, 0, "a", 1)], ["a"], NOBODY, None)
    assert "<script" not in shown.rows[0].topics[0].picture
    assert cells(shown.rows[0].topics[0].picture) == [("cell l1", f"{evil} 0: lag 1")]


def test_colours_by_rate_are_another_row_of_colours() -> None:
    shown = assignment_map([PartitionOwnership("t", 0, "a", 1, 55.0)], ["a"], NOBODY, None, by="rate")
    assert cells(shown.rows[0].topics[0].picture)[0][0] == "cell r3"
    assert shown.legend[0] == ("r0", "idle")
