"""`muster acls add` and `remove`."""

from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import notice
from muster.cli.security.flags import (
    entry_options,
    make_entries,
    make_filters,
    parse_resources,
    resource_options,
    usage_error,
)
from muster.cli.security.listing import print_acls
from muster.coordinator.security.filters import AclFilter


@click.command()
@client_options
@output_option
@resource_options
@entry_options
def add(bootstrap: str, overrides: dict[str, str], style: str, **given: Any) -> None:
    """Allow principals operations on resources, or deny them.

    muster acls add --allow-principal User:alice --producer --topic orders

    muster acls add --allow-principal User:bob --consumer --topic orders --group billing-* is not a pattern: use
    --resource-pattern-type prefixed with the beginning of the name.
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
@click.option("--dry-run", is_flag=True, help="Tell what would go, and let it stay.")
@click.option("--force", is_flag=True, help="Do not ask.")
def remove(bootstrap: str, overrides: dict[str, str], style: str, dry_run: bool, force: bool, **given: Any) -> None:
    """Take entries away: those that `add` with the same flags makes, or without principals all about the resources."""
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
