"""A plugin's private copy of the snapshot: whatever it does to it, the checks and the ledger see the original."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from muster.assignors.api import Assignor, Member, Snapshot


def is_ours(assignor: Assignor) -> bool:
    """Whether an assignor is part of this package, and may be shown the original."""
    return type(assignor).__module__.startswith(f"{__package__}.")


def shielded(snapshot: Snapshot) -> Snapshot:
    """A copy down to the last list. A table of members is shared: it and its arrays are read-only."""
    members = snapshot.members
    return replace(
        snapshot,
        topics=MappingProxyType(dict(snapshot.topics)),
        members=[_copied(member) for member in members] if isinstance(members, (list, tuple)) else members,
        lags=None
        if snapshot.lags is None
        else MappingProxyType({topic: tuple(row) for topic, row in snapshot.lags.items()}),
        racks=None
        if snapshot.racks is None
        else MappingProxyType({topic: tuple(map(tuple, row)) for topic, row in snapshot.racks.items()}),
        options=MappingProxyType(dict(snapshot.options)),
        stale=MappingProxyType({topic: tuple(row) for topic, row in snapshot.stale.items()}),
    )


def _copied(member: Member) -> Member:
    if member.owned is None:
        return member
    return replace(member, owned={topic: tuple(row) for topic, row in member.owned.items()})
