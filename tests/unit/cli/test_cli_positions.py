"""The grammar of `muster groups reset-offsets --to`."""

from datetime import datetime

import pytest

from muster.coordinator.observability.views.topics import Position, parse_position

NOW_MS = 1_750_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", Position("start")),
        ("end", Position("end")),
        ("current", Position("current")),
        ("0", Position("offset", 0)),
        ("17", Position("offset", 17)),
        ("+5", Position("shift", 5)),
        ("-5", Position("shift", -5)),
        ("@1700000000000", Position("time", 1_700_000_000_000)),
        ("@-90s", Position("time", NOW_MS - 90_000)),
        ("@-15m", Position("time", NOW_MS - 900_000)),
        ("@-1h", Position("time", NOW_MS - 3_600_000)),
        ("@-2d", Position("time", NOW_MS - 172_800_000)),
        ("@2025-06-15T12:00:00+00:00", Position("time", 1_749_988_800_000)),
        ("@2025-06-15T12:00", Position("time", int(datetime(2025, 6, 15, 12).timestamp() * 1000))),
    ],
)
def test_a_position_can_be_said_in_many_ways(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@pytest.mark.parametrize("text", ["", "noon", "1.5", "--5", "99999999999999999999", "@", "@yesterday", "@-5y", "@-h"])
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_position(text, NOW_MS)
