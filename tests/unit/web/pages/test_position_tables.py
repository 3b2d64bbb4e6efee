"""Tables by partition: a page of rows at a time, with committed and end offset, lag and rates."""

import numpy as np
import pytest

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.web.pages.position_view import (
    ROWS,
    known_rates,
    partition_lines,
    position_lines,
    reader_lines,
    row_page,
    written_to,
)

NAN = float("nan")


def seen(topic: str, *rows: tuple[float, float, int]) -> PartitionRates:
    """Partitions from 0 on: (written, read, lag)."""
    produced, consumed, lags = (np.array(column) for column in zip(*rows, strict=True))
    places = tuple(TopicPartition(topic, number) for number in range(len(rows)))
    return PartitionRates(places, produced, consumed, lags.astype(np.float64), lags)


def positions(*committed: int | None, start: int = 0, end: int = 100) -> dict[TopicPartition, PartitionLag]:
    return {
        TopicPartition("t", number): PartitionLag(
            TopicPartition("t", number), at, start, end, readable_lag(at, start, end), "m-1" if number == 0 else ""
        )
        for number, at in enumerate(committed)
    }


def test_a_position_has_its_offsets_its_lag_and_both_rates() -> None:
    known = seen("t", (5.0, 2.5, 60), (NAN, NAN, 0))
    rates = (known_rates(known, "consumed"), known_rates(known, "produced"))
    first, second = position_lines(positions(40, None), Names.of_ids(["m-1"]), *rates, row_page(1, 2))
    assert (first.committed, first.log_end, first.lag, first.read, first.written) == (40, 100, 60, 2.5, 5.0)
    assert (second.committed, second.lag, second.read, second.owner) == (None, 100, None, "")


def test_what_retention_removed_is_beside_the_lag() -> None:
    (line,) = position_lines(positions(5, start=95), Names({}), {}, {}, row_page(1, 1))
    assert (line.lag, line.removed) == (5, 90)


def test_of_a_thousand_partitions_a_page_is_shown_most_lag_first() -> None:
    many = positions(*(number % 100 for number in range(1_000)))
    pages = [position_lines(many, Names({}), {}, {}, row_page(number, 1_000)) for number in (1, 20, 21)]
    assert [len(lines) for lines in pages] == [ROWS] * 3
    assert (pages[0][0].lag, pages[1][-1].lag) == (100, 1)
    assert pages[1] == pages[2], "a page beyond the last is the last"


@pytest.mark.parametrize(("number", "first", "last"), [(1, 0, 50), (3, 100, 125), (9, 100, 125), (0, 0, 50)])
def test_pages_of_rows(number: int, first: int, last: int) -> None:
    shown = row_page(number, 125)
    assert (shown.first, shown.last, shown.pages) == (first, last, 3)


def test_a_topic_has_the_lag_and_rate_of_each_group_and_idle_ones_last() -> None:
    groups = [("idle", seen("t", (9.0, 0.0, 900))), ("live", seen("t", (9.0, 3.0, 7), (1.0, NAN, 2)))]
    health = {"idle": ("IDLE", "idle since 14:02 UTC, 900 behind"), "live": ("OK", "")}
    lines = reader_lines("t", [*groups, ("other", seen("u", (1.0, 1.0, 1)))], health)
    assert [(line.group, line.lag, line.read, line.partitions) for line in lines] == [
        ("live", 9, 3.0, 2),
        ("idle", 900, 0.0, 1),
    ]
    assert written_to(groups, ["t"]) == {("t", 0): 9.0, ("t", 1): 1.0}


def test_partitions_of_a_topic_come_a_page_at_a_time() -> None:
    ends = {("t", number): 10 * number for number in range(150)}
    lines = partition_lines("t", {("t", 149): 90}, ends, {}, {("t", 149): 1.5}, row_page(3, 150))
    assert [line.number for line in lines] == list(range(100, 150))
    assert (lines[-1].records, lines[-1].written, lines[-1].size) == (1_400, 1.5, "0 B")
