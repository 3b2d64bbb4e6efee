"""The screen of `muster top`: what keys do, what fits, what a hostile name cannot do."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from muster.cli.node_polling import GroupLine, GroupsPicture, LagTrail
from muster.cli.top import named
from muster.cli.top_screen import SORTS, TopScreen
from muster.coordinator.rpc.v1.ledger_pb2 import REBALANCE_CAUSE_SESSION_EXPIRED, Rebalance
from tests.support.doctor import at, described_as, group, member, tp

NOW = 4_000_000


def line(name: str, lag: int = 0, members: int = 1, partitions: int = 4, **more: object) -> GroupLine:
    """A group whose members share all partitions but the last in turn."""
    places = [tp(n) for n in range(partitions)]
    people = tuple(
        member(f"{name}-m{m}", range(m, partitions - 1, members), client_id=f"client-{m}") for m in range(members)
    )
    positions = {place: at(0, lag) for place in places}
    examined = group(*people, name=name, positions=positions)
    return replace(GroupLine(examined, {"t": partitions}, lag * partitions, 0.0, None, 2), **more)  # type: ignore[arg-type]


def board(*lines: GroupLine) -> TopScreen:
    return TopScreen("h:1", GroupsPicture(NOW, lines), notice="")


def screen(shown: TopScreen, width: int = 80, height: int = 24) -> list[str]:
    lines = [text.plain for text in shown.page(width, height)]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    return lines


def names(shown: TopScreen) -> list[str]:
    return [each.group.id for each in shown.shown()]


def press(shown: TopScreen, *keys: str) -> TopScreen:
    for key in keys:
        shown.press(key)
    return shown


def test_groups_are_listed_by_lag_and_by_what_is_asked_for() -> None:
    shown = board(line("a", 1), line("b", 30), line("c", 2, members=3))
    assert names(shown) == ["b", "c", "a"]
    assert names(press(shown, "r")) == ["a", "c", "b"]
    shown = press(board(*shown.picture.lines), *["s"] * (len(SORTS) - SORTS.index("LAG")))
    assert shown.sort == "GROUP"
    assert names(shown) == ["a", "b", "c"]
    assert "by GROUP" in screen(shown)[-1]


def test_groups_without_members_come_last_and_can_be_left_out() -> None:
    shown = board(line("idle", 37_924, members=0), line("live", 1))
    assert names(shown) == ["live", "idle"]
    assert names(press(shown, "r")) == ["live", "idle"]
    assert [row.split()[5] for row in screen(shown)[2:4]] == ["-", "idle"]
    assert names(press(shown, "r", "m")) == ["live"]
    assert screen(shown)[-1].endswith("[members]")
    assert names(press(shown, "m")) == ["live", "idle"]


def test_a_filter_is_typed_kept_and_given_up() -> None:
    shown = press(board(line("apple"), line("pear"), line("plum")), "/", "P", "l", "x", "backspace")
    assert screen(shown)[-1].startswith("filter: Pl_")
    assert names(press(shown, "enter")) == ["apple", "plum"]
    assert names(press(shown, "escape")) == ["apple", "pear", "plum"]
    assert not press(shown, "/", "q").over, "a letter of the filter ends nothing"
    assert press(shown, "escape", "q").over


def test_the_cursor_stays_on_its_group_when_the_order_changes() -> None:
    shown = press(board(line("a", 1), line("b", 2)), "down")
    assert shown.cursor == "a"
    shown.picture = GroupsPicture(NOW, (line("a", 9), line("b", 2)))
    assert names(shown) == ["a", "b"]
    assert press(shown, "enter").opened == "a"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10)])
def test_a_thousand_groups_fit_into_any_screen(width: int, height: int) -> None:
    shown = board(*(line(f"group-{n:04}", n) for n in range(1_000)))
    page = screen(press(shown, *["pagedown"] * 50), width, height)
    assert any("group-0499" in text for text in page), "the cursor is on the screen"
    assert set(shown.on_screen(height)) <= set(names(shown))
    assert len(shown.on_screen(height)) == height - 4
    assert ("ASSIGNOR" in page[1]) == (width >= 118)


def test_a_group_opens_with_its_map_and_nobody_is_loud() -> None:
    rebalance = Rebalance(number=12, cause=4, culprit="x", culprit_client_id="worker-3", ended_at_ms=NOW - 12_000)
    opened = line("a", 500, members=2)
    opened = replace(opened, group=replace(opened.group, ledger=(rebalance,)))
    shown = press(board(opened), "enter")
    page = "\n".join(screen(shown))
    assert "1 partition without an owner" in page
    assert "last: #12 session expired by worker-3, 12 s ago" in page
    assert "nobody                  1     500  ...2" in page
    assert "client-0                2    1.0k  2.2." in page
    assert "client-1                1     500  .2.." in page
    assert not press(shown, "escape").opened


def test_many_partitions_are_bundled_and_scrolled() -> None:
    shown = press(board(line("a", 1, members=60, partitions=10_000)), "enter")
    assert "10000 partitions, 228 to a column" in "\n".join(screen(shown))
    before = screen(shown)
    assert screen(press(shown, "pagedown")) != before
    screen(press(shown, *["pagedown"] * 99))
    assert shown.scroll < 99, "there is an end"


def test_a_name_can_do_nothing_to_the_terminal() -> None:
    evil = "a\x1b[2J\x07\r\nb\u202e"
    hostile = line(evil)
    hostile = replace(
        hostile,
        group=described_as(hostile.group, assignor=evil, members=(member(evil, client_host=evil, topics=("t\x1b",)),)),
    )
    shown = board(hostile)
    for width in (80, 130):
        for page in (screen(shown, width), screen(press(shown, "enter"), width)):
            assert all(text.isprintable() for text in page)
        press(shown, "escape")
    shown.notice = evil
    assert all(text.isprintable() for text in screen(shown))


def test_a_group_that_goes_while_it_is_open_is_said_to_be_gone() -> None:
    shown = press(board(line("a")), "enter")
    shown.picture = GroupsPicture(NOW)
    assert "group a is not there any more" in screen(shown)[1]
    assert "there are no groups" in screen(press(shown, "escape"))[2]


def test_trend_and_time_to_go_come_from_successive_looks() -> None:
    trail = LagTrail()
    assert (trail.trend(), trail.eta_s()) == (None, None)
    trail.add(0, 1_000)
    assert trail.trend() is None
    trail.add(10, 900)
    assert (trail.trend(), trail.eta_s()) == (-10.0, 90.0)
    for second in range(20, 200, 10):
        trail.add(second, 900)
    assert (trail.trend(), trail.eta_s()) == (0.0, None), "what was more than a minute ago counts no more"
    trail.add(200, 0)
    assert trail.eta_s() == 0.0


def test_keys_of_terminals_are_known() -> None:
    assert named("\x1b[A\x1bOBq\x1b") == ["up", "down", "q", "escape"]
    assert named("\x1b[6~\r\x7f") == ["pagedown", "enter", "backspace"]


@pytest.mark.parametrize("sort", SORTS)
def test_the_line_of_keys_is_whole_on_a_terminal_of_eighty(sort: str) -> None:
    shown = board(line("g"))
    shown.sort, shown.reverse = sort, True
    assert screen(shown)[-1].endswith(f"by {sort} reversed")


def test_the_cost_of_the_last_rebalance_is_whole_on_a_terminal_of_eighty() -> None:
    last = Rebalance(number=104, culprit="billing-3", ended_at_ms=NOW - 119_000, unowned_partition_seconds=12_345.6)
    last.moves.add(topic="t")
    last.cause = REBALANCE_CAUSE_SESSION_EXPIRED
    opened = line("g")
    shown = board(replace(opened, group=replace(opened.group, ledger=(last,))))
    shown.opened = "g"
    told = screen(shown)
    assert "last: #104 session expired by billing-3, 119 s ago" in told
    assert "      1 moved, 12345.6 partition-seconds without an owner" in told
