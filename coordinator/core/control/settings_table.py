"""Every setting of a group, by its name. A new setting is a line here and a definition where its meaning is."""

from collections.abc import Mapping
from typing import Any, Final

from muster.coordinator.core.control.balance.balance_switch import SETTINGS as BALANCE
from muster.coordinator.core.control.trials.shadow_assignors import SHADOW_ASSIGNORS
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR, ASSIGNOR_OPTIONS, COOPERATIVE_ONLY, PROTOCOLS
from muster.coordinator.core.settings.setting import (
    ASSIGNMENT_INTERVAL,
    HANDOFF_TIMEOUT,
    HEARTBEAT_INTERVAL,
    HOLD_MS,
    SESSION_TIMEOUT,
    Setting,
)

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    setting.name: setting
    for setting in (
        ASSIGNOR,
        PROTOCOLS,
        ASSIGNOR_OPTIONS,
        COOPERATIVE_ONLY,
        HOLD_MS,
        SESSION_TIMEOUT,
        HEARTBEAT_INTERVAL,
        ASSIGNMENT_INTERVAL,
        SHADOW_ASSIGNORS,
        *BALANCE,
        HANDOFF_TIMEOUT,
    )
}
