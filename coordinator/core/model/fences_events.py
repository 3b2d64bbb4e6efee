"""What an owner asks so that the log can tell it from those before and after it."""

from muster.coordinator.core.model.types import RequestId
from muster.coordinator.core.model.value import frozen_value

NO_PRODUCER = -1


@frozen_value
class ClaimFence:
    """A member claims the fence of a partition, under the generation in which it gained the partition.

    `producer_id` and `epoch` are what an earlier claim of the same writer got, -1 for a first one. `fresh_id` is a
    producer id that nobody has had, in case the fence needs one.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    topic: str
    partition: int
    generation: int
    producer_id: int
    epoch: int
    fresh_id: int
