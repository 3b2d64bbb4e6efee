"""`muster quotas`: how much users, client ids and addresses may use of a node."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows

Function = TypeVar("Function", bound=Callable[..., Any])

QUOTA_COLUMNS = [
    Column("USER", "user"),
    Column("CLIENT-ID", "client-id"),
    Column("IP", "ip"),
    Column("QUOTA", "quota", style="cyan"),
    Column("VALUE", "value"),
    Column("MEANING", "meaning", wide=True),
]
DEFAULT = "<default>"
TYPES = {"user": "user", "client": "client-id", "ip": "ip"}


def entity_options(function: Function) -> Function:
    """--user, --client-id and --ip, each with its default, as `given`."""
    for word, kind in reversed(TYPES.items()):
        function = click.option(
            f"--{word}-default",
            f"{word}_default",
            is_flag=True,
            help=f"Every {kind} without a figure of its own.",
        )(function)
        function = click.option(f"--{kind}", word, metavar="NAME")(function)
    return function


@click.group()
def quotas() -> None:
    """Set, list and remove quotas, by user, client id, both, or ip.

    The most specific counts, as in Kafka: user and client id before user before client id, a name before the default.
    """


@quotas.command("set")
@client_options
@entity_options
@click.option("--dry-run", is_flag=True, help="Check, and change nothing.")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_(bootstrap: str, overrides: dict[str, str], pairs: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Set quotas, such as producer_byte_rate=1048576; others of the same user stay as they are.

    Bytes and requests: producer_byte_rate, consumer_byte_rate, request_percentage. Partitions made and deleted:
    controller_mutation_rate. By ip: connection_creation_rate. By user: group_count, member_count,
    topic_count.
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
    """Remove quotas: these, or all that are set of this very user, client id or ip."""
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
    """List what is set: all, or what has this user, client id or ip in it."""
    from muster.coordinator.security.names import MEANINGS

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
        raise click.UsageError(f"{pair!r} is no quota; expected NAME=NUMBER")
    return name.strip(), value


def entity_name(name: str | None) -> str:
    return DEFAULT if name is None else name


def describe_entity(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {entity_name(name)}" for kind, name in entity.items())
