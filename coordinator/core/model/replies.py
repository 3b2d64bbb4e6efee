"""What operators are answered who ask about canaries."""

from collections.abc import Mapping
from dataclasses import field

from muster.coordinator.core.model.trial_records import CanaryStored
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.errors import ErrorCode


@frozen_value
class CanaryReply:
    """The canary as it is, or would be; None: the group never had one. `idle`: guards that do not count, and why."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    canary: CanaryStored | None = None
    idle: Mapping[str, str] = field(default_factory=dict)
