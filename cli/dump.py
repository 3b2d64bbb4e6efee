"""`muster log dump`: one line per batch, with the verdict on its checksum."""

import json
from pathlib import Path
from typing import Any

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import key_values


@click.command()
@click.option("--records", is_flag=True, help="Also the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch.")
@click.option("--engine", metavar="URL", help="Instead of files, of the Kafka that keeps groups.")
@click.option("--shard", type=click.IntRange(min=0), help="Which part of its state topic.")
@click.option(
    "--config", "file", type=click.Path(path_type=Path), help="How that Kafka is reached: a node's properties."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", callback=key_values, help="The same, by a setting."
)
@click.argument("files", nargs=-1, metavar="[FILE...]")
def dump(
    records: bool,
    as_json: bool,
    engine: str | None,
    shard: int | None,
    file: Path | None,
    overrides: dict[str, str],
    files: tuple[str, ...],
) -> int:
    """Print the batches of log files as they lie on disk. Exit code 1 when any is damaged.

    With --engine and --shard: a shard of groups that are kept in somebody's Kafka, with its owners, what counts, and
    what was passed over.
    """
    if engine is not None:
        if shard is None or files:
            raise click.UsageError("--engine wants --shard, and no files")
        return dump_shard(engine, overrides, file, shard, records=records, as_json=as_json)
    if shard is not None or file is not None or overrides:
        raise click.UsageError("--shard, --config and --set are for --engine")
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.")
    from muster.storage.tools.dump import dump_file, is_damaged

    worst = Exit.OK
    for path in files:
        try:
            for row in dump_file(path, records=records):
                click.echo(json.dumps(row, ensure_ascii=False) if as_json else format_row(row))
                if is_damaged(row):
                    worst = Exit.FAILURE
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror or error}"
            raise CommandError(what, "expected a log file", code=Exit.NOT_FOUND) from error
    return worst


def dump_shard(
    engine: str, given: dict[str, str], file: Path | None, shard: int, *, records: bool, as_json: bool
) -> int:
    """A shard of the state topic, with owners, voids and markers."""
    import asyncio

    from muster.cli.asking import load_engine_settings
    from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
    from muster.coordinator.kafka_backend.dumping import dump_shard_log
    from muster.coordinator.kafka_backend.upstream.errors import UpstreamError

    settings = load_engine_settings(engine, file, given)

    def tell(row: dict[str, Any]) -> None:
        click.echo(json.dumps(row, ensure_ascii=False) if as_json else format_row(row))

    try:
        asyncio.run(dump_shard_log(upstream_address_of(settings), settings.state_topic, shard, tell, records=records))
    except UpstreamError as error:
        raise CommandError(str(error), code=Exit.FAILURE) from error
    return Exit.OK


def format_row(row: dict[str, Any]) -> str:
    """The row as `key: value` pairs on one line, its records below."""
    head = " ".join(f"{key}: {value}" for key, value in row.items() if not isinstance(value, list))
    below = next((value for value in row.values() if isinstance(value, list)), ())
    lines = [head, *(f"| {describe_record(record)}" for record in below)]
    return "\n".join(lines)


def describe_record(record: dict[str, Any]) -> str:
    return " ".join(f"{key}: {value}" for key, value in record.items())
