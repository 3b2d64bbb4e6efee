"""`muster pipeline analytics` and `export-trace`: a node's history as Parquet tables and a report, or as a trace.

Pipelines run on a Spark session that lasts as long as the command, and leave behind a folder of Parquet files and
one report.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import (
    NumberRange,
    client_options,
    client_properties,
    connect_admin,
    key_values,
    output_option,
    repeated_option,
)
from muster.cli.common.output import columns, notice, print_rows
from muster.cli.replay import fetch_ledger, read_documents
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.spark.pipelines.recorded import RecordedEntry, RecordedLags


# The Spark session
# -----------------

spark_conf_option = repeated_option(
    "--spark-conf",
    "settings",
    metavar="KEY=VALUE",
    callback=key_values,
    help="Property of the Spark session, such as spark.driver.memory=4g",
)

KNOWN_MASTER = re.compile(
    r"local|local\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s/,]+:\d+(,[^\s/,]+:\d+)*|yarn|k8s://\S+"
)


def check_master(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Checks the word before a JVM is started that would print its stack over a wrong one."""
    if given is not None and KNOWN_MASTER.fullmatch(given) is None:
        expected = "local[2], local[*], spark://HOST:PORT, yarn or k8s://URL"
        raise click.BadParameter(f"{given!r} is no Spark master; expected {expected}", ctx, param)
    return given


PYTHON_ERROR = re.compile(r"^(?:: )?(?:(?:[a-z_]\w*\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception)): (.+)", re.M)
"""The line of a traceback that says what happened."""


@contextmanager
def spark_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Started, quiet, and stopped at the end; one that was there before is left running.

    What goes wrong in it comes as a CommandError, with the reason and without the stack of two languages.
    """
    from muster.coordinator.java_runtime import JavaNotFound
    from muster.spark.session import session

    try:
        from pyspark.sql import SparkSession

        before = SparkSession.getActiveSession()
        spark = session(name, master=master, light=master.startswith("local"), config=settings)
    except (ImportError, JavaNotFound) as missing:
        raise CommandError(str(missing)) from missing
    except Exception as error:
        # The gateway's own errors: pyspark may be missing, so they have no name here before they happen.
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        raise CommandError(f"Spark does not start on {master!r}: {spark_failure_reason(str(error))}") from error
    try:
        spark.sparkContext.setLogLevel("ERROR")
        from pyspark.errors import PySparkException

        try:
            yield spark
        except PySparkException as error:
            raise CommandError(f"the Spark job failed: {spark_failure_reason(str(error))}") from error
    finally:
        if before is None:
            spark.stop()


def spark_failure_reason(text: str) -> str:
    """The last thing that Python said, else the first line.

    >>> spark_failure_reason("[X] Failed: Traceback...\\n  File a\\nstorage.errors.DiskFull: the disk is full\\n"
    ... "SQLSTATE: 38000")
    'the disk is full'
    >>> spark_failure_reason("[PATH_NOT_FOUND] no such path\\nmore")
    '[PATH_NOT_FOUND] no such path'
    """
    said = PYTHON_ERROR.findall(text)
    return str(said[-1]) if said else text.partition("\n")[0]


# The folder of results
# ---------------------

NO_ARROW = "Parquet files need pyarrow; install it with: pip install 'muster-groups[spark]'"


def make_folder(out: Path | None) -> Path | None:
    """The folder, made; what writes into it is looked for before the work, not after it."""
    if out is None:
        return None
    from muster.spark.pipelines.reports import PlottingNotInstalled, check_plotting

    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise CommandError(NO_ARROW) from None
    try:
        check_plotting()
    except PlottingNotInstalled as missing:
        raise CommandError(str(missing)) from missing
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--out {out} cannot be made: {error.strerror}", "name a folder, or a place for one"
        ) from None
    if made:
        # Work that fails or is broken off before anything was written leaves nothing behind.
        click.get_current_context().call_on_close(lambda: remove_if_empty(out))
    return out


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def write_parquet(path: Path, rows: Any) -> None:
    """An Arrow table, or a list of rows with the same keys."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows) if isinstance(rows, list) else rows
    pq.write_table(table, path)
    notice(f"{path}: {table.num_rows:,} rows")


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    notice(str(path))


# `analytics`
# -----------

ANALYTICS_COLUMNS = columns("TABLE:cyan, ROWS, PATH")


