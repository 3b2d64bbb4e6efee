"""Where a simulation's snapshot comes from: a file, a live group, a recorded rebalance; and what to change in it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.cli.common.errors import CommandError, Exit

if TYPE_CHECKING:
    from muster.assignors.api import Snapshot
    from muster.assignors.tools.what_if import SnapshotChange
    from muster.client import Admin


def read_snapshot(file: Path) -> "Snapshot":
    from muster.assignors.api import Snapshot
    from muster.assignors.tools.problem import snapshot_of

    try:
        text = file.read_text(encoding="utf-8")
        raw = json.loads(text)
        # The ledger's members carry `owned` as an object, the problems of `muster assign` as pairs.
        return snapshot_of(raw) if is_problem(raw) else Snapshot.from_json(text)
    except ValueError as error:
        raise CommandError(
            f"{file}: {error}", "expected a snapshot or an assignment problem", code=Exit.USAGE
        ) from error


def is_problem(raw: Any) -> bool:
    members = raw.get("members") if isinstance(raw, dict) else None
    topics = raw.get("topics") if isinstance(raw, dict) else None
    listed = isinstance(topics, dict) and any(isinstance(count, list) for count in topics.values())
    pairs = isinstance(members, list) and any(isinstance(m, dict) and isinstance(m.get("owned"), list) for m in members)
    return listed or pairs


def read_group(admin: "Admin", group: str, entry: int | None, reset: str) -> "Snapshot":
    """The group as it stands, or what the ledger keeps of its rebalance number `entry`."""
    from muster.assignors.api import Snapshot

    if entry is None:
        return admin.live_snapshot(group, reset)
    recorded = {rebalance.number: rebalance for rebalance in admin.explain(group, include_snapshots=True)}
    if entry not in recorded:
        numbers = f"{min(recorded)} to {max(recorded)}" if recorded else "none"
        raise CommandError(
            f"group {group!r} has no rebalance {entry}", f"the ledger keeps {numbers}", code=Exit.NOT_FOUND
        )
    if not recorded[entry].snapshot_json:
        what = f"rebalance {entry} of group {group!r} was recorded without a snapshot"
        raise CommandError(what, code=Exit.NOT_FOUND)
    return Snapshot.from_json(recorded[entry].snapshot_json)


def make_change(asked: dict[str, Any]) -> "SnapshotChange":
    from muster.assignors.tools.what_if import SnapshotChange

    lags = read_lags(asked["lags"]) if asked["lags"] else None
    options = {key: parse_value(value) for key, value in asked["options"].items()} or None
    return SnapshotChange(add=asked["add"], remove=asked["remove"], lags=lags, options=options)


def parse_value(value: str) -> Any:
    """Numbers and booleans as such, everything else as text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_lags(file: Path) -> dict[str, list[int]]:
    try:
        return {
            str(topic): [int(lag) for lag in row] for topic, row in json.loads(file.read_text(encoding="utf-8")).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        expected = "expected JSON {topic: [lag of partition 0, 1, ...]}"
        raise CommandError(f"{file}: {error}", expected, code=Exit.USAGE) from error
