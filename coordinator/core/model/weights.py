"""What partitions weigh and members carry where a plan is corrected: the plan was made to be even by that. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.assignors.api import Snapshot

CAPACITY = "member.capacity"

PAYS = 0.05
"""By this share the heavier of two members has to become lighter for a further partition to move."""

NEGLIGIBLE_WEIGHT = 1e-9
"""Of one partition more or less it is enough that it is lighter at all; sums of fractions are not exact."""

TopicPartition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionWeights:
    """`lags` None: each partition weighs the same. Only an assignor that goes by lags, or loads, is told of any."""

    lags: Mapping[str, Sequence[int]] | None
    capacity: Mapping[str, float]
    """By member id; 1 where nothing is said."""

    @property
    def by_count(self) -> bool:
        return self.lags is None

    def of(self, cell: TopicPartition) -> float:
        """Idle partitions weigh a little, as for the assignors: they are spread, too."""
        if self.lags is None:
            return 1.0
        topic, partition = cell
        row = self.lags.get(topic, ())
        return 1.0 + (max(0, row[partition]) if partition < len(row) else 0)

    def worth_it(self, heaviest: float) -> float:
        """What the heavier of two members may carry at most after a partition moved for evenness alone."""
        return heaviest * (1 - (NEGLIGIBLE_WEIGHT if self.by_count else PAYS))

    def carried(self, member_id: str, weight: float) -> float:
        """So much weight, as this member carries it."""
        return weight / self.capacity.get(member_id, 1.0)


def weights_of(snapshot: Snapshot) -> PartitionWeights:
    """By what the assignor of this snapshot makes members even."""
    stated = snapshot.options.get(CAPACITY)
    table = stated if isinstance(stated, Mapping) else {}
    capacity: dict[str, float] = {}
    for member in snapshot.members:
        for name in (member.id, member.instance_id):
            share = table.get(name) if name is not None else None
            if isinstance(share, int | float) and share > 0:
                capacity[member.id] = float(share)
                break
    return PartitionWeights(snapshot.lags, capacity)
