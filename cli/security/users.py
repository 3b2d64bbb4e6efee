"""`muster users`: who may log in by a password at Kafka's door."""

from pathlib import Path

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.security.passwords import password_option, read_password

USER_COLUMNS = [
    Column("USER", "user", style="cyan"),
    Column("MECHANISMS", "mechanisms"),
    Column("ITERATIONS", "iterations"),
]


@click.group()
def users() -> None:
    """Who may log in by a password, at a node with authorizer=acl.

    The same users as those of Kafka's kafka-configs --entity-type users.
    """


@users.command()
@client_options
@password_option
@click.option("--iterations", type=click.IntRange(4_096, 16_384), default=4_096, show_default=True, help="Of SCRAM.")
@click.argument("name")
def add(bootstrap: str, overrides: dict[str, str], password_file: Path | None, iterations: int, name: str) -> None:
    """Make user NAME, or give them another password: for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN."""
    password = read_password(password_file)
    with connect_admin(bootstrap, overrides) as admin:
        admin.put_users({name: password}, iterations)
    notice(f"User:{name} may log in; `muster acls add` says what they may do")


@users.command("list")
@client_options
@output_option
def list_users(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List users, and how each may log in."""
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.users()
    rows = [
        {"user": each.name, "mechanisms": ",".join(each.mechanisms), "iterations": each.iterations or None}
        for each in found
    ]
    print_rows(rows, USER_COLUMNS, style)


@users.command()
@client_options
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def delete(bootstrap: str, overrides: dict[str, str], names: tuple[str, ...]) -> None:
    """Delete users; their connections end. Their entries in access control lists stay."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.delete_users(names)
    notice(f"deleted {', '.join(names)}")
