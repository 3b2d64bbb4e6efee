"""The offsets of a stream as Spark's checkpoint keeps them: explicit ranges, so that a batch can be read again exactly.

    {"muster": {"group": "g", "generation": 7, "member": "m-1", "servers": "127.0.0.1:9290", "version": 1},
     "topics": {"orders": {"0": {"from": 5, "generation": 7, "to": 10}}}}

Spark compares offsets as text, so keys are sorted at every level, and who has nothing new to say repeats itself.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.spark.planning import OffsetRange

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
            f"this is no offset of the source muster: {str(offset)[:200]!r}; is the checkpoint its own?"
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
