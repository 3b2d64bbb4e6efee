"""Lag and rebalances of a node's groups as tables, read through the data source and decoded on executors. `muster
pipeline analytics` runs `analyse`.

`decoded` reads both internal topics; `tables_of` makes six Spark data frames:

- `rebalances`: one row per ledger entry, with phases and partition-milliseconds without an owner;
- `waits`: one row per member that a phase waited for, and how that ended;
- `moves`: one row per partition whose owner changed, or that lost its owner;
- `members`: for each group and member the partitions gained and lost;
- `causes`: for each group and cause the number, duration and cost;
- `lag`: for each group and partition the position and the log's end at regular moments.

The log's end at a past moment is the offset of the first later record by timestamp: exact if the topic stamps on
arrival, otherwise as good as the producers' clocks. A moment from which no record remains is looked up at the first
record that does; `basis` says which applies. `__consumer_offsets` is compacted, so positions reach back only as far
as compaction allows, unless `keep` stored them as Parquet before. Each run of `keep` is a streaming query with a
checkpoint next to the files: nothing is lost or stored twice, whatever stops a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from muster.client import Admin
from muster.client.aio.admin import AdminConfig
from muster.spark.pipelines.decoding import (
    COMMITTED,
    DECIDED,
    FORGOTTEN,
    LEDGER_ROW,
    MALFORMED,
    OFFSETS_ROW,
    SETTLED,
    WAITED,
    ledger_columns,
    offsets_columns,
    waits_columns,
)
from muster.spark.pipelines.recorded import build_table, choose_moments, find_log_ends
from muster.spark.pipelines.reports import build_analytics_report

# Tables
# ------

LEDGER_TOPIC, OFFSETS_TOPIC = "__rebalances", "__consumer_offsets"
COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class DecodedTopics:
    """What the two topics say, one row per record, with the record's place in the log."""

    ledger: Any
    offsets: Any

    def malformed(self) -> int:
        """Records that could not be read."""
        from pyspark.sql import functions as F

        return sum(int(frame.where(F.col("kind") == MALFORMED).count()) for frame in (self.ledger, self.offsets))


def decoded(spark: Any, options: Mapping[str, str]) -> DecodedTopics:
    """Both topics as they are now. `options` are the data source's: bootstrap.servers, and the client's own."""

    def records(topic: str) -> Any:
        reader = spark.read.format("muster").options(**dict(options)).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").load()

    return DecodedTopics(ledger_rows(records(LEDGER_TOPIC)), offsets_rows(records(OFFSETS_TOPIC)))


def ledger_rows(records: Any) -> Any:
    """Rows of the data source as rows of the ledger; streams as well as tables."""
    return decode_rows(records, ledger_columns, LEDGER_ROW)


def offsets_rows(records: Any) -> Any:
    return decode_rows(records, offsets_columns, OFFSETS_ROW)


def decode_rows(records: Any, decode: Any, row: Any) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    from pyspark.sql.pandas.types import from_arrow_type

    place = records.select("key", "value", F.col("partition").alias("log"), F.col("offset").alias("at"))
    rows = place.select("log", "at", arrow_udf(decode, from_arrow_type(row))("key", "value").alias("row"))
    return rows.select("log", "at", "row.*")


