"""`muster serve`: run a node until it is told to stop."""

import os
import sys
from pathlib import Path

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import set_option

WHERE = "[SSL://]HOST:PORT"
VERBOSITY = "GRPC_VERBOSITY"


@click.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A properties file.")
@set_option
@click.option("--engine", metavar="URL", help="kafka://HOST:PORT,...: keep groups in that Kafka (engine).")
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@click.option("--listen", metavar=WHERE, help="The address to serve on (listeners); port 0 takes a free one.")
@click.option("--kafka-listen", metavar=WHERE, help="Serve Kafka's wire protocol there, too (kafka.listeners).")
@click.option("--advertise", metavar="HOST:PORT", help="Where Kafka clients are told to connect instead.")
@click.option("--http", metavar=WHERE, help="Serve probes, the JSON API and the page there (http.listeners).")
@click.option("--announce", is_flag=True, help="Print one JSON line with the address once the node answers.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Drain when standard input ends; for parent processes.")
def serve(
    file: Path | None,
    overrides: dict[str, str],
    engine: str | None,
    data: str | None,
    listen: str | None,
    kafka_listen: str | None,
    advertise: str | None,
    http: str | None,
    announce: bool,
    until_eof: bool,
) -> int:
    """Run a node. SIGTERM and Ctrl-C drain it.

    Settings come from FILE, then from --set, --data, --listen and the like, which win. `muster settings` lists them
    all, each with its default; `muster settings -o wide NAME` says what one means.
    """
    from muster.coordinator.config import SettingsError, load_settings

    named = {
        "engine": engine,
        "log.dirs": data,
        "listeners": listen,
        "kafka.listeners": kafka_listen,
        "kafka.advertised.listeners": advertise,
        "http.listeners": http,
    }
    given = overrides | {key: value for key, value in named.items() if value is not None}
    try:
        settings = load_settings(file, given)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    if settings.grpc_listener.encrypted and os.environ.get(VERBOSITY) == "ERROR":
        # For each handshake by a name that its certificate has not, gRPC would write that name as it came: a stranger's
        # bytes, as often as he likes. It reads the word as it is imported.
        os.environ[VERBOSITY] = "NONE"
    from muster.coordinator.server.node.main import run_node

    if until_eof:
        from muster.cli.common.orphan import stop_with_stdin

        stop_with_stdin()
    return run_node(settings, sys.stdout if announce else None)
