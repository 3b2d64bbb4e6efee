"""The settings of a group's balance, as entries of the table of settings."""

from typing import Any

from muster.coordinator.core.control.balance import door
from muster.coordinator.core.control.balance.resting import why_balance_cannot_act
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.settings.assignor import ASSIGNOR, check_said_once
from muster.coordinator.core.settings.rules import ACT, FIELDS, BalanceRules
from muster.coordinator.core.settings.setting import (
    Check,
    GroupScope,
    Setting,
    SettingsChange,
    accept_any_value,
    invalid_setting,
)


def check_may_act(value: str, change: SettingsChange) -> None:
    """Only where single partitions can be moved, and by the coordinator."""
    if value != ACT:
        return
    plans_itself = change.kind.plans_itself(change.group) and ASSIGNOR.name not in change.after
    if why := why_balance_cannot_act(change.group, plans_itself):
        raise invalid_setting(f"balance cannot be {ACT!r}: {why}")


def apply_balance_change(change: SettingsChange, trigger: RebalanceTrigger) -> None:
    door.apply_balance_settings(change.group_id, change.step)


def balance_setting(name: str, meaning: str, check: Check = accept_any_value) -> Setting[Any]:
    field, shape = FIELDS[name]
    return Setting(
        name,
        shape,
        getattr(BalanceRules(), field),
        GroupScope.PLANNED,
        meaning,
        check,
        check_said_once,
        apply_balance_change,
    )


SETTINGS = (
    balance_setting(
        "balance",
        "Whether load is measured and kept even: watch tells what it would move, act moves it.",
        check_may_act,
    ),
    balance_setting(
        "balance.min.gain", "By this share the heaviest member has to become lighter before anything moves."
    ),
    balance_setting("balance.rounds", "In so many evaluations in a row a plan has to pay before it is carried out."),
    balance_setting("balance.cooldown.ms", "So many milliseconds a partition stays where it is once it has moved."),
    balance_setting("balance.move.budget", "At most so many partitions are moved at a time; 0 moves all that pay."),
    balance_setting("balance.sample.ms", "So many milliseconds lie between two measurements of the group's load."),
    balance_setting(
        "balance.drain.target.ms", "Records that wait count as load that is to be read within so many milliseconds."
    ),
)
