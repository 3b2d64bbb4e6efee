"""Topics as streams without a group: offsets live in the checkpoint, and a batch that is repeated is the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin
from muster.spark import offsets_behind_latest
from tests.support.node import NodeProcess, running_node
from tests.support.spark.reading import Reading
from tests.support.topics import eventually, fill, make_topics

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("stream") / "data") as node:
        yield node


def topic_of(node: NodeProcess, name: str, partitions: int, count: int) -> str:
    make_topics(node.address, **{name: partitions})
    more(node, name, count)
    return name


def more(node: NodeProcess, topic: str, count: int) -> None:
    fill(node.address, topic, [b"%d" % number for number in range(count)], [b"a", b"b", b"c", b"d", b"e", b"f"])


def test_all_there_is_now_in_batches_of_at_most_so_many(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "now", 3, 500)
    reading = Reading(spark, node, tmp_path, subscribe="now", startingOffsets="earliest", maxOffsetsPerTrigger="200")
    reading.drain()
    assert [len(reading.batches[batch]) for batch in sorted(reading.batches)] == [200, 200, 100]
    more(node, "now", 50)
    reading.drain()
    assert reading.exactly(now=550)
    assert set(reading.runs.values()) == {1}, "nothing new is no batch"
    reading.drain()
    assert len(reading.batches) == 4, "and text that only looks new makes none"


def test_a_batch_that_failed_is_read_again_exactly(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "again", 3, 300)
    reading = Reading(spark, node, tmp_path, subscribe="again", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    reading.fails_once = {1}
    with pytest.raises(Exception, match="batch 1 fails once"):
        reading.drain()
    more(node, "again", 100)
    reading.options["maxOffsetsPerTrigger"] = "250"
    reading.drain()
    assert reading.runs[1] == 2
    assert reading.exactly(again=400)


def test_a_stream_reports_its_lag_and_who_it_is(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "lag", 1, 30)
    reading = Reading(spark, node, tmp_path, subscribe="lag", startingOffsets="earliest", maxOffsetsPerTrigger="10")
    progress = reading.drain().query.recentProgress[0]
    source = progress["sources"][0]
    end, latest = (json.loads(source[name]) for name in ("endOffset", "latestOffset"))
    assert end["topics"] == {"lag": {"0": {"from": 0, "to": 10}}}
    assert latest["topics"] == {"lag": {"0": {"from": 30, "to": 30}}}
    assert end["muster"]["servers"] == node.address
    behind = {f"{figure}OffsetsBehindLatest": 20 for figure in ("min", "max", "avg")}
    assert offsets_behind_latest(progress) == [{"description": f"muster: lag at {node.address}", **behind}]


def test_a_topic_that_grows_and_a_new_one_are_read_from_their_beginning(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    topic_of(node, "grows", 1, 10)
    reading = Reading(spark, node, tmp_path, subscribePattern="grows.*", offsetsRefreshMs="20").start()
    try:
        eventually(lambda: bool(reading.query.status["message"].startswith("Waiting for data")), "the first look")
        more(node, "grows", 5)
        reading.until(5)
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.create_partitions("grows", 4)
        topic_of(node, "growstoo", 2, 20)
        more(node, "grows", 40)
        reading.until(65)
    finally:
        reading.stop()
    assert len(reading.rows) == len(set(reading.rows)) == 65
    assert {partition for topic, partition, _ in reading.rows if topic == "grows"} == {0, 1, 2, 3}


def test_a_topic_that_a_checkpoint_has_and_the_options_have_not_is_named(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    topic_of(node, "before", 1, 10)
    topic_of(node, "after", 1, 10)
    reading = Reading(spark, node, tmp_path, subscribe="before", startingOffsets="earliest").drain()
    reading.options["subscribe"] = "after"
    with pytest.raises(Exception, match="before-0 was read up to offset 10 by this checkpoint, and subscribe leaves"):
        reading.drain()


def run_to_its_end(reader: Any, checkpoint: Path) -> None:
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.start().awaitTermination(60)


def test_wrong_options_of_a_stream_are_told(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    """By the schema already, or where that is given by the first question; both times with what to do."""
    for schema, given, told in (
        (None, {"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ("value binary", {"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        (None, {"endingOffsets": "latest"}, "endingOffsets means nothing in a streaming query"),
    ):
        reader = spark.readStream.format("muster").options(**{"bootstrap.servers": node.address, "subscribe": "t"})
        reader = (reader.schema(schema) if schema else reader).options(**given)
        with pytest.raises(Exception, match=told) as raised:
            run_to_its_end(reader, tmp_path / told[:5])
        assert "UnboundLocalError" not in str(raised.value)


def test_enough_records_are_waited_for_but_not_longer_than_said(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "enough", 1, 10)
    reading = Reading(
        spark,
        node,
        tmp_path,
        subscribe="enough",
        startingOffsets="earliest",
        minOffsetsPerTrigger="100",
        maxTriggerDelay="1h",
        offsetsRefreshMs="20",
    ).start()
    try:
        reading.until(10)
        more(node, "enough", 60)
        more(node, "enough", 40)
        reading.until(110)
    finally:
        reading.stop()
    assert [len(reading.batches[batch]) for batch in sorted(reading.batches)] == [10, 100]
    more(node, "enough", 7)
    reading.drain()
    assert reading.exactly(enough=117)


def test_a_batch_takes_about_as_many_bytes_as_said(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    make_topics(node.address, bytes=2)
    fill(node.address, "bytes", [bytes(1_000)] * 400)
    reading = Reading(spark, node, tmp_path, subscribe="bytes", startingOffsets="earliest", maxBytesPerTrigger="100000")
    reading.drain()
    assert reading.exactly(bytes=400)
    sizes = [len(reading.batches[batch]) for batch in sorted(reading.batches)]
    assert max(sizes) <= 110
    assert len(sizes) <= 6


def test_a_topic_that_goes_while_it_is_read_is_data_loss(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    for name, told in (
        ("goes", "goes-0 was read up to offset 20 and does not exist any more"),
        ("returns", "made again"),
    ):
        topic_of(node, name, 1, 20)
        reading = Reading(spark, node, tmp_path / name, subscribe=name, startingOffsets="earliest").drain()
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.delete_topics([name])
        if name == "returns":
            topic_of(node, name, 1, 30)
        with pytest.raises(Exception, match=told):
            reading.drain()
        reading.options["failOnDataLoss"] = "false"
        reading.drain()
        assert len(reading.rows) == (20 if name == "goes" else 50)


def test_offsets_that_expired_are_data_loss(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "expired", 1, 20)
    reading = Reading(spark, node, tmp_path, subscribe="expired", startingOffsets="earliest").drain()
    more(node, "expired", 30)
    with Admin({"bootstrap.servers": node.address}) as admin:
        admin.delete_records({("expired", 0): 45})
    with pytest.raises(Exception, match=r"expired-0: the next offset to read is 20, but the log at .* holds 45 to 50"):
        reading.drain()
    reading.options["failOnDataLoss"] = "false"
    reading.drain()
    assert [offset for _, _, offset in reading.rows] == [*range(20), *range(45, 50)]


def test_partitions_without_membership_commit_to_their_group(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    topic_of(node, "alone", 2, 60)
    reading = Reading(spark, node, tmp_path, assign='{"alone": [1]}', **{"group.id": "alone"}).drain()
    with Admin({"bootstrap.servers": node.address}) as admin:
        committed = admin.group_offsets("alone")
    assert {tp: at.offset for tp, at in committed.items()} == {("alone", 1): len(reading.rows)}
    assert {partition for _, partition, _ in reading.rows} == {1}


def test_a_stream_that_saw_no_record_begins_where_it_began(spark: Any, node: NodeProcess, tmp_path: Path) -> None:
    """Spark writes offsets down with a batch, so there is one, without rows."""
    topic_of(node, "quiet", 2, 20)
    reading = Reading(spark, node, tmp_path, subscribe="quiet").drain()
    assert reading.batches == {0: []}
    reading.drain()
    assert reading.batches == {0: []}, "once is enough"
    more(node, "quiet", 30)
    reading.drain()
    assert len(set(reading.rows)) == len(reading.rows) == 30


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        ("Hangs", r"assignor 'hangs': was not done after 300 ms; give it longer by assignorDeadlineMs"),
        ("Raises", r"assignor 'raises': raised ZeroDivisionError: out of cheese .*; mend it, or .*split"),
    ],
)
def test_an_assignor_that_hangs_or_raises_ends_the_query_and_is_named(
    spark: Any, node: NodeProcess, tmp_path: Path, plugin: str, told: str
) -> None:
    topic_of(node, plugin, 2, 20)
    word = f"tests.support.plugins:{plugin}"
    options = {"subscribe": plugin, "assignor": word, "assignorDeadlineMs": "300"}
    reading = Reading(spark, node, tmp_path, startingOffsets="earliest", **options)
    with pytest.raises(Exception, match=told):
        reading.drain()
    with pytest.raises(Exception, match=told):
        spark.read.format("muster").options(**reading.options | {"startingOffsets": "earliest"}).load().count()
    reading.options["assignor"] = "range"
    assert reading.drain().exactly(**{plugin: 20}), "it goes on from its checkpoint with another one"
