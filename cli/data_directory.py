"""`muster storage` and `muster log`: what lies in the data directory of a node, mostly while the node is stopped.

`muster storage` writes the first user into a data directory, or removes all users, tokens, access control lists and
quotas. `muster log dump` prints batches with the verdict on their checksum, `verify` checks every batch and
checkpoint, and `recover` gives up what is damaged, so that the node starts again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import key_values, output_option, repeated_option, set_option
from muster.cli.common.output import columns, console, format_json, notice, print_rows
from muster.cli.security.accounts import password_option, read_password
from muster.coordinator.observability.views.formatting import harmless, plural

if TYPE_CHECKING:
    from muster.coordinator.config import Settings
    from muster.coordinator.server.security.accounts import UserAccounts
    from muster.coordinator.server.security.security_store import SecurityStore


# `muster storage`
# ----------------


@click.group()
def storage() -> None:
    """Set up or reset the security of a stopped node."""


@storage.command("bootstrap-user")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="The node's properties file.")
@set_option
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@password_option
@click.option("--token", is_flag=True, help="Also create a first API token and print it; a password is then optional.")
@click.argument("name")
def bootstrap_user(
    file: Path | None, overrides: dict[str, str], data: str | None, password_file: Path | None, token: bool, name: str
) -> None:
    """Create user NAME on a stopped node, or change their password.

    Meant for the first user. The node must name the user in super.users; otherwise no user may do anything. In a
    cluster (inter.broker.listeners), run it on one node; all nodes know the user once that node has started.
    """
    settings = load_stopped_node_settings(file, overrides | ({"log.dirs": data} if data is not None else {}))
    password = read_password(password_file) if password_file is not None or not token else ""
    with read_accounts(settings) as accounts:
        if password:
            ((code, message),) = asyncio.run(accounts.alter_users([(name, password, 0)], [])).values()
            if code:
                raise CommandError(message, code=Exit.USAGE)
            notice(f"User:{name} may log in")
        if token:
            text, made = asyncio.run(accounts.create_token(name))
            notice(f"{made.principal} by token {made.id}; it is not shown again:")
            click.echo(text)
    from muster.coordinator.config.security import principals_of

    if f"User:{name}" not in principals_of(settings.super_users):
        notice(f"User:{name} may do nothing yet: start the node with super.users=User:{name}")


@storage.command("reset-security")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="The node's properties file.")
@set_option
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset_security(file: Path | None, overrides: dict[str, str], data: str | None, yes: bool) -> None:
    """Delete all users, tokens, ACLs and quotas of a stopped node.

    The last resort, when they cannot be read. Afterwards only super.users may do anything, and none of them can log
    in by password or token before `muster storage bootstrap-user`.
    """
    settings = load_stopped_node_settings(file, overrides | ({"log.dirs": data} if data is not None else {}))
    if not yes:
        click.confirm(f"Give up all users, tokens, lists and quotas in {settings.data_dir}?", abort=True, err=True)
    if settings.inter_broker_listeners:
        raise CommandError(
            "users, tokens, ACLs and quotas belong to the cluster (inter.broker.listeners), not to this node",
            "a node copies a damaged replica again from the leader by itself",
            "to let a user log in again, run 'muster storage bootstrap-user' on one stopped node",
        )
    with open_security_store(settings) as store:
        store.reset()
    notice("nobody is known any more: make the first user with 'muster storage bootstrap-user'")


def load_stopped_node_settings(file: Path | None, overrides: dict[str, str]) -> "Settings":
    """Raises CommandError."""
    from muster.coordinator.config import SettingsError, load_settings

    try:
        return load_settings(file, overrides)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error


@contextmanager
def read_accounts(settings: "Settings") -> "Iterator[UserAccounts]":
    """Those of a data directory. Raises StorageError."""
    from muster.coordinator.server.security.accounts import UserAccounts

    with open_security_store(settings) as store:
        store.load()
        yield UserAccounts(store)


@contextmanager
def open_security_store(settings: "Settings") -> "Iterator[SecurityStore]":
    """What a data directory keeps, not read yet; it is locked meanwhile, and made where there is none. Raises
    StorageError.
    """
    if settings.inter_broker_listeners:
        from muster.coordinator.server.cluster_backend.pending_changes import pending_store

        with pending_store(settings.data_dir) as waiting:
            yield waiting
        return

    from muster.coordinator.server.security.security_store import SecurityStore
    from muster.storage.broker.broker import Broker
    from muster.storage.files import RealFiles
    from muster.storage.topics.data_dir import is_fresh

    if settings.zookeeper_connect and is_fresh(RealFiles(), str(settings.data_dir)):
        raise CommandError(
            f"{settings.data_dir} is new, and zookeeper.connect is set, by which the cluster's id would be agreed on",
            "expected a data directory that the node has made",
            "start the node once, stop it, and come again",
        )
    broker = Broker(settings.data_dir, settings, node_id=settings.node_id)
    try:
        yield SecurityStore(broker)
    finally:
        broker.close()


# Where `muster log` looks
# ------------------------


def existing_directory(ctx: click.Context, param: click.Parameter, given: str) -> str:
    """A data directory has to be there; whether it is one, the log finds out."""
    if not Path(given).is_dir():
        raise CommandError(
            f"there is no directory {given}", "expected a node's data directory", "check log.dirs", code=Exit.NOT_FOUND
        )
    return given


# `muster log dump`
# -----------------


@click.command()
@click.option("--records", is_flag=True, help="Also print the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per batch.")
@click.option("--engine", metavar="URL", help="Read from the Kafka that keeps the groups, instead of files.")
@click.option("--shard", type=click.IntRange(min=0), help="Shard (partition of the state topic) to dump.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Read the connection to that Kafka from a node's properties file.",
)
@repeated_option("--set", "overrides", metavar="KEY=VALUE", callback=key_values, help="Set a setting of the connection")
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
    """Print the batches of log files as they lie on disk.

    Exit code 1 when any is damaged. With --engine and --shard: a shard of groups kept in a Kafka, with its owners,
    the records that count, and those that were skipped.
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
                click.echo(format_json(row) if as_json else format_row(row))
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

    from muster.cli.engine import load_engine_settings
    from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
    from muster.coordinator.kafka_backend.inspection import dump_shard_log
    from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError

    settings = load_engine_settings(engine, file, given)

    def tell(row: dict[str, Any]) -> None:
        click.echo(format_json(row) if as_json else format_row(row))

    try:
        asyncio.run(dump_shard_log(upstream_address_of(settings), settings.state_topic, shard, tell, records=records))
    except UpstreamError as error:
        raise CommandError(str(error), code=Exit.FAILURE) from error
    return Exit.OK


