"""What operators ask of a group that works."""

from typing import TypeAlias

from muster.coordinator.core.model.types import RequestId
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.core.model.values import By, MeasuredRates, Orphans


@frozen_value
class AskFreeze:
    """`orphans` None: as suits the group."""

    orphans: Orphans | None = None


@frozen_value
class AskDeploy:
    expect: int


@frozen_value
class AskDrain:
    by: By
    name: str


@frozen_value
class AskPin:
    topic: str
    partition: int
    name: str


OverrideRequest: TypeAlias = AskFreeze | AskDeploy | AskDrain | AskPin


@frozen_value
class HoldGroup:
    """Something of the group shall be held from now on. `for_ms` None: until it is resumed.

    `expected_version` None: whatever it is. `operator` is who asks, and from where.
    """

    request_id: RequestId
    group_id: str
    ask: OverrideRequest
    for_ms: int | None
    expected_version: int | None
    validate_only: bool
    operator: str
    seen: MeasuredRates | None = None
    """What the group's partitions carry, if the node knows; said of what a drain or a pin moves."""


@frozen_value
class EndFreeze:
    """No freeze any more."""


@frozen_value
class EndDeploy:
    """No deploy any more."""


@frozen_value
class Undrain:
    by: By
    name: str


@frozen_value
class Unpin:
    topic: str
    partition: int


OverrideEnd: TypeAlias = EndFreeze | EndDeploy | Undrain | Unpin


@frozen_value
class ResumeGroup:
    """`end` None: nothing of the group is held any more."""

    request_id: RequestId
    group_id: str
    end: OverrideEnd | None
    expected_version: int | None
    validate_only: bool
    operator: str


@frozen_value
class DescribeHolds:
    """What is held of a group."""

    request_id: RequestId
    group_id: str


ControlRequest: TypeAlias = HoldGroup | ResumeGroup | DescribeHolds
