"""The driver of one streaming query: what is new, how much of it the next batch takes, and what is done."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming.datasource import ReadLimit

from muster.client.calls.transport import now_ms
from muster.spark.kafka_options import warn_of_ignored
from muster.spark.lookup import LogView, LogWatch, LookupKey, NodeLookup
from muster.spark.partition_stream import DirectFollower
from muster.spark.planning import OffsetRange
from muster.spark.read_options import ReadOptions
from muster.spark.stream_offsets import Admission, PartitionProgress, StreamOffset, count_records, parse_offset

if TYPE_CHECKING:
    from muster.spark.lookup import RecordSizes


class OffsetFollower(Protocol):
    """Which partitions a query reads and from where: its own checkpoint's, or those of its member of a group."""

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint begins."""

    def pending(self, start: StreamOffset, view: LogView) -> list[OffsetRange]:
        """What is behind `start`, up to the ends of the logs."""

    def offset(self, ranges: list[OffsetRange], view: LogView) -> StreamOffset:
        """The end of a batch that reads these."""

    def finished(self, end: StreamOffset) -> None:
        """The batch that ends here is done."""

    def close(self) -> None: ...


class StreamDriver:
    """Answers Spark's questions from what a background task knows."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        warn_of_ignored(options.ignored)
        self._lookup = NodeLookup(options)
        self._watch = LogWatch(self._lookup, options.offsets_refresh_ms)
        self._admission = Admission(options, self._record_bytes)
        self._sizes: RecordSizes | None = None
        self._follower: OffsetFollower = self._make_follower()
        self._target: LogView | None = None
        self._idle_view: LogView | None = None
        self._idle_start: dict[str, Any] = {}

    def _make_follower(self) -> OffsetFollower:
        options, lookup, watch = self._options, self._lookup, self._watch
        if options.group_id is None:
            return DirectFollower(options, lookup, watch)
        # What only members need is loaded for members only: a query waits for its source's process to start.
        if options.joins_group:
            from muster.spark.group_stream import GroupFollower

            return GroupFollower(options, lookup, watch)
        from muster.spark.partition_stream import CommittingFollower

        return CommittingFollower(options, lookup, watch)

    def drain(self) -> None:
        """Trigger.AvailableNow: what is there now is all that will be read."""
        self._admission.drains = True
        self._target = self._watch.watch_log()

    def initial(self) -> dict[str, Any]:
        return self._follower.initial().to_dict()

    def latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, or `start` itself: Spark takes any other text for news."""
        view = self._target or self._watch.view()
        if view is self._idle_view and start == self._idle_start:
            # Asked again before anything could have changed, as Spark does all the time.
            return start
        before = parse_offset(start)
        pending = self._follower.pending(before, view)
        if not count_records(pending):
            if before.initial and pending:
                # A batch without records: from here on the checkpoint knows where the query began.
                return self._follower.offset(pending, view).to_dict()
            self._remember_idle(view, start)
            return start
        admitted = self._admission.admitted(pending, limit, now_ms())
        if not count_records(admitted):
            return start
        return self._follower.offset(admitted, view).to_dict()

    def _remember_idle(self, view: LogView, start: dict[str, Any]) -> None:
        """A member has to follow its group at every call; whoever reads alone depends on nothing but the view."""
        if not self._options.joins_group:
            self._idle_view, self._idle_start = view, start

    def report(self) -> dict[str, Any] | None:
        """Where logs end, for the progress that Spark reports."""
        view = self._watch.view()
        ends = {tp: PartitionProgress(known.end, known.end) for tp, known in view.bounds.items()}
        servers = self._lookup.transport.config.bootstrap_servers
        return StreamOffset(ends, {}, servers, self._options.group_id or "").to_dict()

    def finished(self, end: dict[str, Any]) -> None:
        self._follower.finished(parse_offset(end))

    def close(self) -> None:
        try:
            self._follower.close()
        finally:
            self._watch.stop()
            self._lookup.close()

    def _record_bytes(self, ranges: Collection[OffsetRange]) -> Mapping[LookupKey, float]:
        if self._sizes is None:
            from muster.spark.lookup import RecordSizes

            self._sizes = RecordSizes(self._lookup, self._options)
        return self._sizes.of(ranges)
