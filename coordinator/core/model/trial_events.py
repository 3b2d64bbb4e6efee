"""What operators ask of canaries, and what the node measures for them and makes of shadows."""

from typing import TypeAlias

from muster.coordinator.core.model.types import RequestId, Score
from muster.coordinator.core.model.value import frozen_value


@frozen_value
class StartCanary:
    """`assignor` is NAME or NAME{"option": value}; without `guards` the usual ones count.

    `lag_mean` is the mean of the group's total lag in the last hour, of which the sampler knows `lag_span_ms`.
    """

    request_id: RequestId
    group_id: str
    assignor: str
    for_ms: int
    guards: tuple[str, ...]
    lag_floor: int
    promotes: bool
    validate_only: bool
    operator: str
    lag_mean: float = 0.0
    lag_span_ms: int = 0


@frozen_value
class EndCanary:
    """`promote` False: rolled back."""

    request_id: RequestId
    group_id: str
    promote: bool
    operator: str


@frozen_value
class DescribeCanary:
    request_id: RequestId
    group_id: str


@frozen_value
class LagMeasured:
    """A sample of the group's lag, all partitions together. Asked for nothing but running canaries."""

    group_id: str
    lag: int


@frozen_value
class Shadowed:
    """What came of a `ShadowRequest`, under its ticket."""

    group_id: str
    ticket: int
    scores: tuple[Score, ...]


TrialEvent: TypeAlias = LagMeasured | Shadowed
CanaryRequest: TypeAlias = StartCanary | EndCanary | DescribeCanary
