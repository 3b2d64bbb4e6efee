"""`muster storage`: what is written into a data directory while its node is stopped."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import set_option
from muster.cli.common.output import notice
from muster.cli.security.passwords import password_option, read_password

if TYPE_CHECKING:
    from muster.coordinator.config import Settings
    from muster.coordinator.server.security.accounts import UserAccounts
    from muster.coordinator.server.security.security_store import SecurityStore


@click.group()
def storage() -> None:
    """Write into the data directory of a node that is stopped."""


@storage.command("bootstrap-user")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="The node's properties file.")
@set_option
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@password_option
@click.option(
    "--token", is_flag=True, help="Make a first API token, too, and print it; without a password, if none is given."
)
@click.argument("name")
def bootstrap_user(
    file: Path | None, overrides: dict[str, str], data: str | None, password_file: Path | None, token: bool, name: str
) -> None:
    """Make the first user, NAME, of a node that is stopped, or give them another password.

    The node has to name them in super.users, or nobody may do anything. Of a cluster (inter.broker.listeners) they
    are made on one of its nodes, and known to all once that is started.
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
    from muster.coordinator.config.authorization import principals_of

    if f"User:{name}" not in principals_of(settings.super_users):
        notice(f"User:{name} may do nothing yet: start the node with super.users=User:{name}")


@storage.command("reset-security")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="The node's properties file.")
@set_option
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset_security(file: Path | None, overrides: dict[str, str], data: str | None, yes: bool) -> None:
    """Give up all users, tokens, access control lists and quotas of a node that is stopped.

    The last resort, where what it keeps of them cannot be read. Nobody but super.users may do anything then, and none
    of them can log in by a password or token before `muster storage bootstrap-user`.
    """
    settings = load_stopped_node_settings(file, overrides | ({"log.dirs": data} if data is not None else {}))
    if not yes:
        click.confirm(f"Give up all users, tokens, lists and quotas in {settings.data_dir}?", abort=True, err=True)
    if settings.inter_broker_listeners:
        raise CommandError(
            "users, tokens, lists and quotas are the cluster's (inter.broker.listeners), not this node's to give up",
            "a damaged copy is made anew by its node itself, from the leader's",
            "who cannot log in any more is made anew with 'muster storage bootstrap-user' on one node that is stopped",
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
