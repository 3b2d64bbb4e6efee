"""`muster pipeline export-trace`: a group's history, written down for a backtest."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import NumberRange, client_options, client_properties, connect_admin
from muster.cli.common.output import notice
from muster.cli.replay import fetch_ledger, read_documents
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.spark.pipelines.recorded import RecordedEntry, RecordedLags


@click.command("export-trace")
@client_options
@click.option("--group", metavar="GROUP", help="A group of the node; or give --ledger.")
@click.option(
    "--ledger", type=click.File("r", encoding="utf-8"), help="What groups explain -o json --snapshots printed."
)
@click.option("--every", type=NumberRange(0.1, 86_400), default=10.0, show_default=True, metavar="SECONDS")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.jsonl[.gz]")
def export_trace(
    bootstrap: str, overrides: dict[str, str], group: str | None, ledger: Any, every: float, file: Path
) -> None:
    """Write a group's history to FILE, for `muster pipeline backtest --trace FILE`.

    Who was there when comes from the ledger. Lag comes from committed positions and the logs, at each rebalance and
    every so many seconds between; from a --ledger file only what the assignor saw is known.
    """
    from muster.spark.pipelines.recorded import RecordedLags, build_trace, find_lag_moments, read_entries
    from muster.spark.pipelines.trace import write_trace

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
    from muster.spark.pipelines.log_ends import find_log_ends
    from muster.spark.pipelines.positions import read_positions
    from muster.spark.pipelines.recorded import RecordedLags, list_partitions

    with connect_admin(bootstrap, overrides) as admin:
        known, malformed = read_positions(admin, client_properties(bootstrap, overrides), group)
        ends = find_log_ends(admin, list_partitions(entries), times)
    if malformed:
        notice(f"{plural(malformed, 'record')} of __consumer_offsets could not be read.")
    return RecordedLags(known, {((end.topic, end.partition), end.at_ms): end.log_end for end in ends})
