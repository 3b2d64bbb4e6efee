"""The Spark demo's driver, as a process of its own: counts words as a stream and says what each batch was."""

import json
import sys
from typing import Any

import click

TASKS = 2
NOT_IN_WORDS = "[^A-Za-z0-9_]+"


@click.command("demo-spark-driver")
@click.option("--bootstrap", required=True)
@click.option("--master", required=True)
@click.option("--source", required=True)
@click.option("--target", required=True)
@click.option("--folder", required=True)
@click.option("--rows", required=True, help="Rows of a batch, at most.")
@click.option("--conf", multiple=True, help="NAME=VALUE of the session.")
def demo_spark_driver(
    bootstrap: str, master: str, source: str, target: str, folder: str, rows: str, conf: tuple[str, ...]
) -> None:
    """The driver of `muster demo --spark`."""
    from coordinator.cli.demo.orphan import stop_with_stdin
    from coordinator.spark.session import session

    stop_with_stdin()
    settings = dict(pair.split("=", 1) for pair in conf)
    spark = session("muster demo", master=master, light=True, config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    node = {"bootstrap.servers": bootstrap}
    query = (
        words(spark, node | {"subscribe": source, "maxOffsetsPerTrigger": rows})
        .writeStream.format("muster")
        .outputMode("complete")
        .options(**node, topic=target)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    told = -1
    while not (ended := query.awaitTermination(0.1)) or told < last_batch(query):
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                say(progress)
        if ended and (error := query.exception()) is not None:
            raise error
    spark.stop()


def words(spark: Any, options: dict[str, str]) -> Any:
    """How often each word has come so far: the whole table, with every batch."""
    from pyspark.sql.functions import col, explode, split

    lines = spark.readStream.format("muster").options(**options, startingOffsets="earliest", tasks=str(TASKS)).load()
    found = lines.select(explode(split(col("value").cast("string"), NOT_IN_WORDS)).alias("word")).where("word != ''")
    return found.groupBy("word").count().selectExpr("word AS key", "cast(count AS string) AS value")


def last_batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def say(progress: Any) -> None:
    """One line of JSON: the batch, and how its ranges were dealt out."""
    shares = dealt(progress["sources"][0]["endOffset"])
    told = {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "ms": progress["durationMs"]["triggerExecution"],
        "partitions": shares[0],
        "tasks": shares[1],
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def dealt(end_offset: Any) -> tuple[list[int], list[int]]:
    """Records of each partition in a batch, and of each task: the source's own plan, made again."""
    from coordinator.spark.offsets import parse
    from coordinator.spark.planning import Plan, plan_tasks

    ranges = parse(end_offset).ranges()
    slots = plan_tasks(ranges, Plan(assignor="split", tasks=TASKS))
    return [wanted.size for wanted in ranges], [sum(wanted.size for wanted in slot) for slot in slots]
