"""Topics and their partitions as rows, and the grammar of positions within them.

A position is start | end | current | N | +N | -N | @TIME. TIME is ISO 8601 (in the local time zone unless it names
one), milliseconds since the epoch, or a length of time before now such as -90s, -15m, -1h, -2d.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from typing_extensions import TypedDict

# Rows
# ----


class TopicRow(TypedDict):
    topic: str
    partitions: int


class PartitionRow(TypedDict):
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    records: int


class ReplicatedPartitionRow(PartitionRow):
    """Of a cluster: node ids."""

    leader: int | None
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    offline: list[int]


class TopicDocument(TypedDict):
    topic: str
    topic_id: str
    internal: bool
    partitions: Sequence[PartitionRow]
    configs: dict[str, str]


def topic_row(name: str, partitions: int) -> TopicRow:
    return {"topic": name, "partitions": partitions}


def partition_rows(name: str, spans: Iterable[tuple[int, int, int]]) -> list[PartitionRow]:
    """`spans`: each partition's number, where its log begins and where it ends."""
    return [
        {
            "topic": name,
            "partition": number,
            "log_start_offset": start,
            "log_end_offset": end,
            "records": end - start,
        }
        for number, start, end in sorted(spans)
    ]


def topic_document(
    name: str, topic_id: str, internal: bool, partitions: Sequence[PartitionRow], configs: Mapping[str, str]
) -> TopicDocument:
    return {
        "topic": name,
        "topic_id": topic_id,
        "internal": internal,
        "partitions": partitions,
        "configs": dict(configs),
    }


# Positions
# ---------

MAX_OFFSET = 2**63 - 1
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
GRAMMAR = "expected start, end, current, N, +N, -N, @TIME (ISO 8601 or epoch ms) or @-1h"


class Position(NamedTuple):
    """`kind` is start, end, current, offset, shift or time; `value` is what belongs to it."""

    kind: str
    value: int = 0


class ResetRow(TypedDict):
    group: str
    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


class Target(NamedTuple):
    """The new offset, within what the log has, and what was wanted."""

    offset: int
    wanted: int


def target_of(position: Position, current: int | None, start: int, end: int, at_time: int = -1) -> Target | None:
    """Where the position leads in a log from `start` to `end`; None where there is no `current` one to start from.

    `at_time`: the first offset at or after the position's time, below 0 where there is none.

    >>> target_of(Position("shift", -5), 3, 0, 10)
    Target(offset=0, wanted=-2)
    """
    if position.kind in ("shift", "current") and current is None:
        return None
    wanted = {
        "start": start,
        "end": end,
        "offset": position.value,
        "current": current or 0,
        "shift": (current or 0) + position.value,
        "time": end if at_time < 0 else at_time,
    }[position.kind]
    return Target(min(max(wanted, start), end), wanted)


def parse_position(text: str, now_ms: int) -> Position:
    """
    >>> parse_position("-5", 0), parse_position("17", 0), parse_position("@-1h", 3_600_005)
    (Position(kind='shift', value=-5), Position(kind='offset', value=17), Position(kind='time', value=5))
    """
    if text in ("start", "end", "current"):
        return Position(text)
    if text.startswith("@"):
        return Position("time", parse_time(text[1:], now_ms))
    if not re.fullmatch(r"[+-]?\d{1,19}", text) or int(text) > MAX_OFFSET:
        raise ValueError(f"{text!r} is not a position; {GRAMMAR}")
    return Position("shift" if text[0] in "+-" else "offset", int(text))


def parse_time(text: str, now_ms: int) -> int:
    ago = re.fullmatch(r"-(\d{1,9})(ms|s|m|h|d)", text)
    if ago:
        return max(0, now_ms - int(ago[1]) * UNITS_MS[ago[2]])
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    try:
        # Below 0 the protocol has words of its own (-1 the end, -2 the beginning), and no record is that old.
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"'@{text}' is not a time; expected @2026-01-31T12:00, @EPOCH_MS or @-1h") from None
