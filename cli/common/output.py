"""Rows for people and for programs: table, wide, json, yaml, csv.

On a terminal a table has rules and colours; elsewhere its columns are plain text, as `awk` and `grep` like them. What
programs read (json, yaml, csv) holds every column, also those that only `wide` shows to people.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from muster.coordinator.observability.views.formatting import clipped, escape_unprintable, harmless, is_printable

if TYPE_CHECKING:
    from rich.console import Console

ABSENT = "-"

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A heading, the row's key below it, and whether only `wide` shows it."""

    heading: str
    key: str
    wide: bool = False
    style: str = ""


def columns(text: str) -> list[Column]:
    """Columns by their headings: `HEADING=key:style`, and `+` behind one that only `wide` shows.

    Without a key it is the heading in small letters, with _ for -.

    >>> [tuple(column) for column in columns("GROUP:cyan, #MEMBERS=members, UNTIL-MS+")]
    [('GROUP', 'group', False, 'cyan'), ('#MEMBERS', 'members', False, ''), ('UNTIL-MS', 'until_ms', True, '')]
    """
    return [parse_column(part.strip()) for part in text.split(",")]


def parse_column(text: str) -> Column:
    shown, _, style = text.removesuffix("+").partition(":")
    heading, _, key = shown.partition("=")
    return Column(heading, key or heading.lower().replace("-", "_"), text.endswith("+"), style)


def print_rows(rows: Sequence[Row], columns: Sequence[Column], style: str) -> None:
    """Print rows in the wanted form."""
    if style in ("table", "wide"):
        print_table(rows, [column for column in columns if style == "wide" or not column.wide])
    elif style == "csv":
        echo_exactly(format_csv(rows, columns))
    else:
        print_document([{column.key: row.get(column.key) for column in columns} for row in rows], style)


def print_document(document: object, style: str) -> None:
    """Print a nested value as json or yaml."""
    click.echo(format_yaml(document) if style == "yaml" else format_json(document, indent=2) + "\n", nl=False)


def format_json(document: object, indent: int | None = None) -> str:
    """What no terminal shows is an escape of JSON, also where JSON would let it pass (controls above ASCII, bidi).

    >>> format_json("\\x9b2J \\u202e grün")
    '"\\\\u009b2J \\\\u202e grün"'
    """
    written = json.dumps(document, indent=indent, ensure_ascii=False)
    return escape_unprintable(written, lambda char: json.dumps(char)[1:-1])


def format_yaml(document: object) -> str:
    """As `format_json`, in YAML's escapes.

    >>> format_yaml({"a": "\\u202e", "b": "grün"})
    'a: "\\\\U0000202e"\\nb: grün\\n'
    """
    import yaml

    class EscapingDumper(yaml.SafeDumper):
        pass

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Only in double quotes YAML has escapes.
        style = None if is_printable(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    EscapingDumper.add_representer(str, represent)
    written = yaml.dump(document, Dumper=EscapingDumper, sort_keys=False, allow_unicode=True)
    return escape_unprintable(written, lambda char: f"\\U{ord(char):08x}")


def echo_exactly(text: str) -> None:
    """Whole lines for a program, byte for byte; a terminal gets them without what would command it."""
    click.echo(escape_unprintable(text, harmless) if on_terminal() else text, nl=False)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    if not on_terminal():
        click.echo(plain_table(rows, columns), nl=False)
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        numbers = all(isinstance(row.get(column.key), int | float | None) for row in rows)
        table.add_column(column.heading, justify="right" if numbers else "left", style=column.style or None)
    for row in rows:
        table.add_row(*(harmless(format_cell(row.get(column.key))) for column in columns))
    console().print(table)


def plain_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Columns padded with spaces, the heading first.

    >>> plain_table([{"name": "a", "lag": None}], [Column("NAME", "name"), Column("LAG", "lag")])
    'NAME  LAG\\na     -\\n'
    """
    lines = [[column.heading for column in columns]]
    lines += [[harmless(format_cell(row.get(column.key))) for column in columns] for row in rows]
    return padded_lines(lines, [max(len(line[at]) for line in lines) for at in range(len(columns))])


class GrowingTable:
    """A table whose rows are printed as they come, in plain text: columns are as wide as the first rows need."""

    def __init__(self, columns: Sequence[Column], style: str) -> None:
        self._columns = [column for column in columns if style == "wide" or not column.wide]
        self._widths: list[int] = []

    def add(self, rows: Sequence[Row]) -> None:
        """The first rows come with the heading."""
        lines = [[harmless(format_cell(row.get(column.key))) for column in self._columns] for row in rows]
        if not self._widths:
            lines.insert(0, [column.heading for column in self._columns])
            self._widths = [max(len(line[at]) for line in lines) for at in range(len(self._columns))]
        click.echo(padded_lines(lines, self._widths), nl=False)


def padded_lines(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )


def format_csv(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    for row in rows:
        writer.writerow(["" if row.get(column.key) is None else format_cell(row[column.key]) for column in columns])
    return target.getvalue()


def format_cell(value: object) -> str:
    """One value in a table; lists by comma, nothing as a dash.

    >>> format_cell(["a", "b"]), format_cell(None), format_cell(True)
    ('a,b', '-', 'yes')
    """
    if value is None or value == "" or value == []:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def console(*, stderr: bool = False) -> "Console":
    """Rich, which honours NO_COLOR and a missing terminal by itself."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else int(os.environ.get("COLUMNS", "120"))
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def notice(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(harmless(clipped(text)), err=True)
