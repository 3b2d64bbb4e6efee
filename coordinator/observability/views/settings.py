"""The settings of a node, and of a group, a row each."""

import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from muster.coordinator.config import expected, known_settings
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR
from muster.storage.settings_text import setting_as_text


class NodeSettingRow(TypedDict):
    setting: str
    value: str
    default: str | None
    allowed: str | None
    meaning: str


def node_setting_row(name: str, value: str) -> NodeSettingRow:
    """`value` as a node says it. One of another version may have settings that are not known here."""
    field = known_settings().get(name)
    default = setting_as_text(field.default) or "" if field else None
    return {
        "setting": name,
        "value": value,
        "default": default,
        "allowed": expected(field) if field else None,
        "meaning": str(field.description) if field else "not known to this version",
    }


class GroupSettingRow(TypedDict):
    """`value` and `default` are JSON; None: not set, or not known to the node. `suspended`: why it has no effect though
    it is set; None: it has.
    """

    group: str
    version: int
    setting: str
    value: str | None
    default: str | None
    allowed: str | None
    meaning: str
    suspended: str | None


def group_setting_rows(
    group_id: str, version: int, values: Mapping[str, Any], defaults: Mapping[str, Any], suspended: str
) -> list[GroupSettingRow]:
    """What is set comes first; then what holds because nothing else is said. `suspended`: why `assignor` does not count
    until it is set again; empty: it does.
    """
    return [
        {
            "group": group_id,
            "version": version,
            "setting": name,
            "value": json.dumps(values[name], sort_keys=True) if name in values else None,
            "default": json.dumps(defaults[name], sort_keys=True) if name in defaults else None,
            "allowed": SETTINGS[name].shape.allowed if name in SETTINGS else None,
            "meaning": SETTINGS[name].meaning if name in SETTINGS else "not known to this version",
            "suspended": suspended if suspended and name == ASSIGNOR.name else None,
        }
        for name in (*sorted(values), *sorted(defaults.keys() - values.keys()))
    ]
