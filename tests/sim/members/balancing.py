"""An operator who has groups balanced, and the load that there is: one partition of a topic is hot, and it wanders."""

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.events import AlterSettings, LoadMeasured
from tests.sim.network import Network
from tests.sim.world import World

TIMEOUT_MS = 5_000
COOLDOWN_MS = 40_000
HOT_MS = 15_000
"""So long a partition stays hot."""
RULES: dict[str, JsonValue] = {
    "balance.sample.ms": 1_000,
    "balance.rounds": 2,
    "balance.cooldown.ms": COOLDOWN_MS,
    "balance.min.gain": 0.05,
}


def balance(network: Network, group_id: str) -> None:
    """Have the group balanced, watched, or left alone. Whoever cannot be balanced refuses."""
    network.world.census["settings of balance"] += 1
    mode = network.world.rng.choice(("act", "act", "act", "watch", "off"))
    request = AlterSettings(0, group_id, {"balance": mode, **RULES}, (), None, False, operator="ops")
    network.call("operator", request, TIMEOUT_MS, lambda _: None)


class Meter:
    """What a node would measure: everything that is written has been read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: dict[tuple[str, int], int] = {}
        self.until_ms: dict[str, int] = {}

    def measure(self, asked: MeasureLoad, at_ms: int) -> LoadMeasured:
        """`at_ms`: when, by the node's clock."""
        now_ms = self.world.now_ms
        if self.world.chance(0.02):
            return LoadMeasured(
                asked.group_id, asked.serial, at_ms=at_ms, last=True, refused="no room for its partitions"
            )
        rows = []
        for topic, count in asked.topics.items():
            seconds = (now_ms - self.until_ms.get(topic, 0)) // 1_000
            self.until_ms[topic] = self.until_ms.get(topic, 0) + seconds * 1_000
            hot = now_ms // HOT_MS * 7 % count
            for partition in range(count):
                rate = 500 if partition == hot else 100
                self.written[topic, partition] = self.written.get((topic, partition), 0) + rate * seconds
            ends = tuple(self.written[topic, partition] for partition in range(count))
            rows.append((topic, 0, ends, ends))
        return LoadMeasured(asked.group_id, asked.serial, tuple(rows), at_ms, last=True)
