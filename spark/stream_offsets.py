"""Offsets of a stream as Spark's checkpoint keeps them, and how far the next micro-batch goes.

    {"muster": {"group": "g", "generation": 7, "member": "m-1", "servers": "127.0.0.1:9290", "version": 1},
     "topics": {"orders": {"0": {"from": 5, "generation": 7, "to": 10}}}}

Ranges are explicit, so that a batch can be read again exactly. Spark compares offsets as text: keys are sorted at
every level, and an offset without news is repeated unchanged. Spark's read limit and the source's own limits of
records, bytes and delay apply together.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from muster.spark.planning import OffsetRange
from muster.spark.read_options import ReadOptions

# Limits of a micro-batch
# -----------------------


def share_records(pending: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """At most `most` records, exactly that many if there are more, each partition by its share of the backlog.

    Spark's Kafka source rounds each share by itself and may end up a few records off; here the largest remainders get
    the records that rounding left over.

    >>> [wanted.end for wanted in share_records([OffsetRange("t", 0, 0, 75), OffsetRange("t", 1, 0, 25)], 10)]
    [8, 2]
    """
    total = sum(wanted.size for wanted in pending)
    if total <= most:
        return list(pending)
    shares = [divmod(wanted.size * most, total) for wanted in pending]
    left = most - sum(share for share, _ in shares)
    by_rest = sorted(range(len(pending)), key=lambda place: (-shares[place][1], pending[place].tp))
    favoured = set(by_rest[:left])
    return [
        wanted._replace(end=wanted.start + share + (place in favoured))
        for place, (wanted, (share, _)) in enumerate(zip(pending, shares, strict=True))
    ]


def share_bytes(
    pending: Sequence[OffsetRange], most: int, record_bytes: Mapping[tuple[str, int], float]
) -> list[OffsetRange]:
    """About `most` bytes, each partition by its share; at least one record in all, so that a query gets on.

    `record_bytes` is how long a record of each partition is on average, as it lies in the log.
    """
    # Those that could not be measured are taken to be like the others.
    usual = max(1.0, sum(record_bytes.values()) / len(record_bytes)) if record_bytes else 1.0
    weights = [wanted.size * max(1.0, record_bytes.get(wanted.tp, usual)) for wanted in pending]
    total = sum(weights)
    if total <= most or not pending:
        return list(pending)
    taken = [int(wanted.size * most / total) for wanted in pending]
    if not any(taken):
        largest = max(range(len(pending)), key=lambda place: (weights[place], -place))
        taken[largest] = 1
    return [
        wanted._replace(end=wanted.start + min(size, wanted.size)) for wanted, size in zip(pending, taken, strict=True)
    ]


def must_wait(total: int, least: int | None, delay_ms: int, last_trigger_ms: int, now_ms: int) -> bool:
    """Whether a micro-batch of `total` records is too small to begin, and has not been waited for long enough."""
    return least is not None and total < least and now_ms - last_trigger_ms < delay_ms


# Offsets in Spark's checkpoint
# -----------------------------

MARKER = "muster"
VERSION = 1
NO_GENERATION = -1

PartitionKey = tuple[str, int]


class OffsetError(ValueError):
    """An offset that is not of this source, or of a later version of it."""


class PartitionProgress(NamedTuple):
    """Where a partition stands: the batch's records, and the generation in which the group gave it to this driver."""

    start: int
    end: int
    generation: int = NO_GENERATION


@dataclass(frozen=True)
class StreamOffset:
    """One end of a batch. `topic_ids` are hexadecimal: a topic that was deleted and made again has another."""

    partitions: Mapping[PartitionKey, PartitionProgress] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    servers: str = ""
    group: str = ""
    member: str = ""
    generation: int = NO_GENERATION
    initial: bool = False
    """Where a query begins that would begin elsewhere the next time: Spark has to write down what follows at once."""

    def ranges(self) -> list[OffsetRange]:
        """What the batch that ends here reads, in order."""
        return [
            OffsetRange(topic, partition, progress.start, progress.end)
            for (topic, partition), progress in sorted(self.partitions.items())
            if progress.end > progress.start
        ]

    def to_dict(self) -> dict[str, Any]:
        """In canonical order, for Spark to write down."""
        marker: dict[str, Any] = {"servers": self.servers, "version": VERSION}
        if self.initial:
            marker["initial"] = True
        if self.group:
            marker |= {"generation": self.generation, "group": self.group, "member": self.member}
        topics: dict[str, dict[str, Any]] = {}
        for (topic, partition), progress in sorted(self.partitions.items()):
            row: dict[str, Any] = {"from": progress.start, "to": progress.end}
            if progress.generation != NO_GENERATION:
                row["generation"] = progress.generation
            topics.setdefault(topic, {})[str(partition)] = row
        found: dict[str, Any] = sort_keys({MARKER: marker, "topic_ids": dict(self.topic_ids), "topics": topics})
        return found

    def to_json(self) -> str:
        return json.dumps(self.to_dict())


