"""History that outlives compaction: what the internal topics said is kept as Parquet, run by run.

Each run is a streaming query that takes what is new since the last one and ends. Its place is in a checkpoint
beside the files, and the files of a batch are listed once it is whole: nothing is lost or kept twice, whatever
stops a run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.spark.pipelines.analytics import LEDGER_TOPIC, OFFSETS_TOPIC, DecodedTopics, ledger_rows, offsets_rows

PLACES = {"ledger": (LEDGER_TOPIC, ledger_rows), "offsets": (OFFSETS_TOPIC, offsets_rows)}


def keep(spark: Any, options: Mapping[str, str], home: Path) -> None:
    """Add what is new to the files in `home`. Raises what the query raises."""
    for name, (topic, rows) in PLACES.items():
        # Compaction may have taken what nobody kept in time: no loss, for topics that are meant to be compacted.
        reader = spark.readStream.format("muster").options(**dict(options)).option("subscribe", topic)
        records = reader.option("startingOffsets", "earliest").option("failOnDataLoss", "false").load()
        writer = rows(records).writeStream.format("parquet").option("path", str(home / name))
        query = writer.option("checkpointLocation", str(home / f"{name}.checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()


def read_kept(spark: Any, home: Path) -> DecodedTopics:
    """All that was ever kept there."""
    return DecodedTopics(spark.read.parquet(str(home / "ledger")), spark.read.parquet(str(home / "offsets")))
