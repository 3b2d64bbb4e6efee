"""An operator who sets and unsets things for groups, at random: with members, and one that never has any."""

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.effects import SettingsReply
from muster.coordinator.core.model.events import AlterSettings, DescribeSettings
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR_OPTIONS
from muster.coordinator.core.settings.setting import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from tests.sim.network import Answer, Network

TIMEOUT_MS = 5_000
BARE = "bare"
"""A group that is nothing but its settings."""

MIN_SESSION_MS, MAX_SESSION_MS = 6_000, 20_000
MIN_BEAT_MS, MAX_BEAT_MS = 1_000, 5_000
"""What the node allows; in between lies what it says itself."""


def choices(limits: Limits) -> dict[str, tuple[JsonValue, ...]]:
    """What may be set, and a value of each that is refused."""
    return {
        SESSION_TIMEOUT.name: (MIN_SESSION_MS, limits.consumer_session_timeout_ms, MAX_SESSION_MS, 1),
        HEARTBEAT_INTERVAL.name: (MIN_BEAT_MS, 2_000, MAX_BEAT_MS, "5000"),
        ASSIGNMENT_INTERVAL.name: (0, 1_000, 5_000, -1),
        ASSIGNOR_OPTIONS.name: ({"member.capacity": {"g0m0": 2.0}}, {"member.priority": {"g0m1": 1}}, {"no.such": 1}),
    }


class Setter:
    def __init__(self, network: Network, limits: Limits) -> None:
        self.network = network
        self.world = network.world
        self._choices = choices(limits)
        self._seen: dict[str, int] = {}
        """The version that each group's settings were last seen at."""

    def alter(self, group_id: str) -> None:
        """Half of all changes count on the version that was last seen; one in ten is a trial."""
        rng = self.world.rng
        group_id = rng.choice((group_id, BARE))
        names = sorted(rng.sample(sorted(self._choices), self.world.between(1, 2)))
        wanted = {name: rng.choice(self._choices[name]) for name in names if rng.random() < 0.7}
        unset = tuple(name for name in names if name not in wanted)
        expected = self._seen.get(group_id, 0) if rng.random() < 0.5 else None
        trial = self.world.chance(0.1)
        request = AlterSettings(0, group_id, wanted, unset, expected, validate_only=trial, operator="ops at host")
        self.network.call("operator", request, TIMEOUT_MS, lambda answer: self._hear(group_id, answer, trial=trial))
        if rng.random() < 0.5:
            self.network.call(
                "operator", DescribeSettings(0, group_id), TIMEOUT_MS, lambda answer: self._hear(group_id, answer)
            )

    def _hear(self, group_id: str, answer: Answer, *, trial: bool = False) -> None:
        if not isinstance(answer, SettingsReply):
            return
        self.world.census[f"changes of settings: {answer.code.name}"] += 1
        if not answer.code and not trial:
            self._seen[group_id] = answer.version
