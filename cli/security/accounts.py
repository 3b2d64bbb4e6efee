"""`muster users`, `muster tokens` and `muster quotas`: accounts, their credentials, and how much they may use.

Users log in by a password at the Kafka listener; programs and browsers present a token over gRPC and HTTP. A
password comes from a file, from standard input or from a prompt, never from the command line. Quotas apply to users,
client ids and addresses.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import Duration, client_options, connect_admin, output_option
from muster.cli.common.output import columns, notice, print_document, print_rows
from muster.coordinator.observability.views.controls import format_minute

# Where a password comes from
# ---------------------------

Function = TypeVar("Function", bound=Callable[..., Any])
MAX_PASSWORD_BYTES = 4_096

_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read the password from the first line of this file; without it, from a prompt or standard input.",
)


def password_option(function: Function) -> Function:
    """--password-file: what stands on a command line everybody on the machine can read."""
    return _option(function)


def read_password(file: Path | None) -> str:
    """Raises CommandError."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_PASSWORD_BYTES)
        except OSError as error:
            raise CommandError(f"--password-file: {error}", code=Exit.USAGE) from error
    elif sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        data = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES)
    try:
        password = data.partition(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:
        password = ""
    if not password:
        raise CommandError(
            "there is no password",
            "expected one line of UTF-8 in --password-file, or on standard input",
            code=Exit.USAGE,
        )
    return password


# `muster users`
# --------------

USER_COLUMNS = columns("USER:cyan, MECHANISMS, ITERATIONS")


@click.group()
def users() -> None:
    """Manage users that log in with a password.

    They log in at a node with authorizer=acl. Kafka's kafka-configs --entity-type users manages the same users.
    """


@users.command()
@client_options
@password_option
@click.option(
    "--iterations", type=click.IntRange(4_096, 16_384), default=4_096, show_default=True, help="SCRAM iterations."
)
@click.argument("name")
def add(bootstrap: str, overrides: dict[str, str], password_file: Path | None, iterations: int, name: str) -> None:
    """Create user NAME, or change their password.

    The password is good for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN.
    """
    password = read_password(password_file)
    with connect_admin(bootstrap, overrides) as admin:
        admin.put_users({name: password}, iterations)
    notice(f"User:{name} may log in; `muster acls add` says what they may do")


@users.command("list")
@client_options
@output_option
def list_users(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List users and their login mechanisms."""
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
    """Delete users, and end their connections.

    Their access control entries stay.
    """
    with connect_admin(bootstrap, overrides) as admin:
        admin.delete_users(names)
    notice(f"deleted {', '.join(names)}")


# `muster tokens`
# ---------------

TOKEN_COLUMNS = columns("TOKEN-ID:cyan, NAME, PRINCIPAL, CREATED, EXPIRES")


@click.group()
def tokens() -> None:
    """Manage API tokens.

    Programs, and people with a browser, authenticate with them at a node with authorizer=acl.
    """


@tokens.command()
@client_options
@output_option
@click.option("--name", required=True, help="Purpose of the token.")
@click.option(
    "--principal",
    default="",
    metavar="User:NAME",
    help="Principal that the token authenticates; without it, User: and the name.",
)
@click.option("--ttl", type=Duration(), metavar="TIME", help="Expire after this time: 12h, 90d; without it, never.")
def create(bootstrap: str, overrides: dict[str, str], style: str, name: str, principal: str, ttl: int | None) -> None:
    """Create a token and print it once.

    The node keeps only a hash. Put the token into the file of --command-config, as token, or into the header
    'authorization: Bearer TOKEN'.
    """
    with connect_admin(bootstrap, overrides) as admin:
        text, made = admin.create_token(name, principal, ttl or 0)
    if style in ("json", "yaml"):
        print_document({"token": text, "token_id": made.token_id, "principal": made.principal}, style)
        return
    notice(f"{made.principal} by token {made.token_id}; it is not shown again:")
    click.echo(text)


@tokens.command("list")
@client_options
@output_option
def list_tokens(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List tokens: owner, purpose and expiry, never the token itself."""
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.tokens()
    rows = [
        {
            "token_id": each.token_id,
            "name": each.name,
            "principal": each.principal,
            "created": format_minute(each.created_ms),
            "expires": format_minute(each.expires_ms) if each.expires_ms is not None else None,
        }
        for each in found
    ]
    print_rows(rows, TOKEN_COLUMNS, style)


@tokens.command()
@client_options
@click.argument("ids", nargs=-1, required=True, metavar="TOKEN-ID...")
def revoke(bootstrap: str, overrides: dict[str, str], ids: tuple[str, ...]) -> None:
    """Revoke tokens; their calls and streams end within a second."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.revoke_tokens(ids)
    notice(f"revoked {', '.join(ids)}")


# `muster quotas`
# ---------------

QUOTA_COLUMNS = columns("USER, CLIENT-ID=client-id, IP, QUOTA:cyan, VALUE, MEANING+")
DEFAULT = "<default>"
TYPES = {"user": "user", "client": "client-id", "ip": "ip"}


def entity_options(function: Function) -> Function:
    """--user, --client-id and --ip, each with its default, as `given`."""
    for word, kind in reversed(TYPES.items()):
        function = click.option(
            f"--{word}-default", f"{word}_default", is_flag=True, help=f"Every {kind} without a figure of its own."
        )(function)
        function = click.option(f"--{kind}", word, metavar="NAME")(function)
    return function


@click.group()
def quotas() -> None:
    """Manage the quotas of users, clients and addresses.

    The most specific quota counts, as in Kafka: user and client id before user before client id, a name before the
    default.
    """


@quotas.command("set")
@client_options
@entity_options
@click.option("--dry-run", is_flag=True, help="Check the change, and do not apply it.")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_(bootstrap: str, overrides: dict[str, str], pairs: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Set quotas, such as producer_byte_rate=1048576.

    Other quotas of the same user stay. Bytes and requests: producer_byte_rate, consumer_byte_rate,
    request_percentage. Partitions created and deleted: controller_mutation_rate. By ip: connection_creation_rate. By
    user: group_count, member_count, topic_count.
    """
    entity = parse_entity(given)
    figures = dict(parse_quota(pair) for pair in pairs)
    with connect_admin(bootstrap, overrides) as admin:
        admin.alter_quotas(entity, figures, validate_only=dry_run)
    notice(f"{'would set' if dry_run else 'set'} {', '.join(figures)} of {describe_entity(entity)}")


@quotas.command()
@client_options
@entity_options
@click.argument("names", nargs=-1, metavar="[NAME]...")
def remove(bootstrap: str, overrides: dict[str, str], names: tuple[str, ...], **given: Any) -> None:
    """Remove quotas: the named ones, or all of one entity.

    An entity is a user, a client id, both, or an ip.
    """
    entity = parse_entity(given)
    with connect_admin(bootstrap, overrides) as admin:
        found = [figures for _, figures in admin.quotas(entity, strict=True)]
        gone = [name for name in (found[0] if found else {}) if not names or name in names]
        admin.alter_quotas(entity, unset=names or gone)
    notice(f"removed {', '.join(gone) or 'nothing'} of {describe_entity(entity)}")


@quotas.command("list")
@client_options
@output_option
@entity_options
def list_quotas(bootstrap: str, overrides: dict[str, str], style: str, **given: Any) -> None:
    """List quotas, all or those of a user, client id or ip."""
    from muster.coordinator.security.quota_rules import MEANINGS

    with connect_admin(bootstrap, overrides) as admin:
        found = admin.quotas(parse_entity(given, needed=False))
    rows = [
        {
            **{kind: (entity_name(entity[kind]) if kind in entity else None) for kind in TYPES.values()},
            "quota": name,
            "value": f"{value:.15g}",
            "meaning": MEANINGS.get(name, ""),
        }
        for entity, figures in found
        for name, value in sorted(figures.items())
    ]
    print_rows(rows, QUOTA_COLUMNS, style)


def parse_entity(given: dict[str, Any], *, needed: bool = True) -> dict[str, str | None]:
    """Names by type; None for a default. Raises UsageError."""
    entity: dict[str, str | None] = {}
    for word, kind in TYPES.items():
        if given[word] is not None and given[f"{word}_default"]:
            raise click.UsageError(f"--{kind} and --{word}-default exclude each other")
        if given[word] is not None or given[f"{word}_default"]:
            entity[kind] = given[word]
    if needed and not entity:
        raise click.UsageError("say whose: --user, --client-id, --ip, or one of their defaults")
    return entity


def parse_quota(pair: str) -> tuple[str, float]:
    name, equals, text = pair.partition("=")
    try:
        value = float(text)
    except ValueError:
        equals = ""
    if not equals or not name:
        raise click.UsageError(f"{pair!r} is not a quota; expected NAME=NUMBER")
    return name.strip(), value


def entity_name(name: str | None) -> str:
    return DEFAULT if name is None else name


def describe_entity(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {entity_name(name)}" for kind, name in entity.items())
