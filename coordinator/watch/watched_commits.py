"""How often a watched group commits and how its positions moved, by what was read of the offsets topic."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.observability.read_model.commit_history import CommitTrail, SeenPosition, count_commits
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.record_fields import plain_string
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.coordinator.watch.watched_positions import NEVER, WatchedPositions, row_of

ROWS_AT_ONCE: Final = 100
"""Rows that are read in one turn of the loop."""

PLACES_TRIED: Final = 10
"""Of a group whose partition of the topic is looked for."""


class WatchedCommits:
    """Of all groups. partitions: those of the topic that were read, by number. count: how many it has; 0: nobody
    knows."""

    def __init__(self, partitions: Callable[[], Mapping[int, WatchedPartition]], count: Callable[[], int]) -> None:
        self._partitions = partitions
        self._count = count

    async def add_to(self, answer: pb.OffsetFetchResponse, group_id: str) -> None:
        """Fill in what is known of the positions in the answer; others have their turns in between."""
        group = plain_string(group_id)
        rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
        tried = [(topic, row.partition_index) for topic, row in rows[:PLACES_TRIED]]
        read = self._partitions()
        number = next(
            (
                number
                for number, each in read.items()
                if any(row_of(each.positions, group, place) != NEVER for place in tried)
            ),
            None,
        )
        if number is None:
            return
        watched = read[number]
        trails, own = [], 0
        for done, (topic, row) in enumerate(rows, 1):
            commits, trail = fill_trail(watched.positions, group, topic, row)
            own += commits
            trails.append(trail)
            if not done % ROWS_AT_ONCE:
                await asyncio.sleep(0)
        records, from_ms, to_ms = count_commits(trails)
        answer.traffic.CopyFrom(
            pb.CommitTraffic(
                records=records,
                from_ms=from_ms,
                to_ms=to_ms,
                kept_in=f"__consumer_offsets-{number}",
                partition_records=watched.records,
                partition_own=own,
                topic_records=sum(each.records for each in read.values()) if len(read) == self._count() else 0,
            )
        )


def fill_trail(
    positions: WatchedPositions, group: bytes, topic: str, row: pb.OffsetFetchPartition
) -> tuple[int, CommitTrail]:
    """How often the position was committed, and how it moved; what is known is put into its row of the answer."""
    at = row_of(positions, group, (topic, row.partition_index))
    if at == NEVER:
        return 0, CommitTrail()
    commits, samples = positions.trail_of(at)
    told = row.trail
    told.commits = commits
    told.times_ms.extend(sample.at_ms for sample in samples)
    told.offsets.extend(sample.offset for sample in samples)
    told.counts.extend(sample.commits for sample in samples)
    seen = CommitTrail.of(SeenPosition(*sample) for sample in samples)
    return commits, seen.extended(SeenPosition(positions.last_ms[at], row.committed_offset, commits))