def rebalance_rows(ledger: Any) -> Any:
    """Entries with what became known after the plan. A number that a group used twice, because it was deleted and
    made again, stays two rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    known = ledger.where(F.col("kind").isin(DECIDED, SETTLED))
    in_order = Window.partitionBy("group", "number").orderBy("log", "at")
    counted = known.withColumn("life", F.sum((F.col("kind") == DECIDED).cast("int")).over(in_order))
    entries = counted.where(F.col("kind") == DECIDED).select("group", "number", "life", "at", "entry.*")
    settled = (
        counted.where(F.col("kind") == SETTLED)
        .groupBy("group", "number", "life")
        .agg(F.max_by("settlement", "at").alias("settlement"))
    )
    joined = entries.join(settled, ["group", "number", "life"], "left")
    newest = Window.partitionBy("group", "number", "started_at_ms").orderBy(F.col("life").desc())
    # A turn that was cut off after its ledger record was written is decided again, under the same number.
    return joined.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place", "life", "at")


def tables_of(entries: Any, offsets: Any, ends: Any) -> dict[str, Any]:
    """The six tables by name, from `rebalance_rows` and the decoded offsets.

    `ends` is what `muster.spark.pipelines.recorded` looked up, or None for no lag.
    """
    tables = {
        "rebalances": rebalances(entries),
        "waits": waits(entries),
        "moves": moves(entries),
        "members": members(entries),
        "causes": causes(entries),
    }
    return tables if ends is None else tables | {"lag": lag(offsets, ends)}


def rebalances(entries: Any) -> Any:
    from pyspark.sql import functions as F

    def phase(name: str) -> Any:
        mine = F.filter("phases", lambda one: one["name"] == name)
        return F.when(F.size(mine) > 0, F.aggregate(mine, F.lit(0).cast("long"), lambda s, one: s + one["duration_ms"]))

    return entries.select(
        "group",
        "number",
        "previous_generation",
        "generation",
        "outcome",
        "cause",
        "culprit",
        "culprit_client_id",
        "detail",
        "certainty",
        "evidence",
        "protocol_type",
        F.col("protocol_name").alias("assignor"),
        F.timestamp_millis("started_at_ms").alias("started_at"),
        F.timestamp_millis("ended_at_ms").alias("ended_at"),
        F.timestamp_millis("settlement.settled_at_ms").alias("settled_at"),
        (F.col("ended_at_ms") - F.col("started_at_ms")).alias("took_ms"),
        phase("join").alias("join_ms"),
        phase("plan").alias("plan_ms"),
        (F.col("settlement.settled_at_ms") - F.col("ended_at_ms")).alias("settle_ms"),
        F.size("members").alias("members"),
        F.size("moves").alias("changes"),
        F.size(build_handover_filter()).alias("moves"),
        F.col("settlement.unowned_partition_ms").alias("unowned_partition_ms"),
        "snapshot_source",
    ).orderBy("group", "started_at", "number")


def waits(entries: Any) -> Any:
    """The members that a phase was longer for. Entries of older versions have none."""
    from pyspark.sql import functions as F
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    from pyspark.sql.pandas.types import from_arrow_type

    found = arrow_udf(waits_columns, from_arrow_type(pa.list_(WAITED)))(
        "phases", "members", "ended_at_ms", "settlement"
    )
    at = F.timestamp_millis("ended_at_ms").alias("at")
    rows = entries.select("group", "number", "cause", at, F.explode(found).alias("wait"))
    return rows.select("group", "number", "cause", "at", "wait.*").orderBy("group", "at", "number", "after_ms")


def build_handover_filter() -> Any:
    """The changes by which a partition went from one member to another: what nobody had, or nobody has, did not
    move.
    """
    from pyspark.sql import functions as F

    return F.filter("moves", lambda move: (move["source"] != "") & (move["target"] != ""))


def moves(entries: Any) -> Any:
    """A partition's time without an owner comes from the settlement; null while it is open."""
    from pyspark.sql import functions as F

    def gap_of(move: Any) -> Any:
        same = F.filter(
            "settlement.unowned",
            lambda gap: (gap["topic"] == move["topic"]) & (gap["partition"] == move["partition"]),
        )
        known = F.when(move["unowned_ms"] >= 0, move["unowned_ms"])
        return F.coalesce(F.try_element_at(same, F.lit(1))["unowned_ms"], known)

    rows = entries.withColumn("move", F.explode("moves"))
    return rows.select(
        "group",
        "number",
        "generation",
        "cause",
        F.timestamp_millis("ended_at_ms").alias("at"),
        "move.topic",
        "move.partition",
        F.nullif(F.col("move.source"), F.lit("")).alias("source"),
        F.nullif(F.col("move.target"), F.lit("")).alias("target"),
        gap_of(F.col("move")).alias("unowned_ms"),
        "move.why",
    ).orderBy("group", "at", "topic", "partition")


