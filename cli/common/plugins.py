"""Assignors named as module:Class that lie in the current directory: whoever writes one stands beside it."""

import sys

HERE = ""
"""How Python's import path names the current directory, wherever that will be."""


def find_plugins_here() -> None:
    """Modules of the current directory can be imported; installed ones of the same name go first."""
    if HERE not in sys.path:
        sys.path.append(HERE)
