"""What the node's rooms have to say about trouble, as conditions: one sentence each, what is wrong and what to do."""

from collections.abc import Mapping, Sequence

from muster.coordinator.runtime.conditions import GROUPS, LOG, Conditions
from muster.coordinator.runtime.slot import ShardStatus, not_served_sentence

UPKEEP_TROUBLE_MS = 600_000
"""The log's periodic work counts as failing until none of it has failed for so long: retention is looked at seldom."""


def update_shard_condition(conditions: Conditions, shard: int, status: ShardStatus, why: str) -> None:
    name = f"shard-failed:{shard}"
    if status is ShardStatus.FAILED:
        conditions.report(name, not_served_sentence(shard, why), impairs=GROUPS)
    else:
        conditions.clear(name)


def update_starved_condition(conditions: Conditions, starved: Mapping[int, str]) -> None:
    """`starved`: the shards whose log has no room, and what it said."""
    if not starved:
        conditions.clear("groups-starved")
        return
    shards = ", ".join(str(shard) for shard in sorted(starved))
    conditions.report(
        "groups-starved",
        f"nothing can be written for the groups of shards {shards}: {next(iter(starved.values()))} Commits and joins "
        "are refused meanwhile, heartbeats and reads go on; free some space, no restart is needed",
        impairs=GROUPS,
    )


def update_disk_room_condition(conditions: Conditions, shortage: str) -> None:
    """`shortage`: how little room the disk has left; empty while there is enough."""
    if shortage:
        conditions.report("disk-nearly-full", shortage)
    else:
        conditions.clear("disk-nearly-full")


def update_write_condition(conditions: Conditions, refusal: str, before: str) -> None:
    """`refusal`: what the system said when something was to be written, `before` what it said the last time; empty: it
    took it, and so much as the log was last refused. What the log is refused meanwhile is the log's to tell
    (`LogTroubles`).
    """
    if refusal:
        conditions.report("disk-full", refusal, impairs=LOG)
    elif before:
        conditions.clear("disk-full")


def update_upkeep_condition(conditions: Conditions, complaints: Sequence[str]) -> None:
    for complaint in complaints:
        sentence = f"retention, checkpoints, flushes by age or compaction fail and are tried again: {complaint}"
        conditions.report("upkeep-failing", sentence, impairs=LOG, lasting_ms=UPKEEP_TROUBLE_MS)


def update_lost_explanations_condition(conditions: Conditions, losses: Sequence[str]) -> None:
    for loss in losses:
        conditions.report("explanations-lost", loss, lasting_ms=UPKEEP_TROUBLE_MS)
