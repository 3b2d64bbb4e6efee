"""`muster acls`: adds, removes, lists and checks access control entries, with the flags of kafka-acls."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple, TypeVar

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_rows
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from muster.coordinator.security.acl_entries import AclFilter

# Flags of kafka-acls, and the entries they mean
# ----------------------------------------------

Function = TypeVar("Function", bound=Callable[..., Any])

OPERATIONS: Final = {
    each.name.replace("_", "").lower(): each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY)
}
PATTERNS: Final = {each.name.lower(): each for each in PatternType if each is not PatternType.UNKNOWN}

PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


def parse_operation(text: str) -> Operation:
    """Kafka's names, in whatever case, with or without underscores. Raises BadParameter."""
    found = OPERATIONS.get(text.replace("_", "").lower())
    if found is None:
        known = ", ".join(each.name for each in OPERATIONS.values())
        raise click.BadParameter(f"{text!r} is not an operation; expected one of {known}")
    return found


def one_operation(ctx: click.Context, param: click.Parameter, given: str) -> Operation:
    return parse_operation(given)


def many_operations(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[Operation, ...]:
    return tuple(map(parse_operation, given))


class AclResource(NamedTuple):
    kind: ResourceType
    name: str


def resource_options(function: Function) -> Function:
    """--topic, --group, --cluster, --transactional-id, --user-principal and --resource-pattern-type."""
    options = (
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="Topic; may be repeated, * for all."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="Group; may be repeated, * for all."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option(
            "--transactional-id",
            "transactional_ids",
            multiple=True,
            metavar="ID",
            help="Transactional id; may be repeated, * for all.",
        ),
        click.option(
            "--user-principal", "users", multiple=True, metavar="PRINCIPAL", help="User; may be repeated, * for all."
        ),
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(list(PATTERNS), case_sensitive=False),
            default="literal",
            show_default=True,
            help="Whether names are whole (literal) or prefixes. For list and remove also: any, and match (every "
            "entry that applies to a resource of this name).",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def entry_options(function: Function) -> Function:
    """Who, from where, which operations."""
    options = (
        repeated_option(
            "--allow-principal", "allowed", metavar="PRINCIPAL", help="Allow this principal: User:NAME or User:*"
        ),
        repeated_option(
            "--deny-principal", "denied", metavar="PRINCIPAL", help="Deny this principal: User:NAME or User:*"
        ),
        repeated_option("--allow-host", "allowed_hosts", metavar="ADDRESS", help="Allow only from this address"),
        repeated_option("--deny-host", "denied_hosts", metavar="ADDRESS", help="Deny only from this address"),
        repeated_option(
            "--operation",
            "operations",
            callback=many_operations,
            metavar="NAME",
            help="Operation: READ, WRITE, ...; ALL if not given",
        ),
        click.option("--producer", is_flag=True, help="All rights that a producer of the topic needs."),
        click.option("--consumer", is_flag=True, help="All rights that a consumer of the topic in the group needs."),
        click.option("--idempotent", is_flag=True, help="With --producer: also the rights of an idempotent producer."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def parse_resources(given: Mapping[str, Any]) -> list[AclResource]:
    found = [AclResource(ResourceType.TOPIC, name) for name in given["topics"]]
    found += [AclResource(ResourceType.GROUP, name) for name in given["groups"]]
    found += [AclResource(ResourceType.TRANSACTIONAL_ID, name) for name in given["transactional_ids"]]
    found += [AclResource(ResourceType.USER, name) for name in given["users"]]
    if given["cluster"] or given.get("idempotent"):
        found.append(AclResource(ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def make_entries(given: Mapping[str, Any]) -> list[Acl]:
    """The entries that are meant. Raises CommandError."""
    resources = parse_resources(given)
    if not resources:
        raise usage_error("no resource is named", "--topic, --group, --cluster, --transactional-id or --user-principal")
    pattern = PATTERNS[given["pattern"].lower()]
    who = [
        (principal, host, permission)
        for principals, hosts, permission in (
            (given["allowed"], given["allowed_hosts"], Permission.ALLOW),
            (given["denied"], given["denied_hosts"], Permission.DENY),
        )
        for principal, host in product(principals, hosts or (WILDCARD,))
    ]
    made = [
        Acl(
            kind,
            LITERAL_CLUSTER if kind is ResourceType.CLUSTER else pattern,
            name,
            principal,
            host,
            operation,
            permission,
        )
        for kind, name in resources
        for operation in expand_operations(kind, given)
        for principal, host, permission in who
    ]
    return list(dict.fromkeys(made))


LITERAL_CLUSTER: Final = PatternType.LITERAL


def expand_operations(kind: ResourceType, given: Mapping[str, Any]) -> Iterator[Operation]:
    """Those that are given, or that a producer or consumer needs of such a resource."""
    if given["producer"] or given["consumer"]:
        if given["operations"]:
            raise usage_error("--operation is given beside --producer or --consumer", "one or the other")
        if given["producer"]:
            yield from PRODUCER.get(kind, ())
        if given["consumer"]:
            yield from CONSUMER.get(kind, ())
        if kind is ResourceType.CLUSTER and given["idempotent"]:
            yield Operation.IDEMPOTENT_WRITE
        return
    yield from given["operations"] or (Operation.ALL,)


def make_filters(given: Mapping[str, Any], principal: str | None = None) -> list[AclFilter]:
    """What names resources only: all entries about them, or all there are."""
    pattern = PATTERNS[given["pattern"].lower()]
    filters = [
        AclFilter(kind, LITERAL_CLUSTER if kind is ResourceType.CLUSTER else pattern, name, principal)
        for kind, name in parse_resources(given)
    ]
    return filters or [AclFilter(principal=principal)]


def usage_error(what: str, expected: str) -> CommandError:
    return CommandError(what, f"expected {expected}", code=Exit.USAGE)


# `list`
# ------

ACL_COLUMNS = columns(
    "RESOURCE=resource_type, NAME=resource, PATTERN=pattern_type, PRINCIPAL, HOST, OPERATION, PERMISSION"
)


@click.command("list")
@client_options
@output_option
@resource_options
@click.option("--principal", metavar="PRINCIPAL", help="List only entries of this principal.")
def list_acls(bootstrap: str, overrides: dict[str, str], style: str, principal: str | None, **given: Any) -> None:
    """List access control entries of the given resources, or all."""
    with connect_admin(bootstrap, overrides) as admin:
        found = [acl for wanted in make_filters(given, principal) for acl in admin.acls(wanted)]
    print_acls(sorted(dict.fromkeys(found)), style)


def print_acls(acls: Sequence[Acl], style: str) -> None:
    rows = [
        {
            "resource_type": acl.resource_type.name,
            "resource": acl.name,
            "pattern_type": acl.pattern.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
        for acl in acls
    ]
    print_rows(rows, ACL_COLUMNS, style)


# `add` and `remove`
# ------------------


@click.command()
@client_options
@output_option
@resource_options
@entry_options
def add(bootstrap: str, overrides: dict[str, str], style: str, **given: Any) -> None:
    """Allow or deny operations on resources.

    muster acls add --allow-principal User:alice --producer --topic orders

    muster acls add --allow-principal User:bob --consumer --topic orders --group billing

    A name with * inside, such as billing-*, is not a pattern: use --resource-pattern-type prefixed with the beginning
    of the name.
    """
    entries = make_entries(given)
    if not entries:
        raise usage_error("nobody is named, or nothing is to be allowed", "--allow-principal or --deny-principal")
    if given["pattern"].lower() not in ("literal", "prefixed"):
        raise usage_error(f"--resource-pattern-type is {given['pattern']}", "literal or prefixed")
    with connect_admin(bootstrap, overrides) as admin:
        admin.create_acls(entries)
    print_acls(entries, style)


@click.command()
@client_options
@output_option
@resource_options
@entry_options
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
def remove(bootstrap: str, overrides: dict[str, str], style: str, dry_run: bool, force: bool, **given: Any) -> None:
    """Remove access control entries.

    Removes the entries that `add` with the same flags creates; without principals, all entries of the resources.
    """
    named = given["allowed"] or given["denied"]
    if not parse_resources(given):
        raise usage_error("no resource is named", "--topic, --group, --cluster, --transactional-id or --user-principal")
    wanted = [AclFilter(*acl) for acl in make_entries(given)] if named else make_filters(given)
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.delete_acls(wanted, validate_only=True)
        if not found:
            notice("No entry matches.")
            return
        if not dry_run:
            if not force:
                print_acls(sorted(found), "table")
                click.confirm(f"Remove {len(found)} entries?", abort=True, err=True)
            found = admin.delete_acls(wanted)
    print_acls(sorted(found), style)


# `check`
# -------

CHECK_COLUMNS = columns("ALLOWED, OPERATION, RESOURCE=resource_type, NAME=resource, REASON")


@click.command()
@client_options
@output_option
@resource_options
@click.option("--principal", required=True, metavar="PRINCIPAL", help="Principal to check, such as User:alice.")
@click.option("--host", default="", metavar="ADDRESS", help="Address that the principal connects from.")
@click.option("--operation", required=True, callback=one_operation, metavar="NAME", help="Operation to check.")
def check(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    principal: str,
    host: str,
    operation: Operation,
    **given: Any,
) -> int:
    """Check whether a principal may do something, and which entry decides.

    Exit code 1 when it may not.
    """
    resources = parse_resources(given)
    if not resources:
        raise usage_error("no resource is named", "--topic, --group, --cluster, --transactional-id or --user-principal")
    rows = []
    with connect_admin(bootstrap, overrides) as admin:
        for kind, name in resources:
            allowed, reason = admin.check_acl(principal, operation, kind, name, host)
            rows.append(
                {
                    "allowed": "yes" if allowed else "no",
                    "operation": operation.name,
                    "resource_type": kind.name,
                    "resource": name,
                    "reason": reason,
                }
            )
    print_rows(rows, CHECK_COLUMNS, style)
    return 0 if all(row["allowed"] == "yes" for row in rows) else 1
