"""The Spark demo's driver, as a process of its own: counts words as a stream and says what each batch was."""

import json
import sys
from typing import Any

import click

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
@click.option("--rows", required=True, help="Rows of a batch, at most.")
@click.option("--busy-after", type=int, required=True, help="Batches until it tells that all slots have a task.")
@click.option("--conf", multiple=True, help="NAME=VALUE of the session.")
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
    from muster.cli.common.orphan import stop_with_stdin
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
    from muster.spark.offsets import parse_offset
    from muster.spark.planning import TaskPlan, plan_tasks

    ranges = parse_offset(end_offset).ranges()
    slots = plan_tasks(ranges, TaskPlan(assignor="split", tasks=TASKS))
    return [wanted.size for wanted in ranges], [sum(wanted.size for wanted in slot) for slot in slots]
