"""Writing from Spark to a real node: what arrives, and that a stream's batches arrive exactly once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql.functions import rand, udf

from tests.support.node import NodeProcess, running_node
from tests.support.topics import all_records, end_offsets, eventually, make_topics, values

pytestmark = pytest.mark.integration

ROWS_PER_BATCH = 1000
BATCHES = 6


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("sink") / "data") as node:
        yield node


def saved(frame: Any, node: NodeProcess, **options: str) -> None:
    frame.write.format("muster").mode("append").options(**{"bootstrap.servers": node.address} | options).save()


def test_all_columns_arrive(spark: Any, node: NodeProcess) -> None:
    make_topics(node.address, columns=3)
    frame = spark.sql(
        "SELECT cast(id as string) key, cast(concat('v', id) as binary) value, 'columns' topic, "
        "cast(if(id < 10, 2, null) as int) partition, "
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) headers, "
        "id offset, current_timestamp() timestamp FROM range(100)"
    )
    saved(frame, node, **{"compression.type": "zstd"})
    found = {record.key: record for record in all_records(node.address, "columns")}
    assert len(found) == 100
    for number in range(100):
        record = found[b"%d" % number]
        assert record.value == b"v%d" % number
        assert record.headers == (("n", b"%d" % number),)
        assert record.partition == 2 or number >= 10


def test_a_batch_write_of_one_name_and_number_counts_once(spark: Any, node: NodeProcess) -> None:
    make_topics(node.address, once=2)
    frame = spark.range(1000).selectExpr("cast(id as string) value")
    for version in ("0", "0", "1", "0"):
        saved(frame, node, topic="once", txnAppId="nightly", txnVersion=version)
    assert len(values(node.address, "once")) == 2000


def test_a_failed_write_of_a_name_leaves_nothing_visible(spark: Any, node: NodeProcess) -> None:
    make_topics(node.address, nothing=2)
    frame = spark.range(20_000).selectExpr("if(id = 19999, raise_error('enough'), cast(id as string)) value")
    small = {"batch.size": "1024", "max.request.size": "1024"}
    with pytest.raises(Exception, match="enough"):
        saved(frame, node, topic="nothing", txnAppId="fails", txnVersion="0", **small)
    assert values(node.address, "nothing") == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "nothing says where rows go"),
        ({"topic": "t", "kafka.transactional.id": "5"}, "kafka.transactional.id cannot be set here"),
        ({"topic": "nowhere"}, "there is no topic 'nowhere'; create it first"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(
    spark: Any, node: NodeProcess, options: dict[str, str], wanted: str
) -> None:
    with pytest.raises(Exception, match=wanted):
        saved(spark.range(3).selectExpr("cast(id as string) value"), node, **options)


class Stream:
    """A query over made-up numbers, `ROWS_PER_BATCH` a batch, written to a topic; restarted from its checkpoint."""

    def __init__(self, spark: Any, node: NodeProcess, topic: str, folder: Path) -> None:
        self._spark = spark
        self._node = node
        self._topic = topic
        self._folder = folder

    def run(self, change: Callable[[Any], Any] = lambda frame: frame, until: int = BATCHES, **options: str) -> None:
        """Until `until` batches are committed; raises what the query fails with."""
        numbers = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS_PER_BATCH)
            .option("numPartitions", 2)
            .load()
            .selectExpr("value")
        )
        query = (
            change(numbers)
            .selectExpr("cast(value as string) value")
            .writeStream.format("muster")
            .options(**{"bootstrap.servers": self._node.address, "topic": self._topic} | options)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            while self.committed() < until and not query.awaitTermination(0.05):
                pass
        finally:
            query.stop()

    def committed(self) -> int:
        """How many batches Spark knows to be done."""
        return max((int(path.name) + 1 for path in self._commits() if path.name.isdigit()), default=0)

    def forget_last_commit(self) -> None:
        """As if the driver had died after the node's decision and before it wrote down its own."""
        last = str(self.committed() - 1)
        for path in self._commits():
            if path.name in (last, f".{last}.crc"):
                path.unlink()

    def _commits(self) -> list[Path]:
        folder = self._folder / "checkpoint" / "commits"
        return list(folder.iterdir()) if folder.exists() else []

    def arrived(self) -> list[int]:
        return sorted(int(value) for value in values(self._node.address, self._topic))


def exactly_once(numbers: list[int]) -> bool:
    """Every number from 0 on, once."""
    return numbers == list(range(len(numbers))) and len(numbers) >= BATCHES * ROWS_PER_BATCH


