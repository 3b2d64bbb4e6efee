"""What commands ask a node about rebalances, answered from records instead."""

from pathlib import Path

from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove, NodeStall, Rebalance
from muster.coordinator.server.services.group_responses import build_rebalance
from muster.coordinator.watch.segment_files import find_segments, read_segments
from muster.coordinator.watch.watched_groups import WatchedGroup, WatchedGroups


class GroupNotInRecords(LookupError):
    """No record names the group; the message lists some that are there."""


class RecordsSource:
    """The part of `muster.client.Admin` that tells of rebalances."""

    def __init__(self, groups: WatchedGroups) -> None:
        self._groups = groups

    def explain(
        self, group_id: str, limit: int = 0, generation: int = 0, include_snapshots: bool = False
    ) -> list[Rebalance]:
        """Newest first, as `Admin.explain`. Raises GroupNotInRecords."""
        entries = self._group(group_id).entries
        found = [
            build_rebalance(group_id, entry, with_snapshot=include_snapshots)
            for entry in reversed(entries)
            if not generation or entry.generation == generation
        ]
        return found[:limit] if limit else found

    def stalls(self, group_id: str, limit: int = 0) -> list[NodeStall]:
        """None: records do not tell of them."""
        return []

    def moves(self, group_id: str, limit: int = 0) -> list[CoordinatorMove]:
        return []

    def _group(self, group_id: str) -> WatchedGroup:
        group = self._groups.groups.get(group_id)
        if group is None:
            known = sorted(each.id for each in self._groups.told_of())
            named = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
            raise GroupNotInRecords(
                f"no record names the group {group_id!r}; there are records of: {named or 'no group'}"
            )
        return group


def open_segments(paths: tuple[Path, ...]) -> RecordsSource:
    """Raises NoSegments."""
    groups = WatchedGroups()
    read_segments(find_segments(paths), groups)
    return RecordsSource(groups)
