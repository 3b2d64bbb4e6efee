"""What happens to positions that a transaction will commit, or not.

A commit has two parts, for the log may refuse a producer what its group allows it. `TxnOffsetCommit` asks whether it
may be; who writes then tells by `TxnOffsetsWritten` what came of it, and ends it by `TxnWriteOver` in any case, whose
answer comes before the producer's. What a marker says comes as `TxnEnded`.
"""

from collections.abc import Mapping
from typing import TypeAlias

from muster.coordinator.core.model.types import Position, RequestId, StoredOffset
from muster.coordinator.core.model.value import frozen_value

END = 1 << 62
"""An offset behind all others."""

Place: TypeAlias = tuple[str, int]
Key: TypeAlias = tuple[str, str, int]
"""Group, topic, partition: what a record of the log is about."""


@frozen_value
class TxnOffsetCommit:
    """May these positions be committed by a transaction? From here on they are unstable, until `TxnWriteOver`.

    `generation` -1, no member id and no instance id: who says nothing of himself (before TxnOffsetCommit v3).
    """

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    offsets: Mapping[Place, Position]


@frozen_value
class TxnOffsetsWritten:
    """These positions are in the shard's log as a transaction's, at this place and the next ones: pending from here on.

    `at`: the offset of the first of their records. Events of one shard come in the order of its log.
    """

    producer_id: int
    epoch: int
    group_id: str
    offsets: Mapping[Place, StoredOffset]
    at: int


@frozen_value
class TxnWriteOver:
    """What the `TxnOffsetCommit` of that id allowed is written, or never will be.

    A request, for the sake of its answer: as any, it is told once all that was decided before is in the log. Who hears
    it, and ends his transaction then, has his marker behind all that was decided without knowing of his positions; so
    whoever reads the log up to the marker sees which of them something later was written over.
    """

    request_id: RequestId
    group_id: str
    of: RequestId


@frozen_value
class TxnEnded:
    """A producer's transaction has its marker. `counts`: what of it nothing later in the log is written over, as far as
    whoever reads it can tell; None: all. What was decided here since, and is not in the log yet, is known here.

    `at`: the marker's offset. What lies behind it is of the producer's next transaction: who heard that his transaction
    is ended may write into the next one before the marker is read."""

    producer_id: int
    epoch: int
    committed: bool
    counts: frozenset[Key] | None = None
    at: int = END


TxnEvent: TypeAlias = TxnOffsetsWritten | TxnEnded
