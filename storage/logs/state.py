"""What opening a partition's directory hands to its log."""

from dataclasses import dataclass, field

from muster.storage.errors import LogDamaged, RecordsCut
from muster.storage.logs.epochs import LeaderEpochs
from muster.storage.logs.producers_state import ProducerState
from muster.storage.logs.segment import Segment
from muster.storage.logs.summaries import Summary


@dataclass(slots=True)
class LogRecovery:
    """What opening a log found: bytes cut off its tail, or damage that makes it refuse appends."""

    truncated_bytes: int = 0
    end_offset: int = 0
    why: str = ""
    damage: LogDamaged | None = None
    loss: RecordsCut | None = None
    """Records that were cut off though they could be read."""
    unflushed: bool = False
    """What was found may not be on disk yet."""


@dataclass(slots=True)
class LogState:
    """What `muster.storage.logs.loader` gives a log to start from."""

    segments: list[Segment]
    summaries: dict[int, Summary]
    start_offset: int
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    recovered: LogRecovery = field(default_factory=LogRecovery)
