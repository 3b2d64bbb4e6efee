"""The demo's child processes: workers of a group, workers of the cluster's demo, and the driver of the Spark demo.

Each runs as a hidden command (`python -m muster.cli demo-worker` and so on) and ends when its standard input ends. A
worker consumes, reports what it consumed, and commits, in this order: killed between report and commit it leaves
lines that the next owner consumes again (at least once, never less). A worker of the cluster's demo also reports
which partitions it owns, and since when. The driver counts words as a stream and prints one JSON line per batch.
"""

import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.options import NumberRange, client_options, client_properties, find_plugins_here

if TYPE_CHECKING:
    from muster.client import Consumer, Message, TopicPartition


# `demo-worker`
# -------------

POLL_S = 0.1
COMMIT_EVERY_S = 0.1
MAX_BATCH = 5_000


@click.command("demo-worker")
@client_options
@click.option("--topic", required=True)
@click.option("--group", required=True)
@click.option("--name", required=True)
@click.option("--report", required=True, metavar="FILE")
@click.option("--pace", type=NumberRange(min=0, min_open=True), required=True, metavar="LINES_PER_SECOND")
def demo_worker(
    bootstrap: str, overrides: dict[str, str], topic: str, group: str, name: str, report: str, pace: float
) -> None:
    """One worker of `muster demo`."""
    from muster.cli.common.commands import stop_with_stdin
    from muster.client import Consumer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    stop_with_stdin()
    find_plugins_here()
    given = worker_properties(bootstrap, overrides, group, name)
    descriptor = open_report(report)
    try:
        with Consumer(given) as consumer:
            consumer.subscribe(topic, on_revoke=lambda consumer, partitions: commit_reported(consumer))
            work_until_stopped(consumer, descriptor, pace, stopping)
            commit_reported(consumer)
    finally:
        os.close(descriptor)


def worker_properties(bootstrap: str, overrides: dict[str, str], group: str, name: str) -> dict[str, object]:
    return client_properties(
        bootstrap,
        overrides,
        client_id=name,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )


def work_until_stopped(consumer: "Consumer", report: int, pace: float, stopping: threading.Event) -> None:
    """Until told to stop: a batch, its report, and now and then a commit; not faster than `pace` lines a second."""
    batch = max(1, min(MAX_BATCH, int(pace * POLL_S)))
    due = committed = time.monotonic()
    while not stopping.is_set():
        messages = consumer.consume(batch, POLL_S)
        if messages:
            os.write(report, pack_reports(messages))
        now = time.monotonic()
        if now - committed >= COMMIT_EVERY_S:
            commit_reported(consumer)
            committed = now
        due = max(due, now - POLL_S) + len(messages) / pace
        stopping.wait(max(0.0, due - time.monotonic()))


def pack_reports(messages: "Sequence[Message]") -> bytes:
    from muster.cli.demo.delivery_proof import REPORT_STRUCT, checksum

    pack = struct.Struct(REPORT_STRUCT).pack
    return b"".join(
        pack(message.partition, message.offset, checksum(message.key, message.value or b"")) for message in messages
    )


def commit_reported(consumer: "Consumer") -> None:
    """Commit all that was reported. While the group rebalances it may say no; the lines are read again then."""
    from muster.client.errors import CommitFailed

    try:
        consumer.commit()
    except CommitFailed:
        return


# `demo-cluster-worker`
# ---------------------


@click.command("demo-cluster-worker")
@client_options
@click.option("--topic", required=True)
@click.option("--group", required=True)
@click.option("--name", required=True)
@click.option("--report", required=True, metavar="FILE")
@click.option("--owned", required=True, metavar="FILE")
@click.option("--pace", type=NumberRange(min=0, min_open=True), required=True, metavar="LINES_PER_SECOND")
def demo_cluster_worker(
    bootstrap: str, overrides: dict[str, str], topic: str, group: str, name: str, report: str, owned: str, pace: float
) -> None:
    """One worker of `muster demo --cluster`."""
    from muster.cli.common.commands import stop_with_stdin
    from muster.client import Consumer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    stop_with_stdin()
    given = worker_properties(bootstrap, overrides, group, name)
    reported, told = open_report(report), open_report(owned)

    def gained(consumer: Consumer, partitions: "Iterable[TopicPartition]") -> None:
        os.write(told, ownership_line("gained", partitions))

    def lost(consumer: Consumer, partitions: "Iterable[TopicPartition]") -> None:
        commit_reported(consumer)
        os.write(told, ownership_line("lost", partitions))

    try:
        with Consumer(given) as consumer:
            consumer.subscribe(topic, on_assign=gained, on_revoke=lost)
            work_until_stopped(consumer, reported, pace, stopping)
            commit_reported(consumer)
    finally:
        os.close(reported)
        os.close(told)


