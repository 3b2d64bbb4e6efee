"""The settings of a group's balance, as entries of the table of settings."""

from typing import Any

from muster.coordinator.core.control.balance import door
from muster.coordinator.core.control.balance.resting import cannot_act
from muster.coordinator.core.control.balance.rules import ACT, FIELDS, Rules
from muster.coordinator.core.control.settings.assignor import ASSIGNOR, said_once
from muster.coordinator.core.control.settings.setting import Change, Check, Of, Setting, anything, invalid
from muster.coordinator.core.ledger import Trigger


def may_act(value: str, change: Change) -> None:
    """Only where single partitions can be moved, and by the coordinator."""
    if value != ACT:
        return
    plans_itself = change.kind.plans_itself(change.group) and ASSIGNOR.name not in change.after
    if why := cannot_act(change.group, plans_itself):
        raise invalid(f"balance cannot be {ACT!r}: {why}")


def heard(change: Change, trigger: Trigger) -> None:
    door.settings_changed(change.group_id, change.step)


def entry(name: str, meaning: str, check: Check = anything) -> Setting[Any]:
    field, shape = FIELDS[name]
    return Setting(name, shape, getattr(Rules(), field), Of.PLANNED, meaning, check, said_once, heard)


SETTINGS = (
    entry("balance", "Whether load is measured and kept even: watch tells what it would move, act moves it.", may_act),
    entry("balance.min.gain", "By this share the heaviest member has to become lighter before anything moves."),
    entry("balance.rounds", "In so many evaluations in a row a plan has to pay before it is carried out."),
    entry("balance.cooldown.ms", "So many milliseconds a partition stays where it is once it has moved."),
    entry("balance.move.budget", "At most so many partitions are moved at a time; 0 moves all that pay."),
    entry("balance.sample.ms", "So many milliseconds lie between two measurements of the group's load."),
    entry("balance.drain.target.ms", "Records that wait count as load that is to be read within so many milliseconds."),
)
