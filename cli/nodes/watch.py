"""`muster watch`: a node that shows, explains and measures the groups of a Kafka, and coordinates none."""

import sys
from pathlib import Path

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import (
    Duration,
    announce_option,
    command_config_option,
    node_file_option,
    set_option,
    until_eof_option,
)
from muster.cli.common.watching import watching_settings


@click.command()
@click.option("--since", type=Duration(), metavar="AGE", help="Cover only the last AGE, such as 24h.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the ledger in this directory, so that history outlives the Kafka's compaction.",
)
@click.option("--listen", metavar="[SSL://]HOST:PORT", help="Serve gRPC on this address (listeners).")
@click.option("--http", metavar="[SSL://]HOST:PORT", help="Serve the web page and metrics here (http.listeners).")
@node_file_option
@set_option
@click.option(
    "--segments",
    multiple=True,
    metavar="PATH",
    help="Watch copies of a broker's __consumer_offsets folders instead of a Kafka; may be repeated.",
)
@click.option(
    "--broker-log",
    "broker_logs",
    multiple=True,
    metavar="PATH",
    help="Read this server log of a broker, or a folder of them, as evidence; may be repeated.",
)
@announce_option
@until_eof_option
@command_config_option
@click.argument("kafka", metavar="[kafka://HOST:PORT,...]", required=False)
def watch(
    since: int | None,
    data: Path | None,
    listen: str | None,
    http: str | None,
    file: Path | None,
    overrides: dict[str, str],
    segments: tuple[str, ...],
    broker_logs: tuple[str, ...],
    announce: bool,
    until_eof: bool,
    kafka: str | None,
) -> int:
    """Watch the groups of any Kafka and explain their rebalances.

    Reads and follows the brokers' records of each group. Writes nothing to the Kafka and changes no client, topic or
    broker. Then open http://127.0.0.1:9291/, or run muster groups explain GROUP.

    Needs the rights READ and DESCRIBE on the topic __consumer_offsets, and DESCRIBE on topics, groups and the
    cluster. --command-config takes the properties file of Kafka's own tools.
    """
    from muster.coordinator.config import SettingsError, load_settings

    if (kafka is None) == (not segments):
        raise click.UsageError("name one source: kafka://HOST:PORT, or --segments PATH")
    named = {
        "watch.ledger.dir": None if data is None else str(data),
        "listeners": listen,
        "http.listeners": http,
    }
    given = watching_settings(kafka, segments, since, broker_logs) | overrides
    given |= {name: value for name, value in named.items() if value is not None}
    try:
        settings = load_settings(file, given)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    from muster.coordinator.server.node.main import run_node

    if until_eof:
        from muster.cli.common.commands import stop_with_stdin

        stop_with_stdin()
    return run_node(settings, sys.stdout if announce else None)