@click.command()
@client_options
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@repeated_option("--group", "groups", metavar="GROUP", help="Only this group")
@click.option("--every", type=NumberRange(0.1, 86_400), metavar="SECONDS", help="Time between two samples of lag.")
@click.option("--keep", is_flag=True, help="Add to what earlier runs wrote to DIR: history outlives compaction.")
@click.option("--spark", "master", callback=check_master, metavar="MASTER", default="local[2]", show_default=True)
@spark_conf_option
@output_option
def analytics(
    bootstrap: str,
    overrides: dict[str, str],
    out: Path,
    groups: tuple[str, ...],
    every: float | None,
    keep: bool,
    master: str,
    settings: dict[str, str],
    style: str,
) -> None:
    """Export lag and rebalances as Parquet tables, by Spark.

    Reads the ledger and the committed offsets. DIR gets six Parquet tables (rebalances, waits, moves, members, causes,
    lag) and report.html. Lag over time is measured at regular moments: the last position committed by then, against the
    end of the log at that time by the records' timestamps. With --keep, what is new since the last run is added to
    DIR/kept, and the tables cover all of it.
    """
    folder = make_folder(out)
    assert folder is not None, "--out is required"
    # Reads Parquet files by itself, so only now, when it is known that there is something to read them with.
    from muster.spark.pipelines.analytics import analyse

    options = {name: str(value) for name, value in client_properties(bootstrap, overrides).items()}
    every_ms = None if every is None else int(every * 1000)
    with connect_admin(bootstrap, overrides) as admin:
        # A node that is not there is told at once, and by its own kind of error.
        admin.list_topics()
    with spark_session("muster analytics", master, settings) as spark:
        done = analyse(
            spark, options, folder, time.time_ns() // 1_000_000, every_ms=every_ms, groups=groups, keeping=keep
        )
    written = [{"table": name, "rows": rows, "path": str(folder / name)} for name, rows in done.rows.items()]
    print_rows(written, ANALYTICS_COLUMNS, style)
    notice(str(folder / "report.html"))
    if done.malformed:
        notice(f"{done.malformed} records could not be read; they are in none of the tables.")


# `export-trace`
# --------------


@click.command("export-trace")
@client_options
@click.option("--group", metavar="GROUP", help="Export this group of the node.")
@click.option(
    "--ledger",
    type=click.File("r", encoding="utf-8"),
    help="Export this output of `muster groups explain -o json --snapshots`.",
)
@click.option("--every", type=NumberRange(0.1, 86_400), default=10.0, show_default=True, metavar="SECONDS")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.jsonl[.gz]")
def export_trace(
    bootstrap: str, overrides: dict[str, str], group: str | None, ledger: Any, every: float, file: Path
) -> None:
    """Export the history of a group to FILE for a backtest.

    `muster pipeline backtest --trace FILE` reads it. Members come from the ledger. Lag comes from committed positions
    and the logs, at each rebalance and at regular intervals between; a --ledger file gives only what the assignor
    saw.
    """
    from muster.spark.pipelines.recorded import RecordedLags, build_trace, find_lag_moments, read_entries
    from muster.spark.pipelines.traces import write_trace

    if (group is None) == (ledger is None):
        raise click.UsageError("name a group with --group, or a file with --ledger; expected exactly one of the two")
    documents = fetch_ledger(bootstrap, overrides, group) if group is not None else read_documents(ledger)
    try:
        entries = read_entries(documents)
        until_ms = max(entry.ended_at_ms for entry in entries) + int(every * 1000)
        if group is not None:
            until_ms = max(until_ms, time.time_ns() // 1_000_000)
        times = find_lag_moments(entries, until_ms, int(every * 1000))
        lags = RecordedLags() if group is None else fetch_recorded_lags(bootstrap, overrides, group, entries, times)
        trace = build_trace(
            group or file.name.removesuffix(".gz").removesuffix(".jsonl"), entries, times, lags, until_ms
        )
    except ValueError as error:
        raise CommandError(f"no trace: {error}", code=Exit.USAGE) from None
    write_trace(trace, file)
    notice(f"{file}: {plural(trace.decisions, 'rebalance')}, {plural(len(trace.members), 'member')}")
    if not trace.load.any():
        notice("No lag is known of that time: the trace tells counts, moves and unowned time apart, not lag.")


def fetch_recorded_lags(
    bootstrap: str, overrides: dict[str, str], group: str, entries: "list[RecordedEntry]", times: list[int]
) -> "RecordedLags":
    from muster.spark.pipelines.recorded import RecordedLags, find_log_ends, list_partitions, read_positions

    with connect_admin(bootstrap, overrides) as admin:
        known, malformed = read_positions(admin, client_properties(bootstrap, overrides), group)
        ends = find_log_ends(admin, list_partitions(entries), times)
    if malformed:
        notice(f"{plural(malformed, 'record')} of __consumer_offsets could not be read.")
    return RecordedLags(known, {((end.topic, end.partition), end.at_ms): end.log_end for end in ends})