def open_report(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def ownership_line(what: str, partitions: "Iterable[TopicPartition]") -> bytes:
    """By the machine's clock, which all processes share."""
    numbers = sorted(each.partition for each in partitions)
    return json.dumps({"at_ns": time.monotonic_ns(), what: numbers}).encode() + b"\n"


# `demo-spark-driver`
# -------------------

TASKS = 2
NOT_IN_WORDS = "[^A-Za-z0-9_]+"
LOOK_AGAIN_S = 0.02
MAX_SHARES_SHOWN = {"spark.ui.liveUpdate.period": "0"}
"""What tasks do is looked at while they run; by default Spark's own word of it is a tenth of a second old."""


@click.command("demo-spark-driver")
@click.option("--bootstrap", required=True)
@click.option("--master", required=True)
@click.option("--source", required=True)
@click.option("--target", required=True)
@click.option("--folder", required=True)
@click.option("--rows", required=True, help="Most rows of a batch.")
@click.option("--busy-after", type=int, required=True, help="Batches until it reports that all slots have a task.")
@click.option("--conf", multiple=True, help="NAME=VALUE of the Spark session.")
def demo_spark_driver(
    bootstrap: str,
    master: str,
    source: str,
    target: str,
    folder: str,
    rows: str,
    busy_after: int,
    conf: tuple[str, ...],
) -> None:
    """The driver of `muster demo --spark`: tells each batch, once that all slots are busy, how many tasks failed."""
    from muster.cli.common.commands import stop_with_stdin
    from muster.spark.session import session

    stop_with_stdin()
    settings = MAX_SHARES_SHOWN | dict(pair.split("=", 1) for pair in conf)
    spark = session("muster demo", master=master, light=True, config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    node = {"bootstrap.servers": bootstrap}
    query = (
        count_words(spark, node | {"subscribe": source, "maxOffsetsPerTrigger": rows})
        .writeStream.format("muster")
        .outputMode("complete")
        .options(**node, topic=target)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    tasks = TaskTracker(spark.sparkContext.statusTracker(), str(query.runId))
    told, busy = -1, False
    while not (ended := query.awaitTermination(LOOK_AGAIN_S)) or told < last_batch(query):
        if not busy and told + 1 >= busy_after and (running := tasks.running()) >= TASKS:
            busy = True
            print_json_line({"busy": running})
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print_json_line(describe_batch(progress))
        if ended and (error := query.exception()) is not None:
            raise error
    print_json_line({"failed": tasks.failed()})
    spark.stop()


class TaskTracker:
    """What Spark tells of the tasks of one query; its jobs carry the id of the query's run as their group."""

    def __init__(self, tracker: Any, run: str) -> None:
        self._tracker = tracker
        self._run = run

    def running(self) -> int:
        """Of the stage that has most of them now."""
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        return max((stage.numActiveTasks for stage in stages if stage is not None), default=0)

    def failed(self) -> int:
        """All that did not come to their end so far, by the last try of each stage; Spark tried them again."""
        jobs = [self._tracker.getJobInfo(number) for number in self._tracker.getJobIdsForGroup(self._run)]
        stages = {number for job in jobs if job is not None for number in job.stageIds}
        found = [self._tracker.getStageInfo(number) for number in sorted(stages)]
        return sum(stage.numFailedTasks for stage in found if stage is not None)


def count_words(spark: Any, options: dict[str, str]) -> Any:
    """How often each word has come so far: the whole table, with every batch."""
    from pyspark.sql.functions import col, explode, split

    lines = spark.readStream.format("muster").options(**options, startingOffsets="earliest", tasks=str(TASKS)).load()
    found = lines.select(explode(split(col("value").cast("string"), NOT_IN_WORDS)).alias("word")).where("word != ''")
    return found.groupBy("word").count().selectExpr("word AS key", "cast(count AS string) AS value")


def last_batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def describe_batch(progress: Any) -> dict[str, Any]:
    """The batch, and how its ranges were dealt out."""
    shares = batch_shares(progress["sources"][0]["endOffset"])
    return {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "ms": progress["durationMs"]["triggerExecution"],
        "partitions": shares[0],
        "tasks": shares[1],
    }


def print_json_line(told: dict[str, Any]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def batch_shares(end_offset: Any) -> tuple[list[int], list[int]]:
    """Records of each partition in a batch, and of each task: the source's own plan, made again."""
    from muster.spark.planning import TaskPlan, plan_tasks
    from muster.spark.stream_offsets import parse_offset

    ranges = parse_offset(end_offset).ranges()
    slots = plan_tasks(ranges, TaskPlan(assignor="split", tasks=TASKS))
    return [wanted.size for wanted in ranges], [sum(wanted.size for wanted in slot) for slot in slots]
