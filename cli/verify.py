"""`muster log verify`: every batch and checkpoint of a data directory."""

from dataclasses import asdict

import click

from muster.cli.common.errors import Exit
from muster.cli.common.options import output_option
from muster.cli.common.output import Column, console, notice, print_rows
from muster.cli.where import existing_directory
from muster.coordinator.observability.views.formatting import plural

VERIFY_COLUMNS = [
    Column("FILE", "file"),
    Column("POSITION", "position"),
    Column("BYTES", "size"),
    Column("FROM-OFFSET", "first_offset"),
    Column("WHY", "why", style="red"),
]


@click.command()
@output_option
@click.argument("data", metavar="DIR", callback=existing_directory)
def verify(style: str, data: str) -> int:
    """Check the catalog, the checkpoints and every batch below DIR. Exit code 1 when something is wrong.

    Reads only. While a node writes, the last batch of an active segment may be reported as cut off.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from muster.storage.tools.verify import verify_dir

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        report = verify_dir(data, lambda done, size, file: bar.update(task, completed=done, total=size))
    if report.findings or style not in ("table", "wide"):
        print_rows([asdict(finding) for finding in report.findings], VERIFY_COLUMNS, style)
    walked = f"{plural(report.files, 'file')}, {report.batches:,} batches, {report.bytes:,} bytes"
    notice(f"{walked}: {'whole' if report.ok else plural(len(report.findings), 'finding')}")
    return Exit.OK if report.ok else Exit.FAILURE
