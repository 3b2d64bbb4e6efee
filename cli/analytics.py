"""`muster pipeline analytics`: lag and rebalances of all groups of a node, as Parquet tables and a report."""

import time
from pathlib import Path

import click

from muster.cli.common.options import NumberRange, client_options, client_properties, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.files import make_folder
from muster.cli.spark import check_master, spark_conf_option, spark_session

ANALYTICS_COLUMNS = [Column("TABLE", "table", style="cyan"), Column("ROWS", "rows"), Column("PATH", "path")]


@click.command()
@client_options
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this one; may be repeated.")
@click.option("--every", type=NumberRange(0.1, 86_400), metavar="SECONDS", help="Between two moments of lag.")
@click.option("--keep", is_flag=True, help="Add to what earlier runs kept in DIR: history outlives compaction.")
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
    """Read the ledger and the committed offsets by Spark, and write down what they tell.

    DIR gets five Parquet tables (rebalances, moves, members, causes, lag) and report.html. Lag over time is
    measured at regular moments: the last position committed by then, against the end of the log then as the
    records' timestamps tell it. With --keep, what is new since the last run is added to DIR/kept, and the tables
    are made of all of it.
    """
    folder = make_folder(out)
    assert folder is not None, "--out is required"
    # Reads Parquet files by itself, so only now, when it is known that there is something to read them with.
    from muster.spark.pipelines.analysis import analyse

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
