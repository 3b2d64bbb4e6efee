"""`muster acls list`, and how entries are shown."""

from collections.abc import Sequence
from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, print_rows
from muster.cli.security.flags import make_filters, resource_options
from muster.coordinator.security.model import Acl

ACL_COLUMNS = (
    Column("RESOURCE", "resource_type"),
    Column("NAME", "resource"),
    Column("PATTERN", "pattern_type"),
    Column("PRINCIPAL", "principal"),
    Column("HOST", "host"),
    Column("OPERATION", "operation"),
    Column("PERMISSION", "permission"),
)


@click.command("list")
@client_options
@output_option
@resource_options
@click.option("--principal", metavar="PRINCIPAL", help="Only what concerns this one.")
def list_acls(bootstrap: str, overrides: dict[str, str], style: str, principal: str | None, **given: Any) -> None:
    """Show the entries about these resources; all there are without any."""
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