@pytest.fixture
def small_steps(spark: Any) -> Iterator[dict[str, str]]:
    """Rows reach the sink 50 at a time and go to the node at once: a task that dies has sent a part of its records."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    yield {"batch.size": "1024", "max.request.size": "1024"}
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def workers_of_tasks() -> list[psutil.Process]:
    """Those that run tasks; the driver's, which plan, commit and abort, belong to daemons of other modules.

    With one of those dead, too, an abort fails, and Spark tells of that alone.
    """
    workers = []
    for process in psutil.Process().children(recursive=True):
        # A process may end while it is looked at.
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[-2:] == ["pyspark.daemon", "pyspark.worker"]:
                workers += process.children()
    return workers


LATE_IN_BATCH_3 = 4 * ROWS_PER_BATCH - 100


def test_a_task_that_fails_in_mid_batch_doubles_nothing(
    spark: Any, node: NodeProcess, tmp_path: Path, small_steps: dict[str, str]
) -> None:
    make_topics(node.address, fails_once=3)
    trap = tmp_path / "trap"

    def fail_once(number: int) -> int:
        if number == LATE_IN_BATCH_3 and not trap.exists():
            trap.touch()
            raise RuntimeError("this task fails once")
        return number

    step = udf(fail_once, "bigint", useArrow=False)
    stream = Stream(spark, node, "fails_once", tmp_path)
    with pytest.raises(Exception, match="this task fails once"):
        stream.run(lambda frame: frame.select(step("value").alias("value")), **small_steps)
    assert stream.arrived() == list(range(3 * ROWS_PER_BATCH)), "nothing of a batch that is not committed is seen"
    stream.run(lambda frame: frame.select(step("value").alias("value")), **small_steps)
    assert exactly_once(stream.arrived())


def test_a_killed_python_worker_doubles_nothing(
    spark: Any, node: NodeProcess, tmp_path: Path, small_steps: dict[str, str]
) -> None:
    make_topics(node.address, killed_once=3)
    reached, killed = tmp_path / "reached", tmp_path / "killed"

    def wait_for_the_end(number: int) -> int:
        if number == LATE_IN_BATCH_3:
            reached.touch()
            eventually(killed.exists, "the kill")
        return number

    def kill_workers() -> None:
        eventually(reached.exists, "a task late in batch 3")
        for worker in workers_of_tasks():
            # Spark itself ends those whose task has failed because of another one.
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        killed.touch()

    step = udf(wait_for_the_end, "bigint", useArrow=False)
    stream = Stream(spark, node, "killed_once", tmp_path)
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(kill_workers)
        with pytest.raises(Exception, match=r"Python worker|crashed|Connection reset"):
            stream.run(lambda frame: frame.select(step("value").alias("value")), **small_steps)
        kill.result()
    assert stream.arrived() == list(range(3 * ROWS_PER_BATCH)), "nothing of a batch that is not committed is seen"
    stream.run(lambda frame: frame.select(step("value").alias("value")), **small_steps)
    assert exactly_once(stream.arrived())


def test_a_batch_that_comes_out_differently_the_second_time_counts_once(
    spark: Any, node: NodeProcess, tmp_path: Path
) -> None:
    make_topics(node.address, shuffled=3)
    stream = Stream(spark, node, "shuffled", tmp_path)
    stream.run(lambda frame: frame.repartition(3, rand()))
    assert exactly_once(stream.arrived())
    done = stream.committed()
    stream.forget_last_commit()
    stream.run(lambda frame: frame.repartition(3, rand()), until=done + 1)
    assert exactly_once(stream.arrived())


def test_a_node_that_dies_in_between_and_comes_back_loses_and_doubles_nothing(spark: Any, tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        make_topics(node.address, restarts=3)
        stream = Stream(spark, node, "restarts", tmp_path)

        def die_and_come_back() -> None:
            eventually(lambda: sum(end_offsets(node.address, "restarts").values()) > ROWS_PER_BATCH, "a first batch")
            node.kill()
            node.start()

        with ThreadPoolExecutor(1) as pool:
            restart = pool.submit(die_and_come_back)
            stream.run(until=BATCHES + 4)
            restart.result()
        assert exactly_once(stream.arrived())


def test_a_node_that_stays_away_is_named_with_how_long_it_was(spark: Any, tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        make_topics(node.address, away=1)
    frame = spark.range(3).selectExpr("cast(id as string) value")
    with pytest.raises(Exception, match=rf"no answer from {node.address} for \d+ ms"):
        saved(frame, node, topic="away", **{"delivery.timeout.ms": "1500"})
