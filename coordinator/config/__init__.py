"""Every setting of a node: Kafka's dotted names, a default, bounds, and one sentence each.

One file a room; `Settings` is all of them together. `load_settings` reads a properties file and overrides,
`render_properties` writes the file that says everything.
"""

from muster.coordinator.config.addresses import Address, ConnectString, parse_address, parse_connect
from muster.coordinator.config.properties import SettingsError, expected, load_settings, render_properties
from muster.coordinator.config.settings import Settings, known_settings

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
