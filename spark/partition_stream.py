"""Streams of partitions that the options name: offsets in Spark's checkpoint, optionally committed to a group without
being a member.

The checkpoint decides where to continue; the group's offsets follow it, as for a consumer with `assign`. A partition
that is gone is data loss or is left out, as the options say; a topic that was deleted and created again starts anew.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from muster.client.errors import ConfigError, Refused
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.spark.lookup import LogView, LogWatch, LookupKey, NodeLookup
from muster.spark.planning import OffsetRange
from muster.spark.read_options import NOT_READ_REMEDY, DataLoss, ReadOptions
from muster.spark.stream_offsets import PartitionProgress, StreamOffset, find_positions_ahead

# Offsets in the checkpoint alone
# -------------------------------


class DirectFollower:
    """Follows the partitions that the options name, from where the checkpoint says."""

    def __init__(self, options: ReadOptions, lookup: NodeLookup, watch: LogWatch) -> None:
        self._options = options
        self._lookup = lookup
        self._watch = watch
        self._servers = lookup.transport.config.bootstrap_servers
        self._initial: StreamOffset | None = None

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint begins; settled once, for Spark asks twice."""
        if self._initial is None:
            view = self._watch.watch_log()
            self._lookup.partitions_of(view.topics)
            work = self._lookup.positions(self._options.starting, view.bounds)
            positions = self._lookup.run(work)
            begun = self._offset({tp: PartitionProgress(at, at) for tp, at in positions.items()}, view)
            self._initial = replace(begun, initial=self._options.begins_with_the_moment)
        return self._initial

    def pending(self, start: StreamOffset, view: LogView) -> list[OffsetRange]:
        """For each partition what is behind `start`, also if that is nothing. New partitions begin at their start."""
        check_missing_partitions(start, view, self._options)
        found = []
        for tp, known in sorted(view.bounds.items()):
            progress = start.partitions.get(tp)
            if progress is None or is_recreated(start, view, tp[0], self._options, self._lookup):
                found.append(OffsetRange(*tp, known.start, known.end))
            else:
                position = self._lookup.held(tp, progress.end, known, "the next offset to read")
                found.append(OffsetRange(*tp, position, known.end))
        return found

    def offset(self, ranges: list[OffsetRange], view: LogView) -> StreamOffset:
        """The end of a batch that reads these."""
        return self._offset({wanted.tp: PartitionProgress(wanted.start, wanted.end) for wanted in ranges}, view)

    def _offset(self, partitions: Mapping[LookupKey, PartitionProgress], view: LogView) -> StreamOffset:
        topics = {topic for topic, _ in partitions}
        return StreamOffset(partitions, view.topic_ids(topics), self._servers)

    def finished(self, end: StreamOffset) -> None:
        """The checkpoint knows; nobody else has to."""

    def close(self) -> None:
        """Nothing is held beyond the lookups."""


def check_missing_partitions(start: StreamOffset, view: LogView, options: ReadOptions) -> None:
    """Raise DataLoss for a partition that was read before and no longer exists, or leave it out."""
    gone = sorted(set(start.partitions) - set(view.bounds))
    if gone and options.fail_on_data_loss:
        topic, partition = gone[0]
        progress = start.partitions[topic, partition]
        if (option := find_excluding_option(options, topic, partition)) is not None:
            raise DataLoss(
                f"{topic}-{partition} was read up to offset {progress.end} by this checkpoint, and {option} leaves it "
                "out now",
                NOT_READ_REMEDY,
            )
        raise DataLoss(f"{topic}-{partition} was read up to offset {progress.end} and does not exist any more")


def find_excluding_option(options: ReadOptions, topic: str, partition: int) -> str | None:
    """The option that says what to read, if it does not mean this partition."""
    if options.assign is not None:
        return None if partition in options.assign.get(topic, ()) else "assign"
    if options.subscribe_pattern is not None:
        return None if re.fullmatch(options.subscribe_pattern, topic) else "subscribePattern"
    return None if topic in options.topics else "subscribe"


def is_recreated(start: StreamOffset, view: LogView, topic: str, options: ReadOptions, lookup: NodeLookup) -> bool:
    """Whether this is another topic of the same name; its offsets have nothing to do with the old one's."""
    before, now = start.topic_ids.get(topic), view.topics[topic].id
    if before in (None, now):
        return False
    loss = DataLoss(f"topic {topic} was deleted and made again (its id was {before} and is {now})")
    if options.fail_on_data_loss:
        raise loss
    lookup.warn(f"{loss.brief}; reading it from its beginning")
    return True


# Offsets committed to a group as well
# ------------------------------------

UNKNOWN_MEMBER = 25


class CommittingFollower(DirectFollower):
    """Its place is in the checkpoint; what the group knows follows it."""

    def __init__(self, options: ReadOptions, lookup: NodeLookup, watch: LogWatch) -> None:
        super().__init__(options, lookup, watch)
        self._told: dict[LookupKey, int] | None = None

    def pending(self, start: StreamOffset, view: LogView) -> list[OffsetRange]:
        self.finished(start)
        return super().pending(start, view)

    def finished(self, end: StreamOffset) -> None:
        """Commit what the group does not know yet; never back behind what it knows."""
        if not self._options.commit_offsets:
            return
        if self._told is None:
            self._told = self._lookup.run(self._lookup.committed(end.partitions))
        fresh = find_positions_ahead(end, self._told)
        if not fresh:
            return
        calls = self._lookup.group
        assert calls is not None, "the options name a group"
        offsets = {TopicPartition(*tp): OffsetAndMetadata(offset) for tp, offset in fresh.items()}
        try:
            self._lookup.run(calls.commit(offsets, None))
        except Refused as error:
            if error.code != UNKNOWN_MEMBER:
                raise
            raise ConfigError(
                f"group {calls.group_id!r} has members, so nobody else may commit for it; use subscribe instead of "
                "assign to be one of them, another group.id, or commitOffsets=false"
            ) from None
        self._told.update(fresh)
