"""A recorded question as an assignor can be asked it again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from muster.assignors.api import Assignor, Snapshot
from muster.assignors.data.told import TOLD_BESIDE
from muster.assignors.registry import BUILT_IN, own_name, resolve
from muster.assignors.shield import is_ours


def restore_question(snapshot: Snapshot, assignor: Assignor) -> Snapshot:
    """The snapshot without options that are none of this assignor's: those that only the ledger was told, and, where
    another one had been asked, options of that one. What nobody has stays: it may be a slip of somebody's pen.
    """
    other = options_understood(snapshot.assignor) if is_another(snapshot.assignor, assignor) else ()
    mine = frozenset(getattr(assignor, "options", ()))
    options = {
        name: value
        for name, value in snapshot.options.items()
        if name not in TOLD_BESIDE and (name in mine or (other is not None and name not in other))
    }
    return snapshot if len(options) == len(snapshot.options) else replace(snapshot, options=options)


def is_another(word: str, assignor: Assignor) -> bool:
    """Only built-in assignors refuse options that they do not know."""
    return bool(word) and is_ours(assignor) and own_name(word) != assignor.name


def options_understood(word: str) -> Collection[str] | None:
    """The options of the assignor that had been asked; None: of a plugin, which may have any."""
    name = own_name(word)
    return frozenset(getattr(resolve(name), "options", ())) if name in BUILT_IN else None
