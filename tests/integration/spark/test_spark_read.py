"""Topics as tables, read from a real node through Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Producer
from muster.spark.offset_commits import commit_batch, pin_batch
from muster.spark.read_options import OptionError
from tests.support.node import NodeProcess, running_node
from tests.support.spark.reading import Reading
from tests.support.topics import make_topics

pytestmark = pytest.mark.integration

T0 = 1_700_000_000_000
COUNT, PARTITIONS = 600, 3


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """`orders`: 600 records over 3 partitions, one per second, every tenth with a header and without a key."""
    with running_node(tmp_path_factory.mktemp("read") / "data") as node:
        make_topics(node.address, orders=PARTITIONS, empty=2, trimmed=1, written=1)
        with Producer({"bootstrap.servers": node.address}) as producer:
            for number in range(COUNT):
                producer.produce(
                    "orders",
                    b"v%d" % number,
                    None if number % 10 == 0 else b"k%d" % number,
                    partition=number % PARTITIONS,
                    timestamp=T0 + 1000 * number,
                    headers=[("n", b"%d" % number)] if number % 10 == 0 else [],
                )
            for number in range(50):
                producer.produce("trimmed", b"%d" % number)
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.delete_records({("trimmed", 0): 20})
        yield node


def read(spark: Any, node: NodeProcess, **options: str) -> Any:
    given = {"bootstrap.servers": node.address} | options
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        given["subscribe"] = "orders"
    return spark.read.format("muster").options(**given).load()


def offsets(frame: Any) -> dict[int, tuple[int, int]]:
    """The first and last offset of each partition, between which nothing is missing or double."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    for row_offsets in found.values():
        row_offsets.sort()
        assert row_offsets == list(range(row_offsets[0], row_offsets[-1] + 1))
    return {partition: (row_offsets[0], row_offsets[-1]) for partition, row_offsets in found.items()}


def test_neither_the_driver_nor_the_tasks_of_these_tests_find_pandas(spark: Any) -> None:
    """So all of them show that pyspark and pyarrow are enough."""

    def told(_: int) -> str:
        try:
            import pandas  # noqa: F401
        except ModuleNotFoundError as error:
            return str(error)
        return "there it is"

    in_tasks = spark.sparkContext.parallelize([0, 1], 2).map(told).collect()
    assert {told(0), *in_tasks} == {"pandas is hidden: data sources do without it"}


