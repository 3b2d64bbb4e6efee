"""Values that the log hands out: records, append and fetch results, topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

TopicPartition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record as a consumer sees it; `timestamp_ms` is -1 when the producer gave none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class AppendOrigin(Enum):
    """Who appends, which decides what is checked (TX-L1)."""

    CLIENT = auto()
    """Everything is checked: what a client may set, records, timestamps, sequences."""
    COORDINATOR = auto()
    """The node's own writers: markers, and records without sequences. Producer epochs are checked."""
    REPLICATION = auto()
    """A copy of what a leader has checked already: of producers nothing is checked."""


class Appended(NamedTuple):
    """What an append came to. `log_append_time_ms` is -1 unless the topic stamps arrival times."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class AbortedTransaction(NamedTuple):
    """Data of this producer from `first_offset` up to its abort marker is to be dropped by the reader."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """Whole and perhaps a last partial batch as they lie in the log, and how far the log goes."""

    records: bytes | memoryview
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the catalog keeps it: `id` is 16 bytes, `configs` only what was set for it."""

    name: str
    id: bytes
    partitions: int
    configs: Mapping[str, str]
    internal: bool = False
    held: tuple[int, ...] | None = None
    """Of a topic of a cluster the partitions that are held here, rising. None: all of it is here and nowhere else."""

    @property
    def here(self) -> Sequence[int]:
        """The partitions that are held here, rising."""
        return range(self.partitions) if self.held is None else self.held
