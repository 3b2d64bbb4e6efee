"""Rows as people and programs get them."""

import json

import pytest
import yaml

from muster.cli.common.output import Column, console, plain_table, print_rows
from muster.coordinator.observability.views.formatting import spans
from muster.coordinator.observability.views.member_names import Names

ROWS = [
    {"group": "blue", "lag": 3, "owners": ["a", "b"], "host": None},
    {"group": "red, white", "lag": 0, "owners": [], "host": "h"},
]
COLUMNS = [
    Column("GROUP", "group"),
    Column("LAG", "lag"),
    Column("OWNERS", "owners"),
    Column("HOST", "host", wide=True),
]


def shown(style: str, capsys: pytest.CaptureFixture[str]) -> str:
    print_rows(ROWS, COLUMNS, style)
    return capsys.readouterr().out


def test_a_table_away_from_a_terminal_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("table", capsys) == "GROUP       LAG  OWNERS\nblue        3    a,b\nred, white  0    -\n"


def test_wide_adds_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("wide", capsys).splitlines()[0] == "GROUP       LAG  OWNERS  HOST"


def test_json_and_yaml_hold_every_column_with_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown("json", capsys)) == ROWS
    assert yaml.safe_load(shown("yaml", capsys)) == ROWS


def test_csv_quotes_what_needs_it_and_leaves_absent_values_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("csv", capsys) == 'group,lag,owners,host\nblue,3,"a,b",\n"red, white",0,-,h\n'


def test_no_rows_still_have_a_heading_in_a_table_and_an_empty_list_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], COLUMNS, "table")
    print_rows([], COLUMNS, "json")
    assert capsys.readouterr().out == "GROUP  LAG  OWNERS\n[]\n"


def test_no_color_is_honoured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert console().color_system is not None
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().no_color


ONE = "pay-1f0e5d3c-0000-4000-8000-000000000001"
TWO = "pay-2f0e5d3c-0000-4000-8000-000000000002"
OTHER = "ship-3f0e5d3c-0000-4000-8000-000000000003"


def test_members_are_called_by_their_client_id_where_that_is_enough() -> None:
    names = Names.of_ids([ONE, TWO, OTHER, "static", ""])
    assert [names[member] for member in (ONE, TWO, OTHER, "static", "")] == [
        "pay-1f0e",
        "pay-2f0e",
        "ship",
        "static",
        "",
    ]
    assert names.in_text(f"{ONE} gave way to {OTHER}") == "pay-1f0e gave way to ship"


def test_full_names_stay_full() -> None:
    assert Names.of_ids([ONE], full=True)[ONE] == ONE


def test_consumers_of_the_zookeeper_era_go_by_their_host() -> None:
    one, other = "a_group_box-7-1700000000000-c0ffee00", "a_group_box-7-1700000000000-0badcafe"
    assert Names.of_ids([one])[one] == "box-7-c0ff"
    assert [Names.of_ids([one, other])[each] for each in (one, other)] == ["box-7-c0ff", "box-7-0bad"]


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([1, 0], "0,1"), ([5, 1, 2, 3], "1-3,5")])
def test_spans_of_partitions(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def test_a_name_s_line_ends_and_escapes_stay_in_their_row() -> None:
    rows = [{"group": "a\nb\x1b[2J"}, {"group": "c"}]
    assert plain_table(rows, [Column("GROUP", "group")]).split("\n") == [
        "GROUP",
        "a\\nb\\x1b[2J",
        "c",
        "",
    ]
