"""The fact behind a fence."""

from typing import TypeAlias

from muster.coordinator.core.model.value import frozen_value


@frozen_value
class FenceStored:
    """Who may write on behalf of a partition: the newest ownership, a producer id and its epoch.

    `former` are the producer ids of this fence whose epochs were used up. `member_id` has claimed it last, under
    `generation`, at `claimed_at_ms`.
    """

    group_id: str
    topic: str
    partition: int
    producer_id: int
    epoch: int
    former: tuple[int, ...]
    member_id: str
    generation: int
    claimed_at_ms: int


@frozen_value
class FenceForgotten:
    """The tombstone of a fence: its group is gone."""

    group_id: str
    topic: str
    partition: int


FenceRecord: TypeAlias = FenceStored | FenceForgotten
