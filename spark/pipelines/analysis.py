"""From a node to a folder: tables as Parquet, and a report. What `muster pipeline analytics` runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.client import Admin
from muster.client.aio.admin import AdminConfig
from muster.spark.pipelines.analytics import DecodedTopics, commits, decoded, rebalance_rows, tables_of
from muster.spark.pipelines.analytics_report import build_analytics_report
from muster.spark.pipelines.keeping import keep, read_kept
from muster.spark.pipelines.log_ends import build_table, choose_moments, find_log_ends

KEPT = "kept"


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """What was written: rows by table, and records of the two topics that could not be read."""

    rows: Mapping[str, int]
    malformed: int


def analyse(
    spark: Any,
    options: Mapping[str, str],
    out: Path,
    until_ms: int,
    *,
    every_ms: int | None = None,
    groups: Sequence[str] = (),
    keeping: bool = False,
) -> AnalysisResult:
    """Write each table to a folder of its name below `out`, and `build_analytics_report.html` beside them.

    `until_ms` is where lag over time ends, `every_ms` the pause between its moments, chosen when not given. No
    `groups` are all of them. With `keeping`, records are added to what earlier runs kept in the same folder, and
    the tables are made of all of it. `out` must be reachable from the executors. Raises NoPlotting, ClientError,
    ValueError.
    """
    found = choose_groups(decode_source(spark, options, out, keeping), groups)
    entries = rebalance_rows(found.ledger).cache()
    try:
        with Admin(select_client_options(options)) as admin:
            ends = find_ends(spark, found, admin, until_ms, every_ms)
        tables = tables_of(entries, found.offsets, ends)
        written = {name: store_table(spark, table, out / name) for name, table in tables.items()}
        malformed = found.malformed()
    finally:
        for frame in (entries, found.ledger, found.offsets):
            frame.unpersist()
    (out / "report.html").write_text(build_analytics_report(written, malformed), encoding="utf-8")
    return AnalysisResult({name: int(table.count()) for name, table in written.items()}, malformed)


def store_table(spark: Any, table: Any, place: Path) -> Any:
    """The table as it was written: what follows reads the files, not the node again."""
    table.coalesce(1).write.mode("overwrite").parquet(str(place))
    return spark.read.parquet(str(place))


def decode_source(spark: Any, options: Mapping[str, str], out: Path, keeping: bool) -> DecodedTopics:
    if not keeping:
        return decoded(spark, options)
    keep(spark, options, out / KEPT)
    return read_kept(spark, out / KEPT)


def choose_groups(found: DecodedTopics, groups: Sequence[str]) -> DecodedTopics:
    """Only these groups; what could not be read belongs to nobody, and stays. Decoded once, read often."""
    from pyspark.sql import functions as F

    def mine(frame: Any) -> Any:
        wanted = frame if not groups else frame.where(F.col("group").isNull() | F.col("group").isin(*groups))
        return wanted.cache()

    return DecodedTopics(mine(found.ledger), mine(found.offsets))


def select_client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Of the data source's options those that a client knows."""
    known = {name.replace("_", ".") for name in AdminConfig.model_fields}
    given = {name.removeprefix("kafka."): value for name, value in options.items()}
    return {name: value for name, value in given.items() if name in known}


def find_ends(spark: Any, found: DecodedTopics, admin: Admin, until_ms: int, every_ms: int | None) -> Any:
    """None when nobody has committed anything."""
    from pyspark.sql import functions as F

    stored = commits(found.offsets)
    first = stored.agg(F.min("at_ms").alias("first")).toArrow().to_pylist()[0]["first"]
    if first is None:
        return None
    places = stored.select("topic", "partition").distinct().toArrow().to_pylist()
    partitions = [(row["topic"], row["partition"]) for row in places]
    return spark.createDataFrame(
        build_table(find_log_ends(admin, partitions, choose_moments(first, until_ms, every_ms)))
    )
