"""`muster acls check`."""

from typing import Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, print_rows
from muster.cli.security.flags import one_operation, parse_resources, resource_options, usage_error
from muster.coordinator.security.model import Operation

CHECK_COLUMNS = (
    Column("ALLOWED", "allowed"),
    Column("OPERATION", "operation"),
    Column("RESOURCE", "resource_type"),
    Column("NAME", "resource"),
    Column("REASON", "reason"),
)


@click.command()
@client_options
@output_option
@resource_options
@click.option("--principal", required=True, metavar="PRINCIPAL", help="Of whom it is asked, such as User:alice.")
@click.option("--host", default="", metavar="ADDRESS", help="From where.")
@click.option("--operation", required=True, callback=one_operation, metavar="NAME", help="What they want to do.")
def check(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    principal: str,
    host: str,
    operation: Operation,
    **given: Any,
) -> int:
    """Whether a principal may do something, and which entry decides. Exit code 1 where it may not."""
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
