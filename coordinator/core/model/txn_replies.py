"""The answers to `TxnOffsetCommit` and `TxnWriteOver`."""

from collections.abc import Mapping
from dataclasses import field

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.errors import ErrorCode


@frozen_value
class TxnOffsetCommitReply:
    """`code` stands for every partition that `partitions` does not name. `kept`: what is to be written now, under the
    producer's own numbers."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[tuple[str, int], ErrorCode] = field(default_factory=dict)
    kept: Mapping[tuple[str, int], StoredOffset] = field(default_factory=dict)


@frozen_value
class TxnWriteOverReply:
    """All that was decided before is in the log."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
