"""`muster assignor list` and `print_rows`."""

from dataclasses import asdict

import click

from muster.cli.common.options import output_option
from muster.cli.common.output import Column, print_document, print_rows
from muster.cli.common.plugins import find_plugins_here

ASSIGNOR_COLUMNS = [
    Column("NAME", "name", style="cyan"),
    Column("PROTOCOL", "protocol"),
    Column("SOURCE", "source"),
    Column("SUMMARY", "summary"),
    Column("ALIASES", "aliases", wide=True),
    Column("PROBLEM", "problem", wide=True),
]


@click.command()
@output_option
def list_(style: str) -> None:
    """List built-in assignors and installed plugins; a plugin that cannot be loaded says why."""
    from muster.assignors.tools.catalog import list_assignors

    rows = [asdict(entry) for entry in list_assignors()]
    if style == "table":
        rows = [row | {"summary": row["problem"] or row["summary"]} for row in rows]
    print_rows(rows, ASSIGNOR_COLUMNS, style)


@click.command()
@output_option
@click.argument("name")
def show_(style: str, name: str) -> None:
    """Tell what assignor NAME promises. NAME may be a Kafka class name or package.module:Class."""
    from muster.assignors.tools.catalog import describe_assignor as entry_of

    find_plugins_here()
    entry = entry_of(name)
    if style not in ("table", "wide"):
        print_document(asdict(entry), "yaml" if style == "yaml" else "json")
        return
    click.echo(f"{entry.name} ({entry.protocol}, {entry.source})\n\n{entry.description}")
    if entry.options:
        click.echo("\nOptions (partition.assignment.options):")
        for option, meaning in entry.options.items():
            click.echo(f"  {option}: {meaning}")
    if entry.aliases:
        click.echo(f"\nAlso known as: {', '.join(entry.aliases)}")
