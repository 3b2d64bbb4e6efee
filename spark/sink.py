"""Writing to topics: what `df.write.format("muster")` and `writeStream` run.

A stream's batches are exactly-once: every attempt of every task stages its records on the node under the query's id
and the batch's number, the driver's commit names the attempts that count, and the node puts them into the log once. A
batch that was decided stays decided, whatever is tried again afterwards and whatever then comes out of it: nothing has
to be deterministic, and readers need no isolation level. A batch write appends at once, unless `txnAppId` and
`txnVersion` give it such a name.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from muster.client.errors import ClientError
from muster.spark.kafka_options import warn_of_ignored
from muster.spark.options import WriteOptions, check_write_options
from muster.spark.read_options import OptionError, raise_without_frames

if TYPE_CHECKING:
    from pyarrow import RecordBatch

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkBatchName:
    """What the node knows a batch by, for ever."""

    sink: str
    batch: int


@dataclass(slots=True)
class WriteReceipt(WriterCommitMessage):
    """What a task tells the driver: the name of its attempt and how many bytes it staged, where it staged any."""

    rows: int
    name: SinkBatchName | None = None
    attempt: str = ""
    size: int = 0
    settled: bool = False
    home: str = ""
    """HOST:PORT of the node that has it, in a cluster."""


def make_batch_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceArrowWriter:
    options = check_write_options(given, streaming=False)
    warn_of_ignored(options.ignored)
    if overwrite:
        raise OptionError("topics are appended to and never overwritten; use mode('append')")
    from muster.spark.row_encoding import check_columns

    check_columns(schema, options)
    return MusterWriter(options)


def make_stream_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is output mode complete, which writes the whole result with every batch, as Spark's Kafka sink."""
    options = check_write_options(given, streaming=True)
    warn_of_ignored(options.ignored)
    from muster.spark.row_encoding import check_columns

    check_columns(schema, options)
    return MusterStreamWriter(options)


class MusterWriter(DataSourceArrowWriter):
    """A batch write: at least once, each task's records once; all or nothing and once under a `txnAppId`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @property
    def _name(self) -> SinkBatchName | None:
        options = self._options
        if options.txn_app_id is None or options.txn_version is None:
            return None
        return SinkBatchName(f"app-{options.txn_app_id}", options.txn_version)

    @raise_without_frames
    def write(self, iterator: "Iterator[RecordBatch]") -> WriteReceipt:
        return write_task(iterator, self._options, self._name)

    @raise_without_frames
    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        commit_staged(self._options, messages)

    @raise_without_frames
    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        abort_staged(self._options, messages)


class MusterStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: exactly once, unless exactlyOnce=false asks for plain appends."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @raise_without_frames
    def write(self, iterator: "Iterator[RecordBatch]") -> WriteReceipt:
        return write_task(iterator, self._options, find_query_batch() if self._options.stages else None)

    @raise_without_frames
    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        commit_staged(self._options, messages)

    @raise_without_frames
    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        abort_staged(self._options, messages)


def find_query_batch() -> SinkBatchName:
    """The query and the batch that this task belongs to."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if query is None or batch is None:
        raise ClientError(
            "Spark does not say which query and batch this task belongs to, so it cannot be written exactly once; "
            "set delivery=at-least-once, or use a Spark that sets sql.streaming.queryId (4.2 does)"
        )
    return SinkBatchName(f"query-{query}", int(batch))


def write_task(batches: "Iterator[RecordBatch]", options: WriteOptions, name: SinkBatchName | None) -> WriteReceipt:
    """Bring a task's rows to the node. Raises Unreachable, naming the node and how long it was silent, and Refused."""
    from muster.spark.row_encoding import RowDistributor
    from muster.spark.write_calls import AppendingOutlet, BatchRequests, SinkNode, StagingOutlet

    context = TaskContext.get()
    turn = (context.partitionId() if context else 0) + (name.batch if name else 0)
    node = SinkNode(options)
    attempt = uuid.uuid4().hex
    staged = StagingOutlet(node, name.sink, name.batch, attempt) if name else None
    requests = BatchRequests(node, staged or AppendingOutlet(node), options.max_request_size)
    rows = RowDistributor(options, node.partitions_of, turn)
    count = 0
    try:
        for batch in batches:
            count += batch.num_rows
            for encoded in rows.add(batch):
                requests.add(encoded)
        for encoded in rows.rest():
            requests.add(encoded)
        requests.finish()
    except BaseException:
        requests.give_up()
        raise
    if staged is None:
        return WriteReceipt(count)
    return WriteReceipt(count, name, attempt if staged.size else "", staged.size, staged.settled, staged.home)


def commit_staged(options: WriteOptions, messages: "Sequence[WriterCommitMessage | None]") -> None:
    """Make what the tasks staged count. Without anything staged there is nothing to say."""
    told = [message for message in messages if isinstance(message, WriteReceipt) and message.name is not None]
    if not any(message.attempt or message.settled for message in told):
        return
    from muster.spark.write_calls import SinkNode, commit_attempts

    node = SinkNode(options)
    name = told[0].name
    assert name is not None, "a message that was told apart by its name has one"
    attempts = [(message.attempt, message.size) for message in told if message.attempt]
    homes = sorted({message.home for message in told if message.attempt or message.settled})
    if len(homes) > 1:
        raise ClientError(
            f"batch {name.batch} of {name.sink} was staged at {' and '.join(homes)}: the leader moved meanwhile; the "
            "batch is to be tried again"
        )
    node.run(commit_attempts(node.transport, name.sink, name.batch, attempts, homes[0]))


def abort_staged(options: WriteOptions, messages: "Sequence[WriterCommitMessage | None]") -> None:
    """Drop what the tasks of a failed write staged; what cannot be dropped now expires on the node."""
    told = [message for message in messages if isinstance(message, WriteReceipt) and message.name and message.attempt]
    if not told:
        return
    from muster.spark.write_calls import SinkNode, abort_attempts

    node = SinkNode(options)
    name = told[0].name
    assert name is not None, "a message that was told apart by its name has one"
    with contextlib.suppress(ClientError):
        for home in sorted({message.home for message in told}):
            attempts = [message.attempt for message in told if message.home == home]
            node.run(abort_attempts(node.transport, name.sink, name.batch, attempts, home))
