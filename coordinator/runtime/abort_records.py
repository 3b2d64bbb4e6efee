"""Entries of `__aborts`: transactions that the coordinator ended by itself, as JSON records of one partition.

The key is the transactional id, or nothing where no id has the producer. Fields that are not known are left out; a
reader takes entries of later versions, whose further fields it does not know, as they are.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.runtime.ports import Entry
from muster.coordinator.transactions.effects import AbortNoted
from muster.coordinator.transactions.events import NO_ORIGIN, RequestOrigin
from muster.coordinator.transactions.records import NO_TIME

ABORTS_TOPIC: Final = "__aborts"
RETENTION_MS: Final = 30 * 24 * 3_600_000
PARTITIONS_NAMED: Final = 100
"""Partitions that an entry names; how many there were it says of all of them."""

ORPHAN: Final = "orphan"
"""The cause of those that no coordinator would have ended."""


@dataclass(slots=True, frozen=True)
class AbortEntry:
    """One transaction that the coordinator aborted by itself.

    transactional_id: empty where no id has the producer. epoch: the one that its records carry. cause: as in
    docs/transactions.md. by: the client or operator that led to it; NO_ORIGIN where time did. of: the newest instance
    of the producer that had it. started_ms, open_ms, timeout_ms: -1 where not known. partitions: the first
    PARTITIONS_NAMED of them, as TOPIC-N.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    cause: str
    at_ms: int
    by: RequestOrigin = NO_ORIGIN
    of: RequestOrigin = NO_ORIGIN
    started_ms: int = NO_TIME
    open_ms: int = NO_TIME
    timeout_ms: int = NO_TIME
    stood_still_ms: int = 0
    partitions: tuple[str, ...] = ()
    partition_count: int = 0


def entry_of(noted: AbortNoted) -> AbortEntry:
    return AbortEntry(
        noted.transactional_id,
        noted.producer_id,
        noted.decision.epoch,
        noted.decision.cause.value,
        noted.at_ms,
        noted.decision.by,
        noted.decision.of,
        noted.started_ms,
        noted.open_ms,
        noted.timeout_ms,
        noted.decision.stood_still_ms,
        tuple(f"{topic}-{number}" for topic, number in noted.partitions[:PARTITIONS_NAMED]),
        len(noted.partitions),
    )


def encode_abort(entry: AbortEntry) -> Entry:
    told: dict[str, Any] = {
        "id": entry.transactional_id,
        "producer": entry.producer_id,
        "epoch": entry.epoch,
        "cause": entry.cause,
        "by": entry.by.address,
        "by_software": entry.by.software,
        "by_client": entry.by.client_id,
        "of": entry.of.address,
        "of_software": entry.of.software,
        "of_client": entry.of.client_id,
        "started": entry.started_ms,
        "open_ms": entry.open_ms,
        "timeout_ms": entry.timeout_ms,
        "stood_still_ms": entry.stood_still_ms,
        "partitions": list(entry.partitions),
        "partition_count": entry.partition_count,
        "at": entry.at_ms,
    }
    unknown = ("", NO_TIME)
    value = {name: each for name, each in told.items() if each not in unknown or name in ("producer", "epoch", "at")}
    return entry.transactional_id.encode(), json.dumps(value, ensure_ascii=False).encode(), NO_TIME


def decode_abort(value: bytes) -> AbortEntry | None:
    """None for what is no entry."""
    try:
        found = json.loads(value)
        return AbortEntry(
            str(found.get("id", "")),
            int(found["producer"]),
            int(found["epoch"]),
            str(found["cause"]),
            int(found["at"]),
            read_origin(found, "by"),
            read_origin(found, "of"),
            int(found.get("started", NO_TIME)),
            int(found.get("open_ms", NO_TIME)),
            int(found.get("timeout_ms", NO_TIME)),
            int(found.get("stood_still_ms", 0)),
            tuple(map(str, found.get("partitions", ()))),
            int(found.get("partition_count", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_origin(found: dict[str, Any], name: str) -> RequestOrigin:
    return RequestOrigin(
        str(found.get(name, "")), str(found.get(f"{name}_software", "")), str(found.get(f"{name}_client", ""))
    )


def split_by_size(records: Sequence[Entry], most_bytes: int) -> list[list[Entry]]:
    """The records in portions of at most so many bytes, or of one record; in their order."""
    portions: list[list[Entry]] = []
    size = most_bytes
    for record in records:
        grown = len(record[0]) + len(record[1] or b"")
        if size + grown > most_bytes:
            portions.append([])
            size = 0
        portions[-1].append(record)
        size += grown
    return portions
