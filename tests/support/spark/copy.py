"""A streaming query that copies one topic to another as a member of group "copy".

For tests that kill drivers: `python -m tests.support.spark.copy ADDRESS SOURCE TARGET CHECKPOINT ROWS`
goes on until it is killed.
"""

import sys

from pyspark.errors import StreamingQueryException

from muster.spark.session import session
from tests.support.spark.reading import LATE

MEMBER = {"group.id": "copy", "session.timeout.ms": "1500", "heartbeat.interval.ms": "300"}


def main(address: str, source: str, target: str, checkpoint: str, rows: str) -> None:
    spark = session("copy", light=True)
    spark.sparkContext.setLogLevel("ERROR")
    node = {"bootstrap.servers": address}
    records = (
        spark.readStream.format("muster")
        .options(**node, **MEMBER, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=rows)
        .load()
    )
    writer = (
        records.select("key", "value")
        .writeStream.format("muster")
        .options(**node, topic=target)
        .option("checkpointLocation", checkpoint)
    )
    while True:
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            if LATE not in str(error):
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
