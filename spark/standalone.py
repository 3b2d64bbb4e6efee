"""A stream of named partitions that commits to a group and is no member of it, as a consumer with `assign`."""

from muster.client.errors import ConfigError, Refused
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.spark.direct import DirectFollower
from muster.spark.lookup import LookupKey, NodeLookup
from muster.spark.offsets import StreamOffset, find_positions_ahead
from muster.spark.planning import OffsetRange
from muster.spark.reading_options import ReadOptions
from muster.spark.watch import LogView, LogWatch

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
