"""How long what a member leaves waits for whoever comes after it."""

from muster.coordinator.core.settings.setting import GroupScope, Setting
from muster.coordinator.core.settings.shapes import WholeNumber

HOLD_MS = Setting(
    name="hold.ms",
    shape=WholeNumber(0, 86_400_000),
    default=0,
    groups=GroupScope.PLANNED,
    meaning=(
        "How long the share of a dynamic member that went waits for an heir, in milliseconds; 0: not at all, and 120 s "
        "while a deploy is on."
    ),
)
