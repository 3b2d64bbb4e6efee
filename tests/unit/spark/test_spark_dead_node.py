"""A query whose node refuses connections says so soon, in a sentence with few lines above it."""

import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from muster.client.errors import Unreachable
from muster.spark import lookup, options
from muster.spark.batch_reader import make_batch_reader
from muster.spark.lookup import NodeLookup
from muster.spark.options import check_read_options, check_write_options
from muster.spark.read_options import iterate_without_frames
from muster.spark.sink import MusterWriter
from muster.spark.stream_reader import MusterStreamReader
from muster.spark.write_calls import SinkNode
from tests.interop.kafka_broker import free_port


def test_a_query_does_not_wait_for_a_port_at_which_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "REFUSED_MS", 300)
    options = check_read_options({"bootstrap.servers": f"127.0.0.1:{free_port()}", "subscribe": "t"}, streaming=True)
    assert options.connection.default_api_timeout_ms == 60_000
    asking = NodeLookup(options)
    try:
        with pytest.raises(Unreachable, match="is a node running there") as refused:
            asking.run(asking.topics())
    finally:
        asking.close()
    assert refused.value.waited_ms < options.connection.default_api_timeout_ms
    assert (refused.value.__cause__, refused.value.__suppress_context__) == (None, True)
    shown = traceback.format_exception(refused.value)
    assert [line for line in shown if "lookup.py" in line or "shared" in line][1:] == [], "no line below `run`"


def test_an_error_of_many_attempts_is_told_once() -> None:
    """Above the sentence stood the same one of the last attempt, with frames of its own."""
    given = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "delivery.timeout.ms": "300"}
    node = SinkNode(check_write_options(given, streaming=False))
    with pytest.raises(Unreachable) as refused:
        node.partitions_of("t")
    assert "".join(traceback.format_exception(refused.value)).count("Traceback") == 1


def test_a_write_does_not_wait_for_a_port_at_which_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for delivery.timeout.ms, two minutes."""
    monkeypatch.setattr(options, "FIRST_ANSWER_MS", 300)
    given = check_write_options({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, streaming=False)
    with pytest.raises(Unreachable, match="is a node running there") as refused:
        SinkNode(given).partitions_of("t")
    assert refused.value.waited_ms < given.delivery_timeout_ms
    shown = traceback.format_exception(refused.value)
    assert not [line for line in shown if "transport.py" in line], "the sentence, without frames of gRPC's calls"


@pytest.mark.parametrize(
    ("given", "answered", "lookup_ms"),
    [
        ({}, False, 10_000),
        ({}, True, 120_000),
        ({"delivery.timeout.ms": "3000"}, False, 3_000),
        ({"kafka.max.block.ms": "60000"}, False, 60_000),
        ({"kafka.max.block.ms": "5000"}, True, 5_000),
        ({"max.block.ms": "9000", "delivery.timeout.ms": "2000"}, True, 2_000),
    ],
)
def test_max_block_ms_says_how_long_a_write_waits_for_a_node(
    given: dict[str, str], answered: bool, lookup_ms: int
) -> None:
    checked = check_write_options({"bootstrap.servers": "127.0.0.1:1", **given}, streaming=False)
    assert checked.lookup_timeout_ms(answered=answered) == lookup_ms


def frames_of_ours(error: BaseException) -> list[str]:
    """Where in the data source an error came through, as Spark prints it above the sentence."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if "/spark/" in frame.filename][1:]


def refused_read() -> object:
    given = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "subscribe": "t"}
    return make_batch_reader(check_read_options(given, streaming=False), StructType(), None).partitions()


def refused_stream() -> object:
    given = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "subscribe": "t"}
    reader = MusterStreamReader(check_read_options(given, streaming=True), StructType(), None)
    try:
        return reader.initialOffset()
    finally:
        reader.stop()


def refused_write() -> object:
    given = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "topic": "t"}
    writer = MusterWriter(check_write_options(given, streaming=False))
    return writer.write(iter([pa.RecordBatch.from_pydict({"value": ["v"]})]))


@pytest.mark.parametrize("ask", [refused_read, refused_stream, refused_write])
def test_one_frame_stands_above_the_sentence(ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Five to fifteen did. Without one Python raises nothing."""
    monkeypatch.setattr(lookup, "REFUSED_MS", 300)
    monkeypatch.setattr(options, "FIRST_ANSWER_MS", 300)
    with pytest.raises(Unreachable, match="is a node running there") as refused:
        ask()
    assert frames_of_ours(refused.value) == [ask.__name__, "told"]
    assert "".join(traceback.format_exception(refused.value)).count("Traceback") == 1


def test_so_it_is_for_what_a_task_reads() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise Unreachable("127.0.0.1:1", 5, "reading")

    found = iterate_without_frames(rows())
    assert next(found) == 1
    with pytest.raises(Unreachable) as refused:
        next(found)
    assert frames_of_ours(refused.value) == ["iterate_without_frames"]
