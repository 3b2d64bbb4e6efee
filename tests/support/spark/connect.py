"""What a user of Spark Connect does, as a process of its own: a session is either Connect's or classic, never both.

Run as `python -m tests.support.spark.connect ADDRESS SOURCE TARGET GROUP CHECKPOINT`. It copies one topic to another as
a member of the group, and prints what it saw as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from muster.spark import OffsetCommitter
from muster.spark.session import LIGHT, LOOPBACK, prepare, register

ONLY_HERE = {"spark.connect.grpc.binding.address": "127.0.0.1"}


def main(address: str, source: str, target: str, group: str, checkpoint: str) -> None:
    prepare()
    builder = SparkSession.builder.remote("local[2]")
    for name, value in (
        LIGHT | LOOPBACK | ONLY_HERE | {"spark.sql.warehouse.dir": str(Path(checkpoint).parent)}
    ).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    node = {"bootstrap.servers": address}
    # By the name under which Spark finds the source itself.
    found = spark.read.format("muster").options(**node, subscribe=source).load().count()
    register(spark)
    committer = OffsetCommitter(spark)
    query = (
        spark.readStream.format("muster")
        .options(**node, subscribe=source, maxOffsetsPerTrigger="60", **{"group.id": group})
        .load()
        .select("key", "value")
        .writeStream.format("muster")
        .options(**node, topic=target)
        .option("checkpointLocation", checkpoint)
        # Of this trigger's only batch Spark tells nobody but a listener that it is done.
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    committer.flush(query)
    committer.close()
    written = spark.read.format("muster").options(**node, subscribe=target).load()
    sums = written.selectExpr("count(*) n", "count(distinct value) different").toArrow().to_pylist()
    print(json.dumps({"session": type(spark).__module__, "found": found, "written": sums}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
