"""Every setting of a group, by its name. A new one is a line here, and nothing else anywhere but where it is used."""

from collections.abc import Mapping
from typing import Any, Final

from muster.coordinator.core.control.balance.settings import SETTINGS as BALANCE
from muster.coordinator.core.control.trials.setting import SHADOW_ASSIGNORS
from muster.coordinator.core.settings.assignor import ASSIGNOR, ASSIGNOR_OPTIONS, COOPERATIVE_ONLY, PROTOCOLS
from muster.coordinator.core.settings.consumer import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from muster.coordinator.core.settings.handoff import HANDOFF_TIMEOUT
from muster.coordinator.core.settings.holding import HOLD_MS
from muster.coordinator.core.settings.setting import Setting

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
