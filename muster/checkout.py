"""In a checkout, each folder is also importable by its own name: `coordinator.core` is `muster.coordinator.core`.

Both names refer to one module, so no class exists twice. An installed Muster has only the `muster.` names.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

ROOMS = ("assignors", "cli", "client", "coordinator", "spark", "storage", "workshop")


class SameModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `coordinator.x` as `muster.coordinator.x`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in ROOMS:
            return None
        theirs = importlib.util.find_spec(f"muster.{fullname}")
        if theirs is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=theirs.origin)
        spec.submodule_search_locations = theirs.submodule_search_locations
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Whatever stands in `sys.modules` after this is what the import answers."""
        sys.modules[module.__name__] = importlib.import_module(f"muster.{module.__name__}")

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m coordinator.cli`."""
        spec = importlib.util.find_spec(f"muster.{fullname}")
        loader = spec.loader if spec else None
        return loader.get_code(f"muster.{fullname}") if isinstance(loader, importlib.abc.InspectLoader) else None


def stand_in(name: str) -> None:
    """Called by a room's `__init__` that was imported as `name`: puts the real one in its place."""
    if not any(isinstance(finder, SameModule) for finder in sys.meta_path):
        sys.meta_path.insert(0, SameModule())
    sys.modules[name] = importlib.import_module(f"muster.{name}")
