"""The settings of a node: Kafka's dotted names, each with a default, bounds and one sentence.

`Settings` combines one pydantic model per topic; the modules are grouped by what they configure. `load_settings`
reads a properties file and overrides, `render_properties` writes the file that sets everything to its default.
"""

from muster.coordinator.config.properties import SettingsError, expected, load_settings, render_properties
from muster.coordinator.config.settings import Settings, known_settings
from muster.coordinator.config.values import Address, ConnectString, parse_address, parse_connect

__all__ = [
    "Address",
    "ConnectString",
    "Settings",
    "SettingsError",
    "expected",
    "known_settings",
    "load_settings",
    "parse_address",
    "parse_connect",
    "render_properties",
]