def members(entries: Any) -> Any:
    """Per member: the plans it was part of, and the partitions that came to it and that another one has from it.

    What is withheld for a later round is lost when it is given out, not twice.
    """
    from pyspark.sql import functions as F

    there = entries.select("group", "ended_at_ms", F.explode("members").alias("member")).select(
        "group",
        F.col("member.member_id").alias("member"),
        F.col("member.client_id").alias("client_id"),
        F.col("member.partitions").alias("partitions"),
        "ended_at_ms",
    )
    plans = there.groupBy("group", "member").agg(
        F.max_by("client_id", "ended_at_ms").alias("client_id"),
        F.count("*").alias("plans"),
        F.max_by("partitions", "ended_at_ms").alias("partitions"),
        F.timestamp_millis(F.min("ended_at_ms")).alias("first_plan_at"),
        F.timestamp_millis(F.max("ended_at_ms")).alias("last_plan_at"),
    )
    moved = entries.select("group", F.explode("moves").alias("move")).select("group", "move.source", "move.target")
    moved = moved.where("target != ''")

    def ends(which: str, name: str) -> Any:
        counted = moved.where(F.col(which) != "").groupBy("group", F.col(which).alias("member"))
        return counted.agg(F.count("*").alias(name))

    both = plans.join(ends("target", "gained"), ["group", "member"], "full")
    return both.join(ends("source", "lost"), ["group", "member"], "full").fillna(0, ["gained", "lost", "plans"])


def causes(entries: Any) -> Any:
    """What each cause cost; the unowned time of rebalances that never settled is unknown and not in it."""
    from pyspark.sql import functions as F

    return (
        entries.groupBy("group", "cause")
        .agg(
            F.count("*").alias("rebalances"),
            F.sum(F.col("ended_at_ms") - F.col("started_at_ms")).alias("took_ms"),
            F.sum(F.size(build_handover_filter())).alias("moves"),
            F.sum("settlement.unowned_partition_ms").alias("unowned_partition_ms"),
            F.sum(((F.col("outcome") == COMPLETED) & F.col("settlement").isNull()).cast("int")).alias("unsettled"),
        )
        .orderBy("group", F.col("rebalances").desc())
    )


def commits(offsets: Any) -> Any:
    """Positions in the order they were stored; a forgotten one has no position. Its time is that of the commit before
    it, because a tombstone carries none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    stored = offsets.where(F.col("kind").isin(COMMITTED, FORGOTTEN))
    before = (
        Window.partitionBy("group", "topic", "partition").orderBy("log", "at").rowsBetween(Window.unboundedPreceding, 0)
    )
    timed = stored.withColumn("at_ms", F.last("committed_at_ms", ignorenulls=True).over(before))
    return timed.where("at_ms is not null").select("group", "topic", "partition", "committed", "at_ms", "at")


def lag(offsets: Any, ends: Any) -> Any:
    """At every moment of `ends` the last position committed by then, and how far behind that was."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    stored = commits(offsets).withColumn("position", F.struct("committed"))
    groups = stored.select("group", "topic", "partition").distinct()
    asked = groups.join(ends, ["topic", "partition"])
    both = stored.select("group", "topic", "partition", "at_ms", "at", "position").unionByName(
        asked.select("group", "topic", "partition", "at_ms", "log_end", "basis"), allowMissingColumns=True
    )
    # At the same millisecond the commit goes first: rows with a place in the log before the moment, which has none.
    sofar = Window.partitionBy("group", "topic", "partition").orderBy("at_ms", F.col("at").asc_nulls_last())
    carried = both.withColumn("held", F.last("position", ignorenulls=True).over(sofar))
    return (
        carried.where("log_end is not null and held.committed is not null")
        .select(
            "group",
            "topic",
            "partition",
            F.timestamp_millis("at_ms").alias("at"),
            F.col("held.committed").alias("committed"),
            "log_end",
            F.greatest(F.col("log_end") - F.col("held.committed"), F.lit(0)).alias("lag"),
            "basis",
        )
        .orderBy("group", "topic", "partition", "at")
    )


# History kept as Parquet
# -----------------------

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
    """All that was ever kept there. Columns that an earlier version did not know are null."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import IntegerType, LongType, StructType

    def rows(name: str, row: Any) -> Any:
        schema = StructType().add("log", IntegerType()).add("at", LongType())
        for field in row:
            schema = schema.add(field.name, from_arrow_type(field.type))
        return spark.read.schema(schema).parquet(str(home / name))

    return DecodedTopics(rows("ledger", LEDGER_ROW), rows("offsets", OFFSETS_ROW))


# The whole analysis
# ------------------

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
    the tables are made of all of it. `out` must be reachable from the executors. Raises PlottingNotInstalled,
    ClientError, ValueError.
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
