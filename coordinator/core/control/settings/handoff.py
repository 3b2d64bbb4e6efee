"""How long an old owner may drain."""

from muster.coordinator.core.control.settings.setting import Of, Setting
from muster.coordinator.core.control.settings.shapes import Whole

HANDOFF_TIMEOUT = Setting(
    name="handoff.timeout.ms",
    shape=Whole(0),
    default=0,
    groups=Of.PLANNED,
    meaning="How long whoever has to let go of a partition may take before it is taken; 0: its rebalance timeout.",
)