def format_row(row: dict[str, Any]) -> str:
    """The row as `key: value` pairs on one line, its records below."""
    head = harmless(" ".join(f"{key}: {value}" for key, value in row.items() if not isinstance(value, list)))
    below = next((value for value in row.values() if isinstance(value, list)), ())
    lines = [head, *(f"| {describe_record(record)}" for record in below)]
    return "\n".join(lines)


def describe_record(record: dict[str, Any]) -> str:
    return harmless(" ".join(f"{key}: {value}" for key, value in record.items()))


# `muster log verify`
# -------------------

VERIFY_COLUMNS = columns("FILE, POSITION, BYTES=size, FROM-OFFSET=first_offset, WHY:red")


@click.command()
@output_option
@click.argument("data", metavar="DIR", callback=existing_directory)
def verify(style: str, data: str) -> int:
    """Check the catalog, the checkpoints and every batch in DIR.

    Exit code 1 when something is wrong. Reads only. While a node writes, the last batch of an active segment may be
    reported as truncated.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from muster.storage.tools.repair import verify_dir

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        report = verify_dir(data, lambda done, size, file: bar.update(task, completed=done, total=size))
    if report.findings or style not in ("table", "wide"):
        print_rows([asdict(finding) for finding in report.findings], VERIFY_COLUMNS, style)
    walked = f"{plural(report.files, 'file')}, {report.batches:,} batches, {report.bytes:,} bytes"
    notice(f"{walked}: {'whole' if report.ok else plural(len(report.findings), 'finding')}")
    return Exit.OK if report.ok else Exit.FAILURE


# `muster log recover`
# --------------------

RECOVER_COLUMNS = columns(
    "TOPIC, PARTITION, FROM-OFFSET=first_offset, NEXT-OFFSET, FILE, POSITION, BYTES=size, LATER-SEGMENTS+, WHY"
)


@click.command()
@output_option
@click.option("--dry-run", is_flag=True, help="Show what would be cut, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("data", metavar="DIR", callback=existing_directory)
def recover(style: str, dry_run: bool, yes: bool, data: str) -> None:
    """Remove what cannot be read from the partitions in DIR.

    Records behind the damage are kept where they are intact. The lost records have offsets from FROM-OFFSET up to,
    not including, NEXT-OFFSET; without one the log ends there. The node must not run. Run --dry-run first, and keep a
    copy.
    """
    from muster.storage.tools.repair import recover_dir

    cuts = recover_dir(data, dry_run=True)
    if cuts or style not in ("table", "wide"):
        print_rows([asdict(cut) for cut in cuts], RECOVER_COLUMNS, style)
    if not cuts:
        notice("nothing is damaged")
        return
    what = plural(len(cuts), "damaged place")
    if dry_run:
        notice(f"{what} would be taken out; nothing was changed")
        return
    if not yes:
        click.confirm(f"Take out {what}?", abort=True, err=True)
    recover_dir(data, dry_run=False)
    notice(f"{what} taken out")
