"""The tables of the page are those of the cells that are kept."""

import json

import pytest

from tests.truth.page import PAGE, PLAYED, PlayedCell, merge_cells, page_with, read_cells, summary_of, tables_of


def test_the_page_shows_what_was_played() -> None:
    page = PAGE.read_text()
    assert page == page_with(page, tables_of(read_cells(json.loads(PLAYED.read_text()))))


def test_a_newer_verdict_replaces_an_older_one() -> None:
    old = PlayedCell("node", "join", "confluent", "half", "a1", ("something is missing",))
    new = PlayedCell("node", "join", "confluent", "right", "b2", ())
    other = PlayedCell("cluster", "join", "confluent", "right", "a1", ())
    assert merge_cells([other, old], [new]) == [new, other]


def test_a_line_counts_what_was_played_on_a_backend() -> None:
    cells = [
        PlayedCell("kafka", "join", "confluent", "right", "b2", ()),
        PlayedCell("kafka", "killed", "confluent", "wrong", "a1", ("blames ann",)),
        PlayedCell("kafka", "killed", "kafkajs", "skipped", "c3", ("it has none",)),
    ]
    line = summary_of({"kafka": cells}).splitlines()[-1]
    assert line == "| A node over a Kafka | 2 | 1 | 0 | 1 | 0 | 0 | 0 | `a1`, `b2` |"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        page_with("nothing", "| |")
