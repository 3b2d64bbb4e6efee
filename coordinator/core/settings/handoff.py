"""How long an old owner may drain."""

from muster.coordinator.core.settings.setting import GroupScope, Setting
from muster.coordinator.core.settings.shapes import WholeNumber

HANDOFF_TIMEOUT = Setting(
    name="handoff.timeout.ms",
    shape=WholeNumber(0),
    default=0,
    groups=GroupScope.PLANNED,
    meaning="How long whoever has to let go of a partition may take before it is taken; 0: its rebalance timeout.",
)
