"""Where rows go, and what a sink says of columns and options that cannot be."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from muster.client.errors import ClientError, UnknownTopic
from muster.client.records.accumulator import choose_partition
from muster.spark.options import WriteOptions, check_write_options
from muster.spark.read_options import OptionError
from muster.spark.row_encoding import RowDistributor, check_columns, split_by_size
from muster.storage.records.batch import decode_records

NODE = {"bootstrap.servers": "127.0.0.1:9290"}


def options(**given: str) -> WriteOptions:
    return check_write_options(NODE | given, streaming=False)


def structure(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def landed(batch: pa.RecordBatch, chosen: WriteOptions, partitions: int = 4) -> list[tuple[str, int, bytes | None]]:
    """Topic, partition and value of every record that the sink makes of these rows."""
    rows = RowDistributor(chosen, lambda topic: partitions, turn=0)
    encoded = [*rows.add(batch), *rows.rest()]
    return [
        (each.tp.topic, each.tp.partition, record.value) for each in encoded for record in decode_records(each.data)
    ]


def test_a_key_decides_and_a_partition_column_decides_before_it() -> None:
    keys = [f"key {number}" for number in range(200)]
    batch = pa.record_batch(
        {
            "key": pa.array(keys),
            "value": pa.array(keys),
            "partition": pa.array([3 if number % 10 == 0 else None for number in range(200)], pa.int32()),
            "offset": pa.array(range(200)),
        }
    )
    for _, partition, value in landed(batch, options(topic="t")):
        assert value is not None
        number = int(value.split()[1])
        assert partition == (3 if number % 10 == 0 else choose_partition(value, 4))


def test_rows_without_a_key_take_turns_by_their_size() -> None:
    batch = pa.record_batch({"value": pa.array([bytes(1000)] * 1000, pa.binary())})
    counts = Counter(partition for _, partition, _ in landed(batch, options(topic="t")))
    assert sorted(counts) == [0, 1, 2, 3]
    assert max(counts.values()) - min(counts.values()) <= 66, "a turn is 64 KiB"


def test_the_topic_column_names_topics_and_the_option_wins() -> None:
    batch = pa.record_batch({"value": pa.array(["a", "b", "c"]), "topic": pa.array(["x", "y", "x"])})
    assert sorted((topic, value) for topic, _, value in landed(batch, options())) == [
        ("x", b"a"),
        ("x", b"c"),
        ("y", b"b"),
    ]
    assert {topic for topic, _, _ in landed(batch, options(topic="z"))} == {"z"}
    lost = pa.record_batch({"value": pa.array(["a"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ClientError, match="1 rows have no topic; set the option topic"):
        landed(lost, options())


def test_a_partition_that_does_not_exist_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array(["a"]), "partition": pa.array([9], pa.int32())})
    with pytest.raises(UnknownTopic, match="t has partitions 0 to 3; a row names partition 9"):
        landed(batch, options(topic="t"))


def test_batches_keep_to_batch_size_and_a_large_row_is_alone() -> None:
    assert list(split_by_size(np.array([600, 600, 600, 5000, 1]), 1300)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    batch = pa.record_batch({"value": pa.array([bytes(1000)] * 100, pa.binary())})
    rows = RowDistributor(options(topic="t", **{"batch.size": "10240"}), lambda topic: 1, turn=0)
    sizes = [len(each.data) for each in [*rows.add(batch), *rows.rest()]]
    assert len(sizes) == 10
    assert max(sizes) <= 10_240 + 100


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"value": IntegerType()}, "column 'value' is int; expected string or binary. Cast it before writing"),
        ({"key": StringType()}, "there is no column 'value'; expected one of string or binary"),
        ({"value": StringType(), "partition": LongType()}, "column 'partition' is bigint; expected int"),
        (
            {"value": BinaryType(), "headers": StringType()},
            "column 'headers' is string; expected array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_cannot_be_written(schema: dict[str, DataType], wanted: str) -> None:
    with pytest.raises(OptionError) as told:
        check_columns(structure(schema), options(topic="t"))
    assert wanted in str(told.value)


def test_without_any_topic() -> None:
    with pytest.raises(OptionError, match="set the option topic, or add a string column 'topic'"):
        check_columns(structure({"value": StringType()}), options())


@pytest.mark.parametrize(
    ("given", "streaming", "wanted"),
    [
        ({"topik": "t"}, False, "'topik' is not an option for writing; did you mean 'topic'?"),
        ({"kafka.security.protocol": "TLS"}, False, "security.protocol='TLS': expected one of PLAINTEXT, SSL"),
        ({"kafka.enable.idempotence": "true"}, False, "kafka.enable.idempotence cannot be set here: the sink decides"),
        ({"group.id": "g"}, False, "group.id cannot be set here: a write joins no group"),
        ({"subscribe": "t"}, True, "subscribe cannot be set here: a write reads nothing"),
        ({"batch.size": "2048", "max.request.size": "2047"}, False, "batch.size=2048 is above max.request.size=2047"),
        ({"compression.type": "brotli"}, False, "compression.type='brotli': expected"),
        ({"acks": "1"}, False, "acks='1': expected"),
        ({"txnAppId": "a"}, False, "txnAppId and txnVersion go together"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "are for batch writes"),
        ({"exactlyOnce": "false"}, False, "exactlyOnce is for streams"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, False, "txnAppId='a/b': expected"),
        ({"path": "/tmp/x"}, False, "topics are no files"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, False, "is given twice"),
        ({"bootstrap.servers": "nowhere"}, False, "'nowhere' is not HOST:PORT"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], streaming: bool, wanted: str) -> None:
    with pytest.raises(OptionError) as told:
        check_write_options(NODE | given, streaming=streaming)
    assert wanted in str(told.value)


def test_a_node_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"bootstrap.servers is missing; set it to HOST:PORT"):
        check_write_options({"topic": "t"}, streaming=False)


def test_the_names_of_kafka_mean_the_same() -> None:
    chosen = check_write_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9290",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "2048",
            "kafka.acks": "all",
            "checkpointlocation": "/somewhere",
            "topic": "t",
        },
        streaming=True,
    )
    assert (chosen.compression, chosen.batch_size, chosen.topic) == ("zstd", 2048, "t")
    assert chosen.client_config().bootstrap_servers == "127.0.0.1:9290"