def test_rows_are_those_of_spark_s_kafka_source(spark: Any, node: NodeProcess) -> None:
    frame = read(spark, node, includeHeaders="true")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    rows = {(row.partition, row.offset): row for row in frame.collect()}
    assert len(rows) == COUNT
    for number in range(COUNT):
        row = rows[number % PARTITIONS, number // PARTITIONS]
        assert bytes(row.value) == b"v%d" % number
        assert (row.key is None) == (number % 10 == 0)
        assert row.topic == "orders"
        assert row.timestampType == 0
        if number % 10 == 0:
            ((name, value),) = row.headers
            assert (name, bytes(value)) == ("n", b"%d" % number)
        else:
            assert (bytes(row.key), row.headers) == (b"k%d" % number, None)
    stamps = read(spark, node).selectExpr("min(unix_millis(timestamp))", "max(unix_millis(timestamp))").first()
    assert tuple(stamps) == (T0, T0 + 1000 * (COUNT - 1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"orders": {"0": 5, "1": -2, "2": -1}}'}, {0: (5, 199), 1: (0, 199)}),
        ({"endingOffsets": '{"orders": {"0": 7, "1": -1, "2": 0}}'}, {0: (0, 6), 1: (0, 199)}),
        ({"startingTimestamp": str(T0 + 1000 * 590)}, {0: (197, 199), 1: (197, 199), 2: (196, 199)}),
        ({"endingTimestamp": str(T0 + 1000 * 9)}, {0: (0, 2), 1: (0, 2), 2: (0, 2)}),
        (
            {
                "startingOffsetsByTimestamp": f'{{"orders": {{"0": {T0}, "1": {T0 + 10**9}, "2": {T0 + 599_000}}}}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {0: (0, 199), 2: (199, 199)},
        ),
        ({"assign": '{"orders": [1]}'}, {1: (0, 199)}),
        # Answers too small for one batch of each partition.
        ({"fetch.max.bytes": "1000", "tasks": "1"}, {0: (0, 199), 1: (0, 199), 2: (0, 199)}),
        ({"subscribePattern": "ord.*s"}, {0: (0, 199), 1: (0, 199), 2: (0, 199)}),
    ],
)
def test_where_a_read_begins_and_ends(
    spark: Any, node: NodeProcess, options: dict[str, str], expected: dict[int, tuple[int, int]]
) -> None:
    assert offsets(read(spark, node, **options)) == expected


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"tasks": "5"}, 5),
        ({}, 2),
        ({"assignor": "one-to-one"}, 3),
        ({"assignor": "one-to-one", "minPartitions": "6"}, 6),
        ({"assignor": "lag", "tasks": "2"}, 2),
        ({"maxRecordsPerPartition": "100"}, 6),
    ],
)
def test_tasks_are_as_many_as_asked_for(spark: Any, node: NodeProcess, options: dict[str, str], tasks: int) -> None:
    """Without a word it is one for each core that the session has."""
    frame = read(spark, node, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert offsets(frame) == {0: (0, 199), 1: (0, 199), 2: (0, 199)}


def test_a_topic_without_records_is_a_table_without_rows(spark: Any, node: NodeProcess) -> None:
    assert read(spark, node, subscribe="empty").collect() == []


def test_only_chosen_columns_are_read(spark: Any, node: NodeProcess) -> None:
    frame = read(spark, node, columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(b"v%d" % number for number in range(COUNT))
    given = spark.read.format("muster").schema("value binary")
    picked = given.options(**{"bootstrap.servers": node.address, "subscribe": "orders"}).load()
    assert (picked.columns, picked.count()) == (["value"], COUNT)


def test_filters_go_down_to_the_read_where_asked_for(spark: Any, node: NodeProcess) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, node, pushdown="true", tasks="1").where("partition = 1 and offset >= 10 and offset < 20")
        assert offsets(frame) == {1: (10, 19)}
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "Filter (" not in plan, "the read itself leaves the other rows out"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_offsets_that_are_gone_are_an_error_or_left_out(spark: Any, node: NodeProcess) -> None:
    options = {"subscribe": "trimmed", "startingOffsets": '{"trimmed": {"0": 5}}'}
    with pytest.raises(Exception, match=r"trimmed-0: startingOffsets is 5, but the log at .* holds 20 to 50"):
        read(spark, node, **options).count()
    assert offsets(read(spark, node, failOnDataLoss="false", **options)) == {0: (20, 49)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'; create it first"),
        ({"assign": '{"orders": [3]}'}, "orders has partitions 0 to 2; 3 is not one"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "must name every partition.*it lacks orders-1, orders-2"),
        ({"enable.auto.commit": "true"}, "enable.auto.commit cannot be set here"),
        ({"startingTimestamp": str(T0 + 10**9)}, "has no record from .* ms on"),
        (
            {"startingOffsets": '{"orders": {"0": 1, "1": 201, "2": 1}}'},
            "orders-1: startingOffsets is 201, but the log at .* holds 0 to 200",
        ),
        (
            {
                "startingOffsets": '{"orders": {"0": 1, "1": 9, "2": 1}}',
                "endingOffsets": '{"orders": {"0": 1, "1": 8, "2": -1}}',
            },
            "orders-1: startingOffsets gives 9, which is beyond 8, where endingOffsets ends the read",
        ),
        (
            {"startingTimestamp": str(T0 + 1000 * 30), "endingTimestamp": str(T0 + 1000 * 9)},
            r"orders-0: startingTimestamp gives \d+, which is beyond \d+, where endingTimestamp",
        ),
    ],
)
def test_what_is_wrong_is_told(spark: Any, node: NodeProcess, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        read(spark, node, **options).count()


def test_a_stream_does_not_begin_beyond_the_end(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    wanted = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1, "1": 201, "2": 1}}'}
    reading = Reading(spark, node, tmp_path, **wanted).start()
    try:
        with pytest.raises(Exception, match=r"orders-1: startingOffsets is 201, but the log at .* holds 0 to 200"):
            reading.query.awaitTermination(60)
    finally:
        reading.stop()


