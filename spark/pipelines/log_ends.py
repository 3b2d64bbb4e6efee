"""Where logs ended at past moments, asked of the node: what lag over time is measured against."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from muster.client import Admin
from muster.client.types import TopicPartition

MAX_LOOKUPS = 2_000_000
"""Moments times partitions of one run."""
WANTED_MOMENTS = 400
"""So many unless a pause between them is given: a line in a chart shows no more."""
LATER, NOW, RETAINED = "next record", "log end", "first record left"
EVERY_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000, 21_600_000, 86_400_000)


class PastLogEnd(NamedTuple):
    """Where a log ended at a moment. `basis`: the next record is still there, there is none (the log still ends
    there), or records of that time are gone and the first one left was taken."""

    topic: str
    partition: int
    at_ms: int
    log_end: int
    basis: str


def choose_moments(first_ms: int, last_ms: int, every_ms: int | None) -> range:
    """Regular moments from the first commit on; the pause is chosen when it is not given.

    >>> choose_moments(100_500, 103_000, 1_000)
    range(101000, 103001, 1000)
    """
    if every_ms is None:
        wanted = max(1, (last_ms - first_ms) // WANTED_MOMENTS)
        every_ms = next((one for one in EVERY_MS if one >= wanted), EVERY_MS[-1])
    start_ms = -(-first_ms // every_ms) * every_ms
    return range(start_ms, max(last_ms, start_ms) + 1, every_ms)


def find_log_ends(admin: Admin, partitions: Iterable[tuple[str, int]], times: Sequence[int]) -> list[PastLogEnd]:
    """Partitions that no longer exist are left out. ValueError when it would take too many look-ups."""
    existing = admin.list_topics()
    asked = sorted(TopicPartition(*tp) for tp in set(partitions) if tp[1] < existing.get(tp[0], 0))
    if len(asked) * len(times) > MAX_LOOKUPS:
        raise ValueError(
            f"{len(times)} moments of {len(asked)} partitions are too many; expected at most {MAX_LOOKUPS} look-ups; "
            "make the pause between moments longer"
        )
    starts = {tp: found.offset for tp, found in admin.list_offsets(dict.fromkeys(asked, -2)).items()}
    latest = {tp: found.offset for tp, found in admin.list_offsets(dict.fromkeys(asked, -1)).items()}
    out: list[PastLogEnd] = []
    for at_ms in times:
        found = admin.list_offsets(dict.fromkeys(asked, at_ms + 1))
        out += [find_log_end(tp, at_ms, found[tp].offset, starts[tp], latest[tp]) for tp in asked]
    return out


def find_log_end(tp: TopicPartition, at_ms: int, later: int, start: int, latest: int) -> PastLogEnd:
    if later < 0:
        return PastLogEnd(tp.topic, tp.partition, at_ms, latest, NOW)
    return PastLogEnd(tp.topic, tp.partition, at_ms, later, RETAINED if later == start and start > 0 else LATER)


def build_table(ends: Sequence[PastLogEnd]) -> Any:
    """As an Arrow table."""
    import pyarrow as pa

    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(PastLogEnd._fields, kinds, strict=True)))
    return pa.Table.from_pylist([end._asdict() for end in ends], schema=schema)
