"""How much of what is pending the next micro-batch takes: Spark's read limit and our own options together."""

from collections.abc import Callable, Collection, Mapping, Sequence

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from muster.spark.limits import must_wait, share_bytes, share_records
from muster.spark.offsets import count_records
from muster.spark.planning import OffsetRange
from muster.spark.reading_options import ReadOptions

PartitionKey = tuple[str, int]
RecordBytes = Callable[[Collection[OffsetRange]], Mapping[PartitionKey, float]]


def default_limit(options: ReadOptions) -> ReadLimit:
    """What Spark is told, and hands back with each question. It has no way to say two limits at once."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


class Admission:
    """Decides for one query. `record_bytes` measures how long records are, where a limit of bytes needs it."""

    def __init__(self, options: ReadOptions, record_bytes: RecordBytes) -> None:
        self._options = options
        self._record_bytes = record_bytes
        self._last_trigger_ms: int | None = None
        self.drains = False
        """With Trigger.AvailableNow nothing more comes, so there is nothing to wait for."""

    def admitted(self, pending: Sequence[OffsetRange], limit: ReadLimit, now_ms: int) -> list[OffsetRange]:
        """The ranges to read now, empty ones included; all are empty when the batch has to wait."""
        options = self._options
        nothing = [wanted._replace(end=wanted.start) for wanted in pending]
        everything = count_records(pending)
        if isinstance(limit, ReadAllAvailable) or not everything:
            # Trigger.Once asks for all there is, whatever the options say.
            return list(pending)
        if not self.drains and self._last_trigger_ms is not None:
            least, delay_ms = options.min_offsets_per_trigger, options.max_trigger_delay
            if must_wait(everything, least, delay_ms, self._last_trigger_ms, now_ms):
                return nothing
        self._last_trigger_ms = now_ms
        ranges = list(pending)
        if options.max_offsets_per_trigger is not None:
            ranges = share_records(ranges, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            wanted = [each for each in ranges if each.size]
            ranges = share_bytes(ranges, options.max_bytes_per_trigger, self._record_bytes(wanted))
        return ranges