def test_what_spark_s_own_source_takes_is_taken(spark: Any, node: NodeProcess) -> None:
    given = {"maxOffsetsPerTrigger": "5", "kafka.security.protocol": "PLAINTEXT", "kafka.fetch.min.bytes": "1"}
    assert read(spark, node, **given).count() == COUNT


def test_a_table_is_refused_when_it_is_made_and_a_view_is_not(spark: Any, node: NodeProcess) -> None:
    """What Spark keeps from sources in Python: the options of its catalog's tables."""
    options = f"USING muster OPTIONS ('bootstrap.servers' = '{node.address}', "
    with pytest.raises(Exception, match="neither read nor written; CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE made {options} 'subscribe' = 'orders')")
    assert not spark.catalog.tableExists("made")
    value = "SELECT cast('x' AS binary) AS value"
    with pytest.raises(Exception, match=r"no option at all came from Spark.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE made {options} 'topic' = 'written') AS {value}")
    assert not spark.catalog.tableExists("made")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders_view {options} 'subscribe' = 'orders')")
    assert spark.table("orders_view").count() == COUNT
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW writing (value binary) {options} 'topic' = 'written')")
    spark.sql(f"INSERT INTO writing {value}")
    assert read(spark, node, subscribe="written").count() == 1


def test_a_table_whose_columns_are_given_says_why_it_cannot_be_read(spark: Any, node: NodeProcess) -> None:
    """Spark asks no source when it makes one; what helps is named when it is read, or written."""
    options = f"('bootstrap.servers' = '{node.address}', 'subscribe' = 'orders')"
    spark.sql(f"CREATE TABLE given (value binary) USING muster OPTIONS {options}")
    try:
        with pytest.raises(Exception, match="no option at all came from Spark"):
            spark.table("given").count()
        assert spark.sql(f"SELECT * FROM given WITH {options}").count() == COUNT
    finally:
        spark.sql("DROP TABLE given")


def test_a_node_that_is_away_is_named_with_how_long_it_was_waited_for(spark: Any) -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "default.api.timeout.ms": "300"}
    with pytest.raises(Exception, match=r"looking up topics: no answer from 127.0.0.1:1 for \d+ ms"):
        spark.read.format("muster").options(**options).load().count()


def test_a_batch_job_commits_what_it_has_read(spark: Any, node: NodeProcess) -> None:
    """A read with a group begins where the group stands; what is committed is what was pinned, not what came since."""
    wanted = {"bootstrap.servers": node.address, "subscribe": "orders", "group.id": "nightly"}
    until = wanted | {"endingOffsets": '{"orders": {"0": 10, "1": 20, "2": -1}}'}
    pinned = pin_batch(until)
    assert spark.read.format("muster").options(**pinned).load().count() == 230
    assert commit_batch(pinned) == {("orders", 0): 10, ("orders", 1): 20, ("orders", 2): 200}
    rest = spark.read.format("muster").options(**wanted).load()
    assert offsets(rest) == {0: (10, 199), 1: (20, 199)}
    assert commit_batch(pinned), "the same again changes nothing"
    for ends, told in (
        ('{"orders": {"0": 99999, "1": 20, "2": 200}}', "orders-0 has 99999, but the log ends at 200"),
        ('{"orders": {"0": 10, "1": 19, "2": 200}}', "orders-1 has 19, but group 'nightly' has committed 20"),
    ):
        with pytest.raises(OptionError, match=told):
            commit_batch(pinned | {"endingOffsets": ends})
