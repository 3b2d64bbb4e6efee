"""`muster log dump`: one line per batch, with the verdict on its checksum."""

import json
from typing import Any

import click

from muster.coordinator.cli.common.errors import CommandError, Exit


@click.command()
@click.option("--records", is_flag=True, help="Also the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def dump(records: bool, as_json: bool, files: tuple[str, ...]) -> int:
    """Print the batches of log files as they lie on disk. Exit code 1 when any is damaged."""
    from muster.storage.tools.dump import dump_file, is_damaged

    worst = Exit.OK
    for path in files:
        try:
            for row in dump_file(path, records=records):
                click.echo(json.dumps(row, ensure_ascii=False) if as_json else in_words(row))
                if is_damaged(row):
                    worst = Exit.FAILURE
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror or error}"
            raise CommandError(what, "expected a log file", code=Exit.NOT_FOUND) from error
    return worst


def in_words(row: dict[str, Any]) -> str:
    """The row as `key: value` pairs on one line, its records below."""
    head = " ".join(f"{key}: {value}" for key, value in row.items() if key != "records")
    lines = [head, *(f"| {describe(record)}" for record in row.get("records") or ())]
    return "\n".join(lines)


def describe(record: dict[str, Any]) -> str:
    return " ".join(f"{key}: {value}" for key, value in record.items())
