"""`python -m tests.truth`: play situations with real clients and nodes, and print where Muster's report is true."""

import sys
import time

import click

from tests.truth import situations as _all  # noqa: F401
from tests.truth.clients import CLIENTS, clients_named
from tests.truth.judge import RIGHT
from tests.truth.nodes import BACKENDS, running_backends
from tests.truth.recordings import save
from tests.truth.situations.registry import SITUATIONS
from tests.truth.table import (
    SKIPPED,
    Cell,
    counts,
    json_table,
    markdown_table,
    plain_table,
    play_all,
    report_of,
)


@click.command()
@click.option("--only", multiple=True, metavar="SITUATION", help="Play situations with this prefix; may be repeated.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Client, library or mode; may be repeated.",
)
@click.option("--backend", type=click.Choice(list(BACKENDS)), default="node", show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "markdown", "json"]), default="table", show_default=True)
@click.option("--beside", type=click.IntRange(1, 64), default=8, show_default=True, help="Cells played at a time.")
@click.option("--verbose", is_flag=True, help="Also print right cells, and the entries of the others.")
@click.option("--record", is_flag=True, help="Keep the records of a watched Kafka, as tests/vectors/watched.")
@click.option("--list", "lists", is_flag=True, help="List situations and clients.")
def main(
    only: tuple[str, ...],
    clients: tuple[str, ...],
    backend: str,
    output: str,
    beside: int,
    verbose: bool,
    record: bool,
    lists: bool,
) -> None:
    """Play situations with real clients and nodes, and print where Muster's report is true.

    Exits with 1 if a report is wrong or a situation could not be played.
    """
    if lists:
        for each in SITUATIONS.values():
            click.echo(f"{each.name:<32} {each.title}")
        click.echo("clients: " + ", ".join(each.name for each in CLIENTS))
        return
    chosen = [each for each in SITUATIONS.values() if not only or each.name.startswith(only)]
    if not chosen:
        raise click.UsageError(f"no situation begins with {' or '.join(only)}; --list has them")
    try:
        players = clients_named(clients)
    except LookupError as error:
        raise click.UsageError(str(error)) from None
    started = time.monotonic()

    def on_cell(cell: Cell) -> None:
        if record and cell.recording is not None:
            save(cell.recording)
        if cell.verdict.word not in (SKIPPED, RIGHT) or verbose:
            click.echo(report_of(cell, verbose=verbose and cell.verdict.word != RIGHT), err=output != "table")

    with running_backends(backend) as backends:
        cells = play_all(chosen, players, backends, beside, on_cell)
    print_table = {"table": plain_table, "markdown": markdown_table, "json": json_table}[output]
    click.echo(print_table(cells))
    click.echo(f"\n{counts(cells)}; {time.monotonic() - started:.0f} s", err=output != "table")
    sys.exit(any(cell.verdict.word in ("wrong", "unplayed") for cell in cells))


if __name__ == "__main__":
    main()
