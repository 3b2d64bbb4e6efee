"""What operators ask of a group that works."""

from typing import TypeAlias

from muster.coordinator.core.control.holds.values import By, Orphans, Seen
from muster.coordinator.core.types import RequestId
from muster.coordinator.core.value import value


@value
class AskFreeze:
    """`orphans` None: as suits the group."""

    orphans: Orphans | None = None


@value
class AskDeploy:
    expect: int


@value
class AskDrain:
    by: By
    name: str


@value
class AskPin:
    topic: str
    partition: int
    name: str


Ask: TypeAlias = AskFreeze | AskDeploy | AskDrain | AskPin


@value
class HoldGroup:
    """Something of the group shall be held from now on. `for_ms` None: until it is resumed.

    `expected_version` None: whatever it is. `operator` is who asks, and from where.
    """

    request_id: RequestId
    group_id: str
    ask: Ask
    for_ms: int | None
    expected_version: int | None
    validate_only: bool
    operator: str
    seen: Seen | None = None
    """What the group's partitions carry, if the node knows; said of what a drain or a pin moves."""


@value
class EndFreeze:
    """No freeze any more."""


@value
class EndDeploy:
    """No deploy any more."""


@value
class Undrain:
    by: By
    name: str


@value
class Unpin:
    topic: str
    partition: int


End: TypeAlias = EndFreeze | EndDeploy | Undrain | Unpin


@value
class ResumeGroup:
    """`end` None: nothing of the group is held any more."""

    request_id: RequestId
    group_id: str
    end: End | None
    expected_version: int | None
    validate_only: bool
    operator: str


@value
class DescribeHolds:
    """What is held of a group."""

    request_id: RequestId
    group_id: str


ControlRequest: TypeAlias = HoldGroup | ResumeGroup | DescribeHolds