def parse_offset(offset: Mapping[str, Any] | str) -> StreamOffset:
    """What `to_dict` gave; OffsetError says what is wrong with anything else."""
    try:
        read = json.loads(offset) if isinstance(offset, str) else offset
        marker = read[MARKER]
        if marker["version"] != VERSION:
            raise OffsetError(
                f"the checkpoint holds offsets of version {marker['version']}, known here is {VERSION}; "
                "read it with the version of Muster that wrote it, or use a new checkpoint"
            )
        partitions = {
            (topic, int(number)): PartitionProgress(row["from"], row["to"], row.get("generation", NO_GENERATION))
            for topic, rows in read["topics"].items()
            for number, row in rows.items()
        }
        return StreamOffset(
            partitions,
            read["topic_ids"],
            marker["servers"],
            marker.get("group", ""),
            marker.get("member", ""),
            marker.get("generation", NO_GENERATION),
            marker.get("initial", False),
        )
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise OffsetError(
            f"this is not an offset of the source muster: {str(offset)[:200]!r}; is the checkpoint its own?"
        ) from None


def sort_keys(value: Any) -> Any:
    return {key: sort_keys(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def find_end_positions(offset: StreamOffset) -> dict[PartitionKey, int]:
    """The next offset to read, per partition: what a group commits when the batch is done."""
    return {tp: progress.end for tp, progress in sorted(offset.partitions.items())}


def find_positions_ahead(offset: StreamOffset, committed: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Those of its end positions that are further on than what is committed: a commit never takes a group back."""
    return {tp: position for tp, position in find_end_positions(offset).items() if position > committed.get(tp, -1)}


def count_records(ranges: Iterable[OffsetRange]) -> int:
    return sum(wanted.size for wanted in ranges)


# Lag, from a query's progress
# ----------------------------


def offsets_behind_latest(progress: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How many records each source `muster` of a query is behind the ends of its logs, by the names that Spark's Kafka
    source has for it.

    progress: `query.lastProgress`, or `event.progress` of a StreamingQueryListener. Spark has no way for a source in
    Python to put figures into `sources[].metrics`, nor to describe itself there; this computes both from the offsets
    that it reports. A source is left out before its first batch, and while its log ends are not known.

    >>> offset = {"muster": {"servers": "b1:9290", "version": 1}, "topic_ids": {}}
    >>> end = offset | {"topics": {"orders": {"0": {"from": 0, "to": 5}, "1": {"from": 0, "to": 8}}}}
    >>> latest = offset | {"topics": {"orders": {"0": {"from": 9, "to": 9}, "1": {"from": 8, "to": 8}}}}
    >>> [source] = offsets_behind_latest({"sources": [{"endOffset": end, "latestOffset": latest}]})
    >>> source.pop("description")
    'muster: orders at b1:9290'
    >>> source
    {'minOffsetsBehindLatest': 0, 'maxOffsetsBehindLatest': 4, 'avgOffsetsBehindLatest': 2.0}
    """
    found = []
    for source in progress["sources"]:
        end, latest = (own_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is None or latest is None:
            continue
        behind = [
            max(latest.partitions[tp].end - read.end, 0)
            for tp, read in end.partitions.items()
            if tp in latest.partitions
        ]
        if behind:
            found.append(
                {
                    "description": describe_source(end),
                    "minOffsetsBehindLatest": min(behind),
                    "maxOffsetsBehindLatest": max(behind),
                    "avgOffsetsBehindLatest": sum(behind) / len(behind),
                }
            )
    return found


def own_offset(told: Any) -> StreamOffset | None:
    """None for that of another source, and for none."""
    read = json.loads(told) if isinstance(told, str) and told.startswith("{") else told
    return parse_offset(read) if isinstance(read, Mapping) and MARKER in read else None


def describe_source(offset: StreamOffset) -> str:
    topics = ", ".join(sorted({topic for topic, _ in offset.partitions}))
    member = f" as group {offset.group}" if offset.group else ""
    return f"{MARKER}: {topics} at {offset.servers}{member}"


# Admission
# ---------

RecordBytes = Callable[[Collection[OffsetRange]], Mapping[PartitionKey, float]]


def default_limit(options: ReadOptions) -> ReadLimit:
    """What Spark is told, and hands back with each question. It has no way to say two limits at once."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


class Admission:
    """Decides for one query. `record_bytes` measures how long records are, where a limit of bytes needs it."""

    def __init__(self, options: ReadOptions, record_bytes: RecordBytes) -> None:
        self._options = options
        self._record_bytes = record_bytes
        self._last_trigger_ms: int | None = None
        self.drains = False
        """With Trigger.AvailableNow nothing more comes, so there is nothing to wait for."""

    def admitted(self, pending: Sequence[OffsetRange], limit: ReadLimit, now_ms: int) -> list[OffsetRange]:
        """The ranges to read now, empty ones included; all are empty when the batch has to wait."""
        options = self._options
        nothing = [wanted._replace(end=wanted.start) for wanted in pending]
        everything = count_records(pending)
        if isinstance(limit, ReadAllAvailable) or not everything:
            # Trigger.Once asks for all there is, whatever the options say.
            return list(pending)
        if not self.drains and self._last_trigger_ms is not None:
            least, delay_ms = options.min_offsets_per_trigger, options.max_trigger_delay
            if must_wait(everything, least, delay_ms, self._last_trigger_ms, now_ms):
                return nothing
        self._last_trigger_ms = now_ms
        ranges = list(pending)
        if options.max_offsets_per_trigger is not None:
            ranges = share_records(ranges, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            wanted = [each for each in ranges if each.size]
            ranges = share_bytes(ranges, options.max_bytes_per_trigger, self._record_bytes(wanted))
        return ranges
