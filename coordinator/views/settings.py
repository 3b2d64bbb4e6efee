"""The settings of a node, a row each."""

from typing_extensions import TypedDict

from muster.coordinator.config import expected, known_settings
from muster.storage.wording import as_text


class NodeSettingRow(TypedDict):
    setting: str
    value: str
    default: str | None
    allowed: str | None
    meaning: str


def node_setting_row(name: str, value: str) -> NodeSettingRow:
    """`value` as a node says it. One of another version may have settings that are not known here."""
    field = known_settings().get(name)
    default = as_text(field.default) or "" if field else None
    return {
        "setting": name,
        "value": value,
        "default": default,
        "allowed": expected(field) if field else None,
        "meaning": str(field.description) if field else "not known to this version",
    }
